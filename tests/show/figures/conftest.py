"""Reports to draw, and no figure left open."""

import pytest
import torch

import regard

plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def _closed_figures():
    plt.switch_backend("agg")
    yield
    plt.close("all")


@pytest.fixture
def watched():
    """A report of one layer or several, of random queries and keys."""

    def watch(T, heads=2, layers=1, causal=True, texts=1, tokens=None, S=None):
        torch.manual_seed(5)
        many = [
            regard.MultiHeadAttention(
                d_in=6 * heads, d_out=6 * heads, context_length=None, dropout=0.0, num_heads=heads, causal=causal
            )
            for _ in range(layers)
        ]
        model = torch.nn.Sequential(*many)
        context = () if S is None else (torch.randn(texts, S, 6 * heads),)
        with torch.no_grad(), regard.watch(model if S is None else many[0], tokens=tokens) as seen:
            (model if S is None else many[0])(5 * torch.randn(texts, T, 6 * heads), *context)
        return seen

    return watch
