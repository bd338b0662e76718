"""The head that a page opens with: the clearest role, or a head that copies though it passes no threshold."""

import pytest
import torch

import regard
from regard.show.page.opening import COPIES, order_of_heads

NAMES = ["malt", "rat", "cat", "dog", "cow", "maiden", "man"]
VERBS = ["lay in", "ate", "killed", "worried", "tossed", "milked", "kissed"]


def verse(n):
    """One of The House that Jack Built."""
    lines = [f"This is the {NAMES[n]},", *(f"That {VERBS[i]} the {NAMES[i - 1]}" for i in range(n, 0, -1))]
    return "\n".join([*lines, "That lay in the house that Jack built.", "", ""])


HOUSE = "".join(map(verse, range(len(NAMES))))


def watched(text):
    model = regard.GPT.from_pretrained("tiny")
    with torch.no_grad(), regard.watch(model, tokenizer=model.tokenizer) as seen:
        model(torch.tensor([model.tokenizer.encode(text)]))
    return seen


def test_a_head_that_copies_comes_first_also_where_it_passes_no_threshold():
    seen = watched(HOUSE)
    copies = {place: one.means["induction"] for place, one in seen.portraits().items()}
    best = max(copies, key=copies.get)
    assert copies[best] >= COPIES
    assert order_of_heads(seen)[0] == best
    assert sorted(order_of_heads(seen)) == sorted(seen.order())


def test_of_one_layer_only_its_heads_are_ordered():
    seen = watched(HOUSE)
    assert {layer for layer, _ in order_of_heads(seen, 3)} == {3}


@pytest.mark.parametrize("text", ["The cat sat on the mat", "hi"])
def test_without_repetition_the_order_is_that_of_the_report(text):
    seen = watched(text)
    assert order_of_heads(seen) == seen.order()
