"""What kind of attention a call is: which axis holds its heads, and whether its rows and columns are tokens at all.

A softmax that is multiplied with something may also mix experts, features or the words of a vocabulary. What is no
attention is not reported; attention whose weights are not understood is refused, with the reason.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from regard.heads.calls.basis import How
from regard.heads.calls.head_axis import HeadAxis, declared_heads, find_head_axis
from regard.heads.calls.score_origin import Memory
from regard.heads.inputs.positions import are_features
from regard.heads.intercept.torch_nn import MultiheadShape
from regard.heads.intercept.tracked_softmax import TrackedSoftmax
from regard.heads.intercept.watched_model import WatchedModel

OF_FEATURES = "its weights are between features, not between tokens"
_HEADS_SECOND = HeadAxis()


class Kind(NamedTuple):
    """Where the heads of a call are. unknown: why its weights are not understood. It may be no attention at all."""

    axis: HeadAxis = _HEADS_SECOND
    unknown: str = ""
    is_attention: bool = True


def kind_of_sdpa(model: WatchedModel, inside: MultiheadShape | None, query: Tensor, key: Tensor) -> Kind:
    """A call of scaled_dot_product_attention; inside: of this F.multi_head_attention_forward."""
    if query.is_nested:
        return Kind()
    axis = _HEADS_SECOND
    if not query.dim() == key.dim() == 4 or model.heads not in (None, query.shape[1]):
        axis = _find_heads(model, inside, *layout_of(query, key), None, True)
    memory = Memory(tuple(query.shape), query.stride())
    if are_features((*query.shape[:-1], key.shape[-2]), memory, model.inputs.given):
        return Kind(axis, OF_FEATURES)
    return Kind(axis, axis.fact.reason if axis.fact.how is How.UNKNOWN else "")


def layout_of(query: Tensor, key: Tensor) -> tuple[tuple[int, ...], Memory]:
    """The sizes (…, T, S) of the weights, and how the queries lie in memory."""
    lead = max(query.shape[:-2], key.shape[:-2], key=lambda shape: (len(shape), shape))
    memories = [Memory(tuple(t.shape), t.stride()) for t in (query, key)]
    queries = next((one for one in memories if one.heads_axis is not None), memories[0])  # pooled queries are copies
    return (*lead, query.shape[-2], key.shape[-2]), queries


def kind_of_softmax(model: WatchedModel, inside: MultiheadShape | None, softmax: TrackedSoftmax) -> Kind:
    """A softmax that was multiplied with values; inside: of this F.multi_head_attention_forward."""
    shape, queries = tuple(softmax.weights.shape), softmax.queries
    of_texts = not softmax.one_query or model.inputs.batch_size(1) == shape[0]
    # Without scores the columns may be experts or features; keys are as many as tokens.
    if queries is None and inside is None and not (of_texts and model.inputs.may_be_tokens(shape[-1])):
        is_named = len(shape) > 3 and declared_heads([model.calls[-1].module]) in shape[:-2]
        said = f"its softmax, {shape}, is over {shape[-1]} columns, which are not as many as tokens"
        return Kind(unknown=said if is_named else "", is_attention=False)
    axis = _find_heads(model, inside, shape, queries, softmax.heads)
    if queries is not None and are_features(shape, queries, model.inputs.given):
        return Kind(axis, OF_FEATURES)
    unknown = softmax.unknown or (axis.fact.reason if axis.fact.how is How.UNKNOWN else "")
    if not unknown and softmax.is_fragment:
        unknown = f"only {shape[-1]} of its {softmax.columns} columns are multiplied at once"
    if not unknown and softmax.is_signed:
        unknown = "some of its weights are negative"
    return Kind(axis, unknown)


def _find_heads(
    model: WatchedModel,
    inside: MultiheadShape | None,
    shape: tuple[int, ...],
    q: Memory | None,
    viewed: tuple[int, int] | None,
    by_convention: bool = False,
) -> HeadAxis:
    """Which axis of a call, (…, T, S), holds its heads."""
    T, inputs = shape[-2], model.inputs
    if inside is not None:
        viewed = viewed or (inside.batch, inside.heads)
    batch = inside.batch if inside is not None else inputs.batch_size(T)
    return find_head_axis(shape, model.heads, batch, viewed, q, by_convention, inputs.given.texts_of(T))
