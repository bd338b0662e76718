"""Where the rows of tensors come from, function by function."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

import regard
from regard.heads.inputs.row_origin import RowOrigins
from regard.heads.inputs.row_relation import Relation

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
        self.origins.follow(getattr(func, "__name__", ""), func, args, kwargs or {}, out)
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
        (lambda f, x, y: x.index_select(1, torch.arange(T).flip(0)), UNKNOWN, OTHER),
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


class OneText(nn.Module):
    """Attention in one text, whose queries and keys are made by two functions."""

    def __init__(self, queries, keys):
        super().__init__()
        self.proj, self.learned = nn.ModuleList(nn.Linear(E, E) for _ in range(3)), nn.Embedding(T, E)
        self.places = torch.randn(B, T, E)
        self.queries, self.keys = queries, keys

    def forward(self, x, moved=False):
        q, k = self.queries(self, x), (lambda m, x: x.flip(1))(self, x) if moved else self.keys(self, x)
        q, k, v = (layer(t).unsqueeze(1) for layer, t in zip(self.proj, (q, k, k), strict=True))
        return F.scaled_dot_product_attention(q, k, v)


STORED = torch.randn(B, T, E)


def own(module, x):
    return x


@pytest.mark.parametrize(
    ("queries", "keys", "has_positions", "marked"),
    [
        (own, own, True, False),
        (own, lambda m, x: F.layer_norm(x, (E,)), True, False),
        (own, lambda m, x: x.flip(1), True, True),
        (own, lambda m, x: x.roll(1, 0), True, True),
        (own, lambda m, x: x[:, torch.randperm(T)], True, True),
        (own, lambda m, x: x.gather(1, torch.arange(T).flip(0)[None, :, None].expand_as(x)), True, True),
        (lambda m, x: x[[1, 0]], own, True, True),
        (own, lambda m, x: x[..., torch.arange(E).flip(0)], True, False),
        (own, lambda m, x: x[:, :, [4, 3, 2, 1, 0]], True, False),
        (own, lambda m, x: STORED, True, True),  # of neither the text nor the model
        (own, lambda m, x: m.places, False, False),  # of the model: other tokens, which have no positions in the text
        (lambda m, x: m.learned.weight.expand(B, -1, -1), own, False, False),
        (lambda m, x: m.learned(torch.arange(T)).expand(B, -1, -1), own, False, False),
    ],
)
def test_in_one_text_of_a_length_too_the_rows_of_queries_and_keys_are_followed(queries, keys, has_positions, marked):
    for _ in range(2):  # what is remembered of the first forward must change nothing
        with regard.watch(model := OneText(queries, keys)) as seen:
            model(torch.randn(B, T, E))
            model(torch.randn(B, T, E))
        for (layer,) in seen.forwards:
            assert bool(layer.self.isnan().all()) is not has_positions
            assert any(mark.startswith("positions assumed") for mark in layer.marks) is marked


def test_a_model_whose_rows_were_told_by_lengths_is_not_followed_again_in_the_same_form():
    model, x, followed = OneText(own, own), torch.randn(B, T, E), []
    interceptor = RowOrigins.follow

    def follow(self, name, *rest):
        followed.append(name)
        return interceptor(self, name, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RowOrigins, "follow", follow)
        counts = []
        for arguments in ({}, {}, {"moved": True}, {"moved": True}, {}):
            followed.clear()
            with regard.watch(model) as seen:
                model(x, **arguments)
            counts.append(bool(followed))
            assert bool(seen[0].marks) is bool(arguments)
    assert counts == [True, False, True, True, False]
    model.eval()
    with pytest.MonkeyPatch.context() as patch, regard.watch(model):
        patch.setattr(RowOrigins, "follow", follow)
        followed.clear()
        model(x)
    assert followed


def test_a_mask_is_of_the_argument_it_stands_with_whatever_self_is_called():
    class Towers(nn.Module):
        def __init__(me):
            super().__init__()
            me.words = nn.ModuleList(nn.Embedding(30, E) for _ in range(2))
            me.towers = nn.ModuleList(OneText(own, own) for _ in range(2))

        def forward(me, input_ids, other_ids, attention_mask):
            one, other = (t(e(i)) for t, e, i in zip(me.towers, me.words, (input_ids, other_ids), strict=True))
            return (one * attention_mask[:, None, :, None]).sum() + other.sum()

    ids, other, mask = torch.randint(0, 30, (B, T)), torch.randint(0, 30, (B, T)), torch.ones(B, T)
    mask[1, 4:] = 0
    with regard.watch(model := Towers()) as seen:
        model(ids, other, attention_mask=mask)
    assert torch.equal(seen[0].entropy[:, 0].isnan(), mask == 0)
    assert not seen[1].entropy.isnan().any()
