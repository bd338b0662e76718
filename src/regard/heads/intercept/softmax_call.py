"""A softmax that was multiplied with values, as an attention call: where its heads are, and what is cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from regard.heads.calls.axis_roles import (
    FEATURES_AS_QUERIES,
    has_features_as_rows,
    roles_of_scores,
)
from regard.heads.calls.call import Origin, WatchedCall, changed
from regard.heads.calls.head_axis import HeadAxis, declared_heads
from regard.heads.calls.same_keys import fingerprint_of_values
from regard.heads.inputs.positions import OF_FEATURES, are_features
from regard.heads.intercept import functorch, tracked_softmax
from regard.heads.intercept.paths import OwnComputation
from regard.heads.intercept.tracked_softmax import TrackedSoftmax, WeightedProduct

if TYPE_CHECKING:
    from regard.heads.intercept.interceptor import Interceptor


def _find_heads(interceptor: Interceptor, softmax: TrackedSoftmax) -> tuple[HeadAxis | None, str]:
    """Where its heads are, None where it is no attention; and why its weights are not understood, "" where they are."""
    shape, queries, inputs = tuple(softmax.weights.shape), softmax.queries, interceptor.running[0].inputs
    step = softmax.step if softmax.step is not None and softmax.step.shape == shape else None
    if queries is None and interceptor.multihead is None:  # its columns may be experts or features
        if has_features_as_rows(step):
            return None, FEATURES_AS_QUERIES
        of_texts = not softmax.one_query or inputs.batch_size(1) == shape[0]
        if not of_texts or not inputs.may_be_tokens(shape[-1]):
            is_named = len(shape) > 3 and declared_heads([inputs.calls[-1].module]) in shape[:-2]
            why = f"its softmax, {shape}, is over {shape[-1]} columns, which are not as many as tokens"
            return None, why if is_named else ""
    axis = interceptor.find_heads(shape, queries, softmax.heads, lambda: roles_of_scores(step))
    if queries is not None and axis.plan is None and are_features(shape, queries, inputs.given):
        return axis, OF_FEATURES
    return axis, softmax.unknown or axis.unknown or softmax.refusal


def _values_by_head(values: Tensor | None, axis: HeadAxis, sizes: tuple[int, int, int, int]) -> Tensor | None:
    """(B, H, S, D), or with fewer heads that are shared, where the values have the axes of the weights."""
    B, H, _, S = sizes
    if values is None or values.dim() < 3 or values.shape[-2] != S:
        return None
    if values.dim() == 3 and values.shape[0] == B * H and not axis.reorders:
        return values.view(*(axis.split or (B, H)), *values.shape[1:])
    try:
        by_head = values if values.dim() == 4 and axis.split is None and not axis.reorders else axis.apply(values)
    except RuntimeError:  # heads in groups share them
        return None
    return by_head if by_head.shape[0] == B and H % by_head.shape[1] == 0 else None


def report_softmax(interceptor: Interceptor, softmax: TrackedSoftmax, product: WeightedProduct) -> Tensor:
    """A softmax was multiplied with values."""
    if interceptor.is_vmapped():
        return product.out
    axis, unknown = _find_heads(interceptor, softmax)
    if unknown:
        interceptor.refuse(unknown)
    if unknown or axis is None:
        return product.out
    own, basis = softmax.as_own(axis, interceptor.softmaxes.masks)
    with functorch.off():
        values = None if axis.reorders else functorch.plain(product.values)
        marks = fingerprint_of_values(values, own.sizes)
    call = WatchedCall(own, Origin(fingerprint=marks, part=axis.part, basis=basis))
    edits = interceptor.edits()
    interceptor.weight_uses.check_once((own.weights,), edits)
    edit, out = interceptor.edit_of(call, edits), product.out
    interceptor.weight_uses.confirm(softmax, interceptor.module_name(), edit is not None)
    if edit is None and not interceptor.needs_contexts:
        interceptor.report(call)
        return out
    verb = "cut" if edit else "follow"
    with OwnComputation(interceptor, call.device.type), interceptor.errors_naming_the_module(verb):
        rows = product.rows(softmax, axis)
        if edit is not None:
            if edit.removed is not None:
                own, out = tracked_softmax.without_edges(edit, own, softmax, product, rows, axis)
            if edit.replaced:
                own, out = tracked_softmax.with_other_edges(edit, own, softmax, product, rows, axis)
            call = changed(call, attention=own)
            out = product.with_context(out, rows, edit.replace_heads(product.context(out, rows)))
        context = product.context(out, rows)
        if edit is not None:
            interceptor.prove_order(axis, context)
    interceptor.report(call, None, context, _values_by_head(product.values, axis, own.sizes))
    return out
