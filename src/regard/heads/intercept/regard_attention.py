"""regard's own attend(), which calls an observer for every attention."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from torch import Tensor

from regard.attention.call import Call
from regard.attention.observers import Edit, Route, inside_observed_attention, observe
from regard.heads.calls.call import WatchedCall
from regard.heads.calls.edits import CallEdit
from regard.heads.intercept.paths import AROUND_FORWARD, OwnComputation

if TYPE_CHECKING:
    from regard.heads.intercept.interceptor import Interceptor


class _AttendEdit:
    """Changes one call of regard's attend(), and reports it."""

    def __init__(self, interceptor: Interceptor, call: Call, edit: CallEdit | None) -> None:
        self.interceptor, self.call, self.edit = interceptor, call, edit

    def context(self, context: Tensor) -> Tensor:
        return self.interceptor.finish(WatchedCall(self.call), self.edit, context)

    def weights(self, weights: Tensor) -> Tensor:
        if self.edit is None:
            return weights
        with OwnComputation(self.interceptor, self.call.device.type):
            return self.edit.replace_weights(weights, self.call)


def report_attend(interceptor: Interceptor, call: Call, route: Route) -> Edit | None:
    if inside_observed_attention() or interceptor.is_vmapped():  # the first: it is part of another attention call
        return None
    watched = WatchedCall(call)
    if interceptor.origins is not None:
        interceptor.origins.ask(call.q, call.k)
    edit = interceptor.edit_of(watched, interceptor.edits())
    if edit is not None or interceptor.needs_contexts:
        return _AttendEdit(interceptor, call, edit)
    interceptor.report(watched.detached())
    return None


AROUND_FORWARD.append(lambda interceptor: observe(partial(report_attend, interceptor)))
