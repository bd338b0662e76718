def merge_heads(context):
    return context.transpose(1, 2).flatten(2)
