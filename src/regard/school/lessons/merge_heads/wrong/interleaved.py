# named: heads interleaved
def merge_heads(context):
    B, num_heads, T, head_dim = context.shape
    context = context.permute(0, 2, 3, 1)
    return context.reshape(B, T, num_heads * head_dim)
