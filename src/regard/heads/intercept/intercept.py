"""Intercept every attention call of a model while it runs, to read it or to change what it returns.

Three mechanisms, active only in the thread that watches: a torch function mode passes each torch function to its
handler, by name; a replaced nn.Module.__call__ knows which module runs; regard's attend() calls an observer. The mode
is off where a module of torch.nn may take its fast path, which it does not take under a mode. Watches read a call, and
cuts change what it returns: first all cuts, then all watches, whatever the order of their blocks. What runs in
backward, such as the recomputation of a checkpoint, is not a forward.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.utils.checkpoint
from torch import nn

from regard.heads.calls.edits import Editor
from regard.heads.inputs.model_inputs import InputTracker
from regard.heads.inputs.user_texts import Given
from regard.heads.intercept import flex, functorch, paths, regard_attention, scripted, sdpa, torch_nn  # noqa: F401  all
from regard.heads.intercept.interceptor import Interceptor
from regard.heads.intercept.paths import current_interceptor
from regard.heads.intercept.watched_model import Callback, Dropped, Forwards, WatchedModel

INTERCEPTED = (
    "scaled_dot_product_attention, torch.nn.MultiheadAttention, FlexAttention, regard's own attention, "
    "and softmax of a (…, T, S) tensor, over whatever axis, followed by a matrix product"
)
OTHERWISE = "Attention that is written otherwise is seen once it calls one of these"


@contextmanager
def intercept(
    model: nn.Module,
    callback: Callback | None = None,
    *,
    editor: Editor | None = None,
    contexts: bool = False,
    tokens: Given = None,
    padding: Given = None,
    dropped: Dropped | None = None,
) -> Iterator[Forwards]:
    """Call `callback(forward, layer, call)` right after each attention call that the model makes inside the block.

    editor: changes what the calls return; what it changes is done before any callback. contexts: the callback's calls
    have `context`, what each head handed over. `forward` counts calls of the model, or of a part of it that is called
    by itself; `layer` counts attention calls within one. tokens: (B, T) ids, where the model's own arguments do not
    contain them. padding: (B, T), True = a real token. Both may be dicts of such tensors by the names of modules.
    dropped: called as `dropped(forward, layer)` where a module raised an error, which may be caught: the calls of this
    forward, from this layer on, count for nothing.
    """
    watched = WatchedModel(model, InputTracker(tokens, padding), callback, editor, contexts, dropped)
    for module, name in watched.names.values():
        if isinstance(module, torch.jit.ScriptModule):
            raise ValueError(
                f"{name or 'the model'} is TorchScript, which cannot be intercepted; watch the module it was made from"
            )
    outer = current_interceptor.get()
    # Each block has its own: asyncio tasks that are started inside one block must not see each other's blocks. A block
    # that is opened while a model runs joins the one that intercepts it.
    interceptor = outer if outer is not None and outer.running else Interceptor(() if outer is None else outer.models)
    with _patches.applied(), current_interceptor.set(interceptor):
        interceptor.models.append(watched)
        try:
            yield watched.forwards
        finally:
            watched.is_open = False  # interceptors of blocks inside may outlive this one
            interceptor.models.remove(watched)
            interceptor.find_running()
    if not watched.forwards.count:
        remedy = "call it there, in the same thread (or asyncio task)"
        raise ValueError(f"the model was not called inside the block; {remedy}")
    if watched.forwards.failed == watched.forwards.count:
        raise ValueError("the model raised an error whenever it was called inside the block, so nothing is reported")
    if not watched.forwards.calls and watched.refused.keys() != {paths.NO_VALUES}:  # of that, a warning is enough
        why = "; ".join(watched.refusals().values()) or OTHERWISE
        raise ValueError(f"{type(model).__name__} made no attention that can be seen; looked for {INTERCEPTED}. {why}")
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


_patches = paths.Patches([paths.Patch(nn.Module, "__call__", _intercepting_call), *paths.PATCHES])
