"""Products of weights and values: where the rows of each head are, in any layout."""

import pytest
import torch

from regard.heads.calls.head_axis import HeadAxis
from regard.heads.intercept.products import of_einsum, of_matrices
from regard.heads.intercept.tracked_softmax import TrackedSoftmax

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
    product = of_einsum(torch.einsum, arguments, {}, weights, "bhts", "bthd", False, out)
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
    product = of_einsum(torch.einsum, (), {}, weights, "bhts", "btd", False, out)
    with pytest.raises(ValueError, match="its product sums over heads or queries"):
        product.rows(TrackedSoftmax(weights), HeadAxis(-3))


def test_values_of_more_texts_than_weights_are_refused():
    weights, values = torch.rand(T, S).softmax(-1), torch.randn(B, S, D)
    product = of_matrices(torch.matmul, (weights, values), {}, weights, weights @ values)
    with pytest.raises(ValueError, match=r"its weights, \(5, 7\), are multiplied with values of more texts or heads"):
        product.rows(TrackedSoftmax(weights), HeadAxis())
