"""The weights of a softmax while the model reshapes, permutes, slices and changes the tensor that holds them."""

import pytest
import torch

from regard.attention.masks import EVERYTHING
from regard.heads.calls.basis import How
from regard.heads.calls.head_axis import HeadAxis
from regard.heads.calls.visibility import MasksOfScores
from regard.heads.intercept.tracked_softmax import TrackedSoftmax, of_einsum, of_matrices


@pytest.fixture
def weights():
    return torch.randn(2, 3, 5, 7).softmax(-1)


def values(softmax, tensor):
    """The weights, if the model now changed its tensor in place."""
    return softmax.overwritten(tensor, tensor.shape).weights


def test_weights_are_restored_from_a_view_of_the_models_tensor(weights):
    flat = weights.flatten(0, 1)
    softmax = TrackedSoftmax(weights).reshaped(weights, flat)
    assert not softmax.has_own_axes
    assert torch.equal(values(softmax, 2 * flat), 2 * weights)


def test_a_cast_does_not_change_the_axes(weights):
    softmax = TrackedSoftmax(weights)
    assert softmax.reshaped(weights, weights.double()) is softmax


def test_a_tensor_with_more_entries_keeps_the_axes_that_it_has(weights):
    wide = weights.repeat(2, 1, 1, 1)
    softmax = TrackedSoftmax(weights).reshaped(weights, weights.flatten(0, 1)).reshaped(weights.flatten(0, 1), wide)
    assert softmax.has_own_axes
    assert torch.equal(values(softmax, wide), wide)


def test_weights_are_restored_through_a_view_and_two_permutations(weights):
    order = [2, 0, 1, 3]
    moved = weights.permute(order)
    softmax = TrackedSoftmax(weights).permuted(order)
    flat = moved.flatten(0, 1)
    softmax = softmax.reshaped(moved, flat).permuted([1, 0, 2])
    assert softmax.transposed is False
    assert torch.equal(values(softmax, flat.permute(1, 0, 2)), weights)


def test_keys_are_followed_to_whatever_axis_they_are_moved(weights):
    softmax = TrackedSoftmax(weights)
    turned = softmax.permuted([0, 1, 3, 2])
    assert turned.transposed is True
    assert torch.equal(values(turned, weights.mT), weights)
    assert turned.permuted([0, 1, 3, 2]).transposed is False
    moved = softmax.permuted([0, 3, 1, 2])
    assert (moved.keys, moved.transposed) == (-3, False)
    assert torch.equal(values(moved, weights.permute(0, 3, 1, 2)), weights)
    assert moved.permuted([0, 2, 3, 1]).keys == -1


def test_a_result_of_another_shape_has_its_own_axes(weights):
    row = weights[:, :, :1]
    softmax = TrackedSoftmax(weights).permuted([1, 0, 2, 3]).overwritten(row, weights.shape)
    assert softmax.has_own_axes
    assert torch.equal(softmax.weights, row)


@pytest.mark.parametrize("in_place", [True, False])
def test_the_weights_before_dropout_are_copied_only_where_it_works_in_place(weights, in_place):
    softmax = TrackedSoftmax(weights).dropped(in_place)
    assert (softmax.weights is weights) is not in_place
    assert torch.equal(softmax.weights, weights)
    assert softmax.dropped(in_place) is softmax


@pytest.mark.parametrize("by_name", [True, False])
def test_a_change_after_dropout_is_made_to_the_weights_before_it(weights, by_name):
    dropped = torch.nn.functional.dropout(weights, 0.5)
    args, kwargs = ((), {"input": dropped, "other": 3.0}) if by_name else ((dropped, 3.0), {})
    softmax = TrackedSoftmax(weights, after_dropout=True).changed_before_dropout(torch.mul, args, kwargs, dropped)
    assert torch.equal(softmax.weights, 3 * weights)


def test_a_change_in_place_after_dropout_leaves_the_tracked_tensor_alone(weights):
    before, dropped = weights.clone(), torch.nn.functional.dropout(weights, 0.5)
    softmax = TrackedSoftmax(weights, after_dropout=True)
    changed = softmax.changed_before_dropout(torch.Tensor.__setitem__, (dropped, 0, 0.0), {}, dropped)
    assert torch.equal(weights, before)
    assert torch.equal(changed.weights, torch.cat([torch.zeros_like(before[:1]), before[1:]]))


def test_each_slice_has_its_weights_and_its_visible_keys(weights):
    visible = torch.rand(2, 3, 1, 7) > 0.5
    softmax = TrackedSoftmax(weights, visible)
    slices = weights.split(2, 3)
    parts = softmax.sliced(torch.Tensor.split, (weights, 2, 3), {}, slices)
    assert len(parts) == 4
    for part, expected, seen in zip(parts, slices, visible.split(2, 3), strict=True):
        assert torch.equal(part.weights, expected)
        assert torch.equal(part.visible, seen)
        assert part.origin is not softmax.origin


def test_a_slice_after_dropout_is_taken_from_the_weights_before_it(weights):
    dropped = torch.nn.functional.dropout(weights, 0.5)
    softmax = TrackedSoftmax(weights, after_dropout=True)
    (part,) = softmax.sliced(torch.Tensor.__getitem__, (dropped, 1), {}, (dropped[1],))
    assert torch.equal(part.weights, weights[1])
    assert part.after_dropout
    assert part.unknown == ""


def test_a_slice_of_a_view_after_dropout_is_unknown(weights):
    view = torch.nn.functional.dropout(weights, 0.5).flatten(0, 1)
    softmax = TrackedSoftmax(weights, after_dropout=True).reshaped(weights, view)
    (part,) = softmax.sliced(torch.Tensor.__getitem__, (view, slice(1, 3)), {}, (view[1:3],))
    assert part.unknown == "after dropout its weights are viewed and cut; put dropout last"


@pytest.mark.parametrize(
    ("shape", "axis", "expected"),
    [
        ((5, 7), HeadAxis(), (1, 1, 5, 7)),
        ((6, 5, 7), HeadAxis(), (6, 1, 5, 7)),
        ((6, 5, 7), HeadAxis(split=(2, 3)), (2, 3, 5, 7)),
        ((2, 3, 5, 7), HeadAxis(-3), (2, 3, 5, 7)),
        ((2, 3, 4, 5, 7), HeadAxis(-3), (6, 4, 5, 7)),
    ],
    ids=str,
)
def test_a_call_has_texts_and_heads(shape, axis, expected):
    weights = torch.randn(shape).softmax(-1)
    own, _ = TrackedSoftmax(weights).as_own(axis, MasksOfScores())
    assert torch.equal(own.weights, weights.reshape(expected))
    assert own.mask is EVERYTHING


def test_the_mask_of_a_call_hides_what_the_scores_of_each_head_hide():
    visible = torch.rand(2, 3, 5, 7) < 0.5
    tracked = TrackedSoftmax(torch.rand(6, 5, 7), visible.flatten(0, 1))
    own, basis = tracked.as_own(HeadAxis(split=(2, 3)), MasksOfScores())
    assert torch.equal(own.mask.dense(5, 7), visible)
    assert basis.weights.how is How.ASSUMED  # only because these scores are no product
    assert "no product" in basis.weights.reason


def test_visible_keys_of_another_shape_say_nothing():
    assert (
        TrackedSoftmax(torch.rand(6, 5, 7), torch.zeros(6, 1, 8, dtype=torch.bool))
        .as_own(HeadAxis(), MasksOfScores())[0]
        .mask
        is EVERYTHING
    )


B, H, T, S, D = 2, 3, 5, 7, 4


def parts():
    return torch.rand(B, H, T, S).softmax(-1), torch.randn(B, H, S, D)


def test_rows_of_heads_in_the_batch_are_found():
    weights, values = parts()
    tensor = weights.flatten(0, 1)
    softmax = TrackedSoftmax(weights).reshaped(weights, tensor)
    out = torch.bmm(tensor, values.flatten(0, 1))
    product = of_matrices(torch.bmm, (tensor, values.flatten(0, 1)), {}, tensor, out)
    rows = product.rows(softmax, HeadAxis(-3))
    assert torch.equal(product.context(out, rows), weights @ values)
    changed = torch.randn(B, H, T, D)
    assert torch.equal(product.with_context(out, rows, changed), changed.flatten(0, 1))


def test_rows_of_a_transposed_product_are_found():
    weights, values = parts()
    tensor = weights.mT
    softmax = TrackedSoftmax(weights).permuted([0, 1, 3, 2])
    out = values.mT @ tensor
    product = of_matrices(torch.matmul, (values.mT, tensor), {}, tensor, out)
    rows = product.rows(softmax, HeadAxis(-3))
    torch.testing.assert_close(product.context(out, rows), weights @ values)
    chosen, new = torch.tensor([1, 4]), torch.rand(B, H, T, S)
    changed = product.with_weights(softmax, rows, chosen, new)
    assert torch.equal(changed[..., chosen], new[:, :, chosen].mT)
    assert torch.equal(changed[..., [0, 2, 3]], tensor[..., [0, 2, 3]])
    torch.testing.assert_close(product.run(changed), values.mT @ changed)


def test_an_einsum_keeps_its_layout():
    weights, values = parts()
    out = torch.einsum("bhts,bhsd->bthd", weights, values)
    arguments = ("bhts,bhsd->bthd", weights, values)
    product = of_einsum(torch.einsum, arguments, {}, weights, "bhts", "bthd", -1, out)
    softmax = TrackedSoftmax(weights)
    rows = product.rows(softmax, HeadAxis(-3))
    torch.testing.assert_close(product.context(out, rows), weights @ values)
    new = torch.randn(B, H, T, D)
    changed = product.with_context(out, rows, new)
    assert torch.equal(changed, new.transpose(1, 2))
    assert changed.stride() == out.stride()
    torch.testing.assert_close(product.run(2 * weights), 2 * out)


def test_a_product_without_an_axis_of_heads_is_refused():
    weights, values = parts()
    out = torch.einsum("bhts,bhsd->btd", weights, values)
    product = of_einsum(torch.einsum, (), {}, weights, "bhts", "btd", -1, out)
    with pytest.raises(ValueError, match="its product sums over heads or queries"):
        product.rows(TrackedSoftmax(weights), HeadAxis(-3))


def test_values_of_more_texts_than_weights_are_refused():
    weights, values = torch.rand(T, S).softmax(-1), torch.randn(B, S, D)
    product = of_matrices(torch.matmul, (weights, values), {}, weights, weights @ values)
    with pytest.raises(ValueError, match=r"its weights, \(5, 7\), are multiplied with values of more texts or heads"):
        product.rows(TrackedSoftmax(weights), HeadAxis())
