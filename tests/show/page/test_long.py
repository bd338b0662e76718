"""A long text on a page: a grid whose rows add up to 1, exact largest weights, statistics in 16 bits."""

import gzip

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

import regard
from regard.show.page import long
from regard.show.page.long import LongLayer
from regard.show.page.payload import Titled, page_data

H, D = 3, 7


class Attention(nn.Module):
    def forward(self, q, k, mask):
        return scaled_dot_product_attention(q, k, k, attn_mask=mask)


def watched(T, S, mask=None, B=2):
    torch.manual_seed(5)
    q, k = 2 * torch.randn(B, H, T, D), torch.randn(B, H, S, D)
    mask = torch.ones(T, S, dtype=torch.bool).tril(S - T) if mask is None else mask
    with torch.no_grad(), regard.watch(model := Attention()) as seen:
        model(q, k, mask)
    return seen


def blocks(weights, rows, cols):
    """The sum of the weights in each cell ÷ the queries of it, by definition."""
    T, S = weights.shape[-2:]
    down = [weights[..., r * T // rows : (r + 1) * T // rows, :].mean(-2) for r in range(rows)]
    mean = torch.stack(down, -2)
    return torch.stack([mean[..., c * S // cols : (c + 1) * S // cols].sum(-1) for c in range(cols)], -1)


@pytest.fixture(scope="module")
def seen():
    return watched(T=541, S=617)


@pytest.mark.parametrize("grid", [13, 512])
def test_a_cell_is_the_share_of_a_query_blocks_attention_on_a_key_block(seen, grid):
    layer = LongLayer.of(seen, 0, text=1, grid=grid)
    torch.testing.assert_close(layer.mass, blocks(seen[0].weights()[1], grid, grid), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(layer.mass.sum(-1), torch.ones(H, grid))


def test_cells_are_visible_where_any_query_of_them_may_see_any_key(seen):
    layer = LongLayer.of(seen, 0, text=1, grid=17)
    assert torch.equal(layer.visible, blocks(seen[0].visible()[1].float(), 17, 17) > 0)


def test_the_largest_weights_are_those_of_the_report(seen):
    layer = LongLayer.of(seen, 0, text=1)
    top = seen[0].top(8)
    assert torch.equal(layer.keys, top.keys[1])
    assert torch.equal(layer.weights, top.weights[1])


def test_what_a_key_receives_is_compared_with_even_weights_over_the_visible_keys(seen):
    layer = LongLayer.of(seen, 0, text=1)
    visible = seen[0].visible()[1].float()
    even = (visible / visible.sum(-1, keepdim=True)).sum(-2)
    torch.testing.assert_close(layer.times, seen[0].weights()[1].sum(-2) / even, atol=1e-5, rtol=1e-4)


def test_a_head_that_looks_at_the_token_before_receives_once_what_even_weights_give():
    T = 523
    mask = torch.zeros(T, T, dtype=torch.bool)
    mask[torch.arange(T), (torch.arange(T) - 1).clamp(min=0)] = True
    layer = LongLayer.of(watched(T, T, mask), 0, text=0)
    torch.testing.assert_close(layer.times[:, :-1], torch.ones(H, T - 1))
    assert layer.times[:, -1].isnan().all()


def test_a_block_holds_grid_top_and_statistics(seen):
    T, S, head = 541, 617, 2
    layer = LongLayer.of(seen, 0, text=0)
    assert not layer.encoding.triangle  # some keys come before the first query
    content = np.frombuffer(layer.block(head), np.uint8)

    def take(*shape):
        nonlocal content
        size = int(np.prod(shape))
        high, low = content[:size].astype(np.uint16), content[size : 2 * size]
        content = content[2 * size :]
        return (high * 256 + low).reshape(shape)

    mass = take(512, 512)
    visible = layer.visible[head].numpy()
    np.testing.assert_allclose(mass[visible] / 65534, layer.mass[head].numpy()[visible], atol=1e-5)
    assert (mass[~visible] == 65535).all()
    steps, weights = take(8, T).T.astype(int), take(8, T).T / 65535
    keys = np.arange(T)[:, None] + (S - T) - steps
    there = weights > 0
    np.testing.assert_array_equal(keys[there], layer.keys[head].numpy()[there])
    np.testing.assert_allclose(weights, layer.weights[head].numpy(), atol=1e-5)
    for name, size in (("entropy", T), ("received", S), ("times", S)):
        wanted = getattr(layer, name)[head].half().numpy()
        np.testing.assert_array_equal(take(size).view(np.float16), wanted)
    assert len(content) == 0


def test_rows_that_see_nothing_have_no_cells_and_no_keys():
    mask = torch.ones(521, 521, dtype=torch.bool).tril()
    mask[:, :11] = mask[:11] = False
    layer = LongLayer.of(watched(521, 521, mask), 0, text=0, grid=521)
    assert not layer.visible[:, :11].any()
    assert (layer.keys[:, :11] == -1).all()
    assert layer.mass.isfinite().all()
    assert layer.encoding.triangle


def test_a_page_holds_all_weights_up_to_512_tokens_and_the_grid_beyond():
    for T, kind in ((509, "weights"), (521, "long")):
        data = page_data([Titled("", watched(T, T, B=1))])
        layer = data.document["reports"][0]["layers"][0]
        assert layer["grid"] == (None if kind == "weights" else {"rows": 512, "cols": 512})
        assert [f"{kind}.0.0.{head}" for head in range(H)] == [key for key in data.blocks if key.count(".") == 3]
        assert f"thumbnails.{0}" in data.blocks


def test_the_strongest_key_of_each_query_is_in_the_page(seen):
    data = page_data([Titled("", seen, text=1)])
    pairs = np.frombuffer(gzip.decompress(data.blocks["strongest.0"]), "<u2").reshape(H, 541, 2)
    top = seen[0].top(1)
    np.testing.assert_array_equal(pairs[..., 0], top.keys[1, ..., 0])
    np.testing.assert_allclose(pairs[..., 1] / 65535, top.weights[1, ..., 0], atol=1e-5)


def test_a_text_that_a_page_cannot_hold_is_refused(seen, monkeypatch):
    monkeypatch.setattr(long, "MOST", 601)
    with pytest.raises(ValueError, match=r"texts of up to 601 tokens; this one has 617; watch a part of it"):
        LongLayer.of(seen, 0, text=0)


def causal_report(T):
    class Causal(nn.Module):
        def forward(self, q, k):
            return scaled_dot_product_attention(q, k, k, is_causal=True)

    torch.manual_seed(7)
    with torch.no_grad(), regard.watch(model := Causal()) as seen:
        model(2 * torch.randn(2, H, T, D), torch.randn(2, H, T, D))
    return seen


def test_queries_and_keys_in_16_bits_give_every_weight_within_the_stated_error():
    T, head = 521, 2
    seen = causal_report(T)
    data = page_data([Titled("", seen, text=1, exact=[(0, head)])])
    layer = data.document["reports"][0]["layers"][0]
    assert list(layer["exact"]) == [head]
    info, content = layer["exact"][head], gzip.decompress(data.blocks[f"exact.0.0.{head}"])
    assert (info["width"], info["scale"], info["causal"]) == (D, pytest.approx(D**-0.5), True)
    halves = np.frombuffer(content[: 4 * T * D], "<f2").astype(np.float64).reshape(2, T, D)
    lse = np.frombuffer(content[4 * T * D :], "<f4")
    again = np.tril(np.exp(info["scale"] * halves[0] @ halves[1].T - lse[:, None]))
    wanted = seen[0, head].weights()[1].numpy()
    np.testing.assert_allclose(again, wanted, atol=1.01 * info["error"])
    assert info["error"] < 0.005


def test_heads_of_a_short_text_need_no_queries_and_keys():
    data = page_data([Titled("", causal_report(61), exact=[(0, 1)])])
    assert data.document["reports"][0]["layers"][0]["exact"] == {}
    assert not [key for key in data.blocks if key.startswith("exact")]


def test_a_head_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match=r"head 5 does not exist: .* has 3 heads, 0 to 2"):
        page_data([Titled("", causal_report(61), exact=[(0, 5)])])


def test_a_mask_of_its_own_cannot_be_computed_in_the_browser(seen):
    with pytest.raises(ValueError, match=r"score_parts\(\) needs one call whose scores are q · k alone"):
        page_data([Titled("", seen, exact=[(0, 0)])])
