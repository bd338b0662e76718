# named: heads averaged
def merge_heads(context):
    B, num_heads, T, head_dim = context.shape
    context = context.transpose(1, 2)
    return context.mean(dim=2)
