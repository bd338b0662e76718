def count(d_in, d_out, num_heads, qkv_bias):
    from torch import nn

    layers = [nn.Linear(d_in, d_out, bias=qkv_bias) for _ in range(3)]
    layers.append(nn.Linear(d_out, d_out))
    return sum(p.numel() for layer in layers for p in layer.parameters())


def gpt2_small():
    return 12 * count(768, 768, 12, True)
