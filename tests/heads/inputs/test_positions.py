"""Where queries stand among keys: from the call, from the mask, assumed, or not known; then nothing is measured."""

import pytest
import torch
from torch import nn

import regard
from heads.dense import random_call
from regard.attention.masks import causal, dense, window
from regard.heads.calls.basis import How
from regard.heads.calls.score_origin import Memory
from regard.heads.inputs.module_call import Given, KeySource, given_to, is_given_image
from regard.heads.inputs.positions import are_features, has_length, positions_of

B, T, S, E = 2, 5, 11, 24
DIAGONAL = torch.ones(T, S).tril(S - T).bool()


@pytest.mark.parametrize(
    ("sizes", "given", "mask", "how"),
    [
        ((T, T), Given((B, T, E)), None, How.CALL),
        ((T, T), Given((T, B, E)), None, How.CALL),
        ((T, T), Given(), None, How.CALL),
        ((12, 12), Given((B, 3, 4, E)), None, How.CALL),  # an image, rows × columns
        ((T, S), Given((B, T, E), cached=True, keys=(S,)), None, How.CALL),
        ((T, S), Given((B, T, E), cached=True, keys=(S - 1,)), None, How.UNKNOWN),
        ((T, S), Given((B, T, E), cached=True), None, How.ASSUMED),  # a cache that does not say how long it is
        ((T, S), Given((B, T, E), cached=True), dense(DIAGONAL.tril(S - T - 1)), How.UNKNOWN),  # and has more room
        ((T, S), Given((B, T, E)), causal(), How.MASK),
        ((T, S), Given((B, T, E)), dense(DIAGONAL), How.MASK),
        ((T, S), Given((B, T, E)), dense(DIAGONAL.flip(0)), How.UNKNOWN),
        ((T, S), Given((B, T, E)), None, How.UNKNOWN),
        ((S, T), Given((B, S, E)), None, How.UNKNOWN),  # pooled keys
        ((1, S), Given((B, S, E)), None, How.UNKNOWN),  # a chosen query
        ((T, T), Given((1, B * T, E)), None, How.ASSUMED),  # in blocks
        ((T, 3 * T), Given((1, B * T, E)), None, How.UNKNOWN),  # in blocks, with the keys of three
        ((4, 16), Given((B, 4, 4, E)), None, How.UNKNOWN),  # queries that are pooled from an image
        ((4, 16), Given((B, E, 4, 4)), None, How.UNKNOWN),
        ((T, T), Given((B, 4, T, 7)), None, How.CALL),  # heads
    ],
)
def test_how_positions_are_known(sizes, given, mask, how):
    call = random_call(B, 3, *sizes, **({} if mask is None else {"mask": mask}))
    assert positions_of(call, given, is_known=False).how is how
    assert positions_of(call, given, is_known=True).how is How.CALL


def test_a_window_ends_on_the_diagonal_as_well():
    call = random_call(B, 3, T, S, mask=causal() & window(3))
    assert positions_of(call, Given((B, T, E)), is_known=False).how is How.MASK


def test_where_a_module_is_given_two_texts_the_last_query_need_not_be_at_the_last_key():
    call = random_call(B, 3, T, S)
    assert positions_of(call, Given((B, T, E)), False, KeySource("context", S)).how is How.UNKNOWN

    class ItselfAndContext(nn.Module):
        """As in CrossViT: keys are the text itself and another one."""

        def forward(self, x, context):
            keys = torch.cat([x, context], 1)
            return (x @ keys.mT / 5).softmax(-1) @ keys

    with regard.watch(model := ItselfAndContext()) as seen:
        model(torch.randn(B, T, E), torch.randn(B, S, E))
    assert seen[0].marks == (f"positions unknown: {T} queries attend to {T + S} keys, which may be of two texts",)
    assert seen[0].self.isnan().all()


def test_where_a_module_is_given_two_texts_of_one_length_that_keys_are_the_queries_own_is_assumed():
    text, other = torch.randn(B, T, E), torch.randn(B, T, E)
    with regard.watch(model := Context()) as seen:
        model(text, other)
    said = f"positions assumed: queries and keys are the same text; the module was given two inputs of {T} tokens"
    assert seen[0].marks == (said,)
    layer = nn.MultiheadAttention(E, 2, batch_first=True)
    for key, marks in ((other, (said,)), (text, ())):
        with regard.watch(layer) as seen:
            layer(text, key, key)
        assert seen[0].marks == marks


def test_weights_between_features():
    given, channels_last = Given((B, 16, 32)), (512, 8, 1, 32)
    assert are_features((B, 4, 8, 8), Memory((B, 4, 8, 16), channels_last), given)
    assert not are_features((B, 4, 16, 16), Memory((B, 4, 16, 8), (512, 8, 32, 1)), given)
    assert not are_features((B, 4, 8, 16), Memory((B, 4, 8, 16), channels_last), given)
    assert not are_features((B, 3, 8, 8), Memory((B, 3, 8, 16), channels_last), given)  # 3 · 8 of 32 features
    square = Given((B, 8, 32))  # 8 tokens, 4 heads of 8 features
    assert are_features((B, 4, 8, 8), Memory((B, 4, 8, 8), (256, 8, 1, 32)), square)
    assert not are_features((B, 4, 8, 8), Memory((B, 4, 8, 8), (256, 8, 32, 1)), square)
    convolved = Given((B, 32, 8))  # channels first, as in SqueezeBERT
    assert not are_features((B, 4, 8, 8), Memory((B, 4, 8, 8), (256, 64, 1, 8)), convolved)


def test_what_a_module_is_given():
    x, text, image = torch.zeros(B, T, E), torch.zeros(B, T).long(), torch.zeros(B, 3, 8, 8)
    assert given_to((x, text), {}) == Given((B, T, E))
    assert given_to((), {"input_ids": text, "past_key_values": object()}) == Given((B, T, 1), cached=True)
    assert [has_length(one, T) for one in (x, text, image, None)] == [True, True, False, False]
    assert is_given_image((image,), {})
    assert not is_given_image((), {"input_ids": text, "pixel_values": image})


class InBlocks(nn.Module):
    """Each block of tokens attends to itself and to its neighbours, as in LongT5."""

    num_heads = 1

    def forward(self, x):
        blocks = x.unflatten(1, (-1, T))  # (B, n, T, E)
        around = torch.cat([blocks.roll(1, 1), blocks, blocks.roll(-1, 1)], 2)
        return ((blocks @ around.mT).softmax(-1) @ around).flatten(1, 2)


def test_without_positions_nothing_that_compares_them_is_measured():
    x = torch.randn(B, 4 * T, E)
    with regard.watch(model := InBlocks()) as seen:
        model(x)
    (layer,) = seen
    for name in ("distance", "previous", "self", "next", "sink"):
        assert getattr(layer, name).isnan().all()
    assert not layer.entropy.isnan().any()
    assert layer[0].histogram.isnan().all()
    assert layer.basis.positions.how is How.UNKNOWN


class Pooled(nn.Module):
    """The first token attends to all, as in the last layers of CaiT."""

    num_heads = 1

    def forward(self, x):
        return (x[:, :1] @ x.mT / 5).softmax(-1) @ x


def test_the_position_of_a_chosen_query_is_not_guessed():
    with regard.watch(model := Pooled()) as seen:
        model(torch.randn(B, S, E))
    assert seen[0].self.isnan().all()
    assert seen[0].marks == (
        f"positions unknown: {B} × 1 query attends to {S} keys, computed from an input of {B} × {S} × {E}",
    )


class Context(nn.Module):
    def forward(self, x, context):
        return (x @ context.mT / 5).softmax(-1) @ context


def test_a_context_that_is_passed_by_position_is_cross_attention():
    with regard.watch(model := Context()) as seen:
        model(torch.randn(B, T, E), torch.randn(B, S, E))
    assert seen[0].record.across
    assert seen[0].distance.isnan().all()
