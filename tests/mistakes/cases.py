"""Random cases of attention at sizes that are all different."""

import torch

from regard.mistakes.formula import Case, Projection


def random_case(H=3, D=7, d_in=13, T=5, B=2, causal=True, Hkv=None, out=True, seed=0, **options):
    generator = torch.Generator().manual_seed(seed)

    def random(*shape):
        return torch.randn(shape, dtype=torch.float64, generator=generator)

    def projection(rows, columns):
        return Projection(random(rows, columns) * 1.5 * columns**-0.5, random(rows) * 0.3)

    E, kv = H * D, (Hkv or H) * D
    projections = {"W_query": projection(E, d_in), "W_key": projection(kv, d_in), "W_value": projection(kv, d_in)}
    if out:
        projections["out_proj"] = projection(E, E)
    return Case(random(B, T, d_in), projections, H, causal, **options)


def mistake(mistakes, name, number=0):
    return [one for one in mistakes if one.name == name][number]
