# named: view without contiguous
def merge_heads(context):
    B, num_heads, T, head_dim = context.shape
    context = context.transpose(1, 2)
    return context.view(B, T, num_heads * head_dim)
