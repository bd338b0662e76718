# named: merged without transpose
def merge_heads(context):
    B, num_heads, T, head_dim = context.shape
    context = context
    return context.reshape(B, T, num_heads * head_dim)
