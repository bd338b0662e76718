"""Functions in TorchScript, which run as a whole: what they compute is not seen, so attention inside is refused."""

from __future__ import annotations

from functools import lru_cache, wraps
from typing import Any

import torch

from regard.heads.intercept.paths import PATCHES, Patch, active_interceptor

_ATTENTION = ("aten::softmax", "aten::_softmax", "aten::scaled_dot_product_attention")


@lru_cache(maxsize=256)
def attends(function: Any) -> bool:
    """Is there a softmax in this function?"""
    graph = str(function.inlined_graph)
    return any(name in graph for name in _ATTENTION)


def _naming_attention(original: Any) -> Any:
    @wraps(original)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        out = original(self, *args, **kwargs)
        interceptor = active_interceptor()
        if interceptor is not None and attends(self):
            interceptor.refuse(f"it calls {self.name}, which is TorchScript and cannot be intercepted")
        elif interceptor is not None and interceptor.records:
            with torch._C.DisableTorchFunction():
                interceptor.lineage.record("script", self, args, kwargs, out)
        return out

    return __call__


PATCHES.append(Patch(torch.jit.ScriptFunction, "__call__", _naming_attention))
