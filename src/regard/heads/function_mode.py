"""A torch function mode that passes every torch function to its handler, and shows it to those who follow tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

from regard.attention.observers import inside_observed_attention
from regard.traces.failures import explain_call

if TYPE_CHECKING:
    from regard.heads.interceptor import Interceptor


class FunctionMode(TorchFunctionMode):
    """Passes every torch function that Python calls to its handler, while the mode is on."""

    def __init__(self, interceptor: Interceptor) -> None:
        super().__init__()
        self.interceptor = interceptor

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "__get__":  # of a property, such as Tensor.mT
            name = getattr(func.__self__, "__name__", "")
        try:
            if self.interceptor.in_callback or inside_observed_attention():
                return func(*args, **kwargs)
            return self._run(name.partition(".")[0], func, args, kwargs)  # without the overload of an aten operator
        except RuntimeError as error:
            if clearer := explain_call(name, args, error):
                raise clearer from error
            raise

    def _run(self, name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        handler, softmaxes = self.interceptor.handlers.get(name), self.interceptor.softmaxes
        if handler is not None:
            out = handler(func, args, kwargs)
        else:
            out = func(*args, **kwargs)
            if softmaxes.lost and isinstance(out, Tensor):
                softmaxes.pass_on(name, args, kwargs)
        if softmaxes.scores.alive:
            softmaxes.scores.follow(name, args, kwargs, out)
        if self.interceptor.flex is not None:
            self.interceptor.flex.follow(name, args, kwargs, out)
        return out
