"""The worked example, "Your journey starts with one step", to four digits, by loops and by matrices."""

import pytest
import torch

from regard import trace
from regard.ladder import SENTENCE, VECTORS, attend_by_loops, simplified_attention

SCORES = torch.tensor([0.9544, 1.4950, 1.4754, 0.8434, 0.7070, 1.0865])
WEIGHTS = torch.tensor([0.1385, 0.2379, 0.2333, 0.1240, 0.1082, 0.1581])
CONTEXT = torch.tensor([0.4419, 0.6515, 0.5683])
to_four_digits = {"rtol": 0.0, "atol": 5.1e-5}


def test_the_sentence_has_a_vector_for_each_word():
    assert " ".join(SENTENCE) == "Your journey starts with one step"
    assert VECTORS.shape == (6, 3)


def test_loops_give_the_books_figures_for_journey():
    scores, weights, context = attend_by_loops(VECTORS, query=1)
    torch.testing.assert_close(torch.tensor(scores), SCORES, **to_four_digits)
    torch.testing.assert_close(torch.tensor(weights), WEIGHTS, **to_four_digits)
    torch.testing.assert_close(torch.tensor(context), CONTEXT, **to_four_digits)


def test_matrices_give_the_books_figures_for_journey():
    with trace() as t:
        out = simplified_attention(VECTORS)
    torch.testing.assert_close(t["scores"][1], SCORES, **to_four_digits)
    torch.testing.assert_close(t["weights"][1], WEIGHTS, **to_four_digits)
    torch.testing.assert_close(out[1], CONTEXT, **to_four_digits)


@pytest.mark.parametrize("query", range(6))
def test_loops_and_matrices_agree_for_every_word(query):
    scores, weights, context = attend_by_loops(VECTORS, query)
    with trace() as t:
        simplified_attention(VECTORS)
    torch.testing.assert_close(torch.tensor(scores), t["scores"][query])
    torch.testing.assert_close(torch.tensor(weights), t["weights"][query])
    torch.testing.assert_close(torch.tensor(context), t["context"][query])


def test_each_row_of_weights_sums_to_one():
    with trace() as t:
        simplified_attention(torch.randn(7, 5))
    torch.testing.assert_close(t["weights"].sum(-1), torch.ones(7))


def test_a_list_says_how_to_make_a_tensor_of_it(without_shape_checks):
    with pytest.raises(ValueError, match=r"x must be a tensor, not list; pass torch\.tensor\(x\)"):
        simplified_attention([[0.5, 0.1], [0.3, 0.2]])
