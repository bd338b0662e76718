"""Intercept every attention call of a model while it runs, to read it or to change what it returns.

Three mechanisms, active only in the thread that watches: a torch function mode sees scaled_dot_product_attention,
FlexAttention and softmax followed by a product; a replaced nn.Module.__call__ knows which module runs; regard's
attend() calls an observer. Compiled models run eagerly meanwhile, in every thread. What runs in backward, such as the
recomputation of a checkpoint, is not a forward.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from regard.heads.calls.edits import Editor
from regard.heads.inputs.model_inputs import InputTracker
from regard.heads.inputs.user_texts import Given
from regard.heads.intercept import flex, regard_attention, sdpa, softmax, torch_nn  # noqa: F401  each registers itself
from regard.heads.intercept.interceptor import Interceptor
from regard.heads.intercept.paths import PATCHES, current_interceptor
from regard.heads.intercept.torch_patches import Patch, Patches
from regard.heads.intercept.watched_model import Callback, Forwards, WatchedModel

INTERCEPTED = (
    "scaled_dot_product_attention, torch.nn.MultiheadAttention, FlexAttention, regard's own attention, "
    "and softmax over the last axis of a (…, T, S) tensor followed by a matrix product"
)


@contextmanager
def intercept(
    model: nn.Module,
    callback: Callback | None = None,
    *,
    editor: Editor | None = None,
    contexts: bool = False,
    tokens: Given = None,
    padding: Given = None,
) -> Iterator[Forwards]:
    """Call `callback(forward, layer, call)` right after each attention call that the model makes inside the block.

    editor: changes what the calls return; what it changes is done before any callback. contexts: the callback's calls
    have `context`, what each head handed over. `forward` counts calls of the model, or of a part of it that is called
    by itself; `layer` counts attention calls within one. tokens: (B, T) ids, where the model's own arguments do not
    contain them. padding: (B, T), True = a real token. Both may be dicts of such tensors by the names of modules.
    """
    watched = WatchedModel(model, InputTracker(tokens, padding), callback, editor, contexts)
    _refuse_torchscript(watched)
    interceptor = current_interceptor.get() or Interceptor()
    with _patches.applied(), current_interceptor.set(interceptor):
        interceptor.models.append(watched)
        try:
            yield watched.forwards
        finally:
            interceptor.remove(watched)
    if not watched.forwards.count:
        raise ValueError(
            "the model was not called inside the block; call it there, in the same thread (or asyncio task)"
        )
    if not watched.forwards.calls:
        raise ValueError(
            f"{type(model).__name__} made no attention that can be seen; looked for {INTERCEPTED}. "
            f"{watched.refusals() or 'Attention that is written otherwise is seen once it calls one of these'}"
        )
    watched.inputs.check_used()


def _intercepting_call(original: Any) -> Any:
    def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        interceptor = current_interceptor.get()
        if interceptor is None or not interceptor.models or interceptor.in_callback:
            return original(self, *args, **kwargs)
        if id(self) in interceptor.leaves:
            return interceptor.call_leaf(original, self, args, kwargs)
        return interceptor.call_module(original, self, args, kwargs)

    return __call__


_patches = Patches([Patch(nn.Module, "__call__", _intercepting_call), *PATCHES])


def _refuse_torchscript(watched: WatchedModel) -> None:
    for module, name in watched.names.values():
        if isinstance(module, torch.jit.ScriptModule):
            raise ValueError(
                f"{name or 'the model'} is TorchScript, which cannot be intercepted; watch the module it was made from"
            )
