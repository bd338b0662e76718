"""Where the rows of tensors come from, function by function."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

from regard.heads.inputs.row_origin import Relation, RowOrigins, row_origins_of

B, T, E = 2, 7, 5
SAME, OTHER, UNKNOWN = Relation.SAME, Relation.OTHER, Relation.UNKNOWN


class Running:
    """The module call in progress: its buffers are constants."""

    args = arguments = ()

    def __init__(self):
        self.module = nn.Module()
        self.module.places = torch.randn(1, T, E)


class Followed(TorchFunctionMode):
    """A forward with a text (B, T, E) and an image (B, T, 3), all of whose functions are followed."""

    def __init__(self):
        super().__init__()
        self.text, self.image, self.mask = torch.randn(B, T, E), torch.randn(B, T, 3), torch.ones(B, T)
        self.running = Running()
        arguments = (("x", self.text), ("y", self.image), ("attention_mask", self.mask))
        self.origins = RowOrigins(arguments, lambda: [self.running])

    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.origins.follow(getattr(func, "__name__", ""), args, kwargs or {}, out)
        return out

    def relation(self, one, other):
        return self.origins.relation(self.origins.of(one), self.origins.of(other))


W = nn.Parameter(torch.randn(E, E))
TO_TEXT = nn.Parameter(torch.randn(E, 3))
MIX = nn.Parameter(torch.randn(T, T))


def attended(x, y):
    """x attends to y."""
    return (x @ y.mT).softmax(-1) @ y


@pytest.mark.parametrize(
    ("made", "to_text", "to_image"),
    [
        (lambda f, x, y: F.linear(x, W), SAME, OTHER),
        (lambda f, x, y: x @ W + f.running.module.places, SAME, OTHER),
        (lambda f, x, y: F.layer_norm(x, (E,)).relu().transpose(1, 2).contiguous().mT, SAME, OTHER),
        (lambda f, x, y: x * f.mask[..., None].expand_as(x), SAME, OTHER),
        (lambda f, x, y: x + y.mean(1, keepdim=True), SAME, OTHER),  # the same for all rows
        (lambda f, x, y: x + attended(x, y), SAME, OTHER),  # the rows of the queries
        (lambda f, x, y: x + (y.mT @ (y @ x.mT).softmax(-2)).mT, SAME, OTHER),  # keys first, transposed
        (lambda f, x, y: torch.einsum("bsd,bts->btd", y, torch.einsum("bsd,btd->bts", y, x)), SAME, OTHER),
        (lambda f, x, y: torch.cat([x[..., 2:], x[..., :2]], -1), SAME, OTHER),  # rotary positions
        (lambda f, x, y: torch.cat([x, y], 1)[:, :T], SAME, OTHER),  # a part, as it was before
        (lambda f, x, y: torch.cat([x, y], 1).split(T, 1)[1], OTHER, SAME),
        (lambda f, x, y: torch.cat([x.new_zeros(B, 0, E), x], 1), SAME, OTHER),  # an empty cache
        (lambda f, x, y: x.masked_scatter(torch.ones_like(x) > 2, y), SAME, UNKNOWN),  # an image among words
        (lambda f, x, y: x[:, 1:], UNKNOWN, OTHER),
        (lambda f, x, y: x.roll(1, 1), UNKNOWN, OTHER),
        (lambda f, x, y: x.flip(1), UNKNOWN, OTHER),
        (lambda f, x, y: MIX @ x, UNKNOWN, OTHER),  # tokens are mixed
        (lambda f, x, y: F.linear(x.mT, MIX).mT, UNKNOWN, OTHER),
        (lambda f, x, y: x.index_select(1, torch.arange(T)), UNKNOWN, OTHER),
        (lambda f, x, y: torch.cat([x[:, 1:], x[:, :1]], 1), UNKNOWN, OTHER),
        (lambda f, x, y: torch.cat([x, y], 1), UNKNOWN, UNKNOWN),
        (lambda f, x, y: torch.stack([x, y]), UNKNOWN, UNKNOWN),
        (lambda f, x, y: W.expand(B, -1, -1), OTHER, OTHER),  # learned queries
        (lambda f, x, y: attended(W.expand(B, -1, -1), y), OTHER, OTHER),
    ],
)
def test_rows_are_handed_on_function_by_function(made, to_text, to_image):
    with Followed() as followed:
        text, image = followed.text, F.linear(followed.image, TO_TEXT)
        result = made(followed, text, image)
    assert followed.relation(result, text) is to_text
    assert followed.relation(result, image) is to_image


def test_queries_and_keys_that_are_treated_alike_have_the_same_new_rows():
    with Followed() as followed:
        one, other = (F.linear(torch.cat([followed.text, F.linear(followed.image, TO_TEXT)], 1), W) for _ in range(2))
        first, second = (t.roll(1, 1)[:, 2:] for t in (one, other))
        moved = one.roll(2, 1)[:, 2:]
    assert followed.relation(one, other) is SAME
    assert followed.relation(first, second) is SAME
    assert followed.relation(first, moved) is UNKNOWN


def test_what_is_written_into_a_buffer_is_of_the_text_that_was_written():
    with Followed() as followed:
        cache, shifted = torch.zeros(B, 11, E), torch.zeros_like(followed.text)
        cache[:, :T].copy_(followed.text)
        shifted[:, 1:] = followed.text[:, :-1]
        rotated = torch.empty_like(followed.text)
        rotated[..., :2], rotated[..., 2:] = followed.text[..., 3:], followed.text[..., :3]
    assert followed.relation(cache, followed.text) is UNKNOWN
    assert followed.relation(shifted, followed.text) is UNKNOWN
    assert followed.relation(rotated, followed.text) is SAME


def test_what_was_computed_unseen_is_neither_the_same_nor_another():
    followed = Followed()
    unseen = followed.text * 2
    with followed:
        result = followed.text + unseen
    assert followed.relation(unseen, followed.text) is UNKNOWN
    assert followed.relation(unseen, followed.image) is UNKNOWN
    assert followed.relation(result, followed.text) is SAME
    assert followed.relation(result, followed.image) is UNKNOWN


def test_two_arguments_of_one_shape_may_be_the_same_text():
    x, y = torch.randn(B, T, E), torch.randn(B, T, E)
    twins = RowOrigins((("x", x), ("y", y)), lambda: [Running()])
    assert twins.relation(twins.of(x), twins.of(y)) is UNKNOWN
    again = RowOrigins((("ids", x), ("decoder_ids", x)), lambda: [Running()])
    assert again.reads_one_text_twice


def test_one_text_is_not_followed():
    text, mask = torch.zeros(B, T, dtype=torch.long), torch.ones(B, T)
    assert row_origins_of(("input_ids", "attention_mask"), (text, mask), {"position_ids": text}, list, False) is None
    assert row_origins_of(("input_ids",), (text,), {"pixel_values": torch.zeros(B, 3, 4, 4)}, list, False) is not None
    assert row_origins_of(("input_ids",), (text,), {}, list, may_cross=True) is not None
