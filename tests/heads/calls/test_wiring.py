"""Finding heads among the features of a linear map, by their numbers."""

import pytest
import torch

from regard.heads.calls.wiring import (
    HeadMap,
    HeadWiring,
    LinearPath,
    find_features,
    find_rotated,
    in_both_orders,
    version_of,
)

B, H, T, D = 2, 3, 7, 5
HEADS = torch.randn(B, H, T, D, generator=torch.Generator().manual_seed(1))
SIDE_BY_SIDE = HEADS.transpose(1, 2).flatten(2)
OTHERS = torch.randn(B, T, 11, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize(
    ("features", "starts"),
    [
        (SIDE_BY_SIDE, (0, 5, 10)),
        (torch.cat([OTHERS, SIDE_BY_SIDE], -1), (11, 16, 21)),
        (HEADS[:, [2, 0, 1]].transpose(1, 2).flatten(2), (5, 10, 0)),
        (torch.stack([HEADS, -HEADS], 2).permute(0, 3, 1, 2, 4).flatten(2), (0, 10, 20)),  # (H, 2, D), as GPT-NeoX
        (SIDE_BY_SIDE + 1e-6, None),
        (SIDE_BY_SIDE.flip(0), None),  # another text's
        (OTHERS, None),
    ],
)
def test_heads_are_found_bit_for_bit(features, starts):
    assert find_features(HEADS, features) == starts


def test_heads_that_share_features_are_found_twice():
    assert find_features(HEADS[:, [0, 0, 1]], SIDE_BY_SIDE) == (0, 0, 5)


def test_rotated_heads_are_found_by_their_lengths():
    turn = torch.linalg.qr(torch.randn(T, D, D, generator=torch.Generator().manual_seed(3)))[0]
    rotated = (0.3 * HEADS[:, :, :, None] @ turn)[:, :, :, 0]
    assert find_rotated(rotated[:, [1, 2]], SIDE_BY_SIDE) == (5, 10)
    assert find_rotated(rotated / rotated.norm(dim=-1, keepdim=True), SIDE_BY_SIDE) is None


def test_features_are_arranged_by_texts_or_by_tokens():
    flat = SIDE_BY_SIDE.transpose(0, 1).reshape(T * B, -1)
    assert [find_features(HEADS, one) for one, _ in in_both_orders(flat, B, T)] == [None, (0, 5, 10)]
    assert [first for _, first in in_both_orders(SIDE_BY_SIDE.transpose(0, 1), B, T)] == [True]
    assert in_both_orders(OTHERS, B, T + 1) == []


def test_weights_that_were_changed_meanwhile_are_not_read():
    weight = torch.randn(15, 13)
    projection = HeadMap(weight, (0, 5, 10), D, version_of(weight))
    assert torch.equal(projection.rows(2, 3), weight[10:15])
    weight.mul_(2)
    with pytest.raises(ValueError, match=r"the model's weights were changed since it was watched; watch it again"):
        projection.rows(2, 3)


def test_what_was_not_found_is_said():
    wiring = HeadWiring(None)
    with pytest.raises(
        ValueError, match=r"its output projection was not found: no Linear, .* took its contexts, side by side and"
    ):
        wiring.output()
    with pytest.raises(
        ValueError, match=r"the projection of its keys was not found: no Linear, .* gave them unchanged or rotated"
    ):
        wiring.input("keys")
    with pytest.raises(ValueError, match=r"does not reach the model's logits by additions, norms, scales"):
        wiring.way_to_logits()
    projection = HeadMap(torch.randn(15, 15), (0, 5, 10), D, 0)
    wiring.found = [(projection, "h.0.base"), (projection, "h.0.lora")]
    with pytest.raises(ValueError, match=r"its contexts go into 2 linear maps, in h\.0\.base and h\.0\.lora"):
        wiring.output()


def test_a_path_is_a_linear_function_up_to_the_logits():
    unembedding, x = torch.randn(13, 5), torch.randn(B, T, 5)
    path = (LinearPath(lambda t: 2 * t).then(torch.neg) + LinearPath(lambda t: t)).run
    through = LinearPath(path, unembedding).then(lambda t: t / 4)
    expected = -x @ unembedding.T / 4
    torch.testing.assert_close(through.logits(x, torch.tensor([3, 7])), expected[..., [3, 7]])
    ids = torch.randint(0, 13, (B, T))
    torch.testing.assert_close(through.logits_of_each(x, ids), expected.gather(-1, ids[..., None])[..., 0])
