"""super().__init__() forgotten: recognise it in a module or in torch's error, and say which line is missing.

Without that line a module has none of the dictionaries in which torch keeps its layers. torch notices late, with an
AttributeError about a name that its author never wrote.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from traceback import walk_tb
from types import CodeType, FunctionType
from typing import Any, TypeVar, cast

from torch import nn

from regard.support.arguments import explain_wrong_call

Module = TypeVar("Module", bound=nn.Module)

# What nn.Module.__init__ creates; an error about one of these names is about a module that skipped it.
_CREATED = frozenset(vars(nn.Module()))


def check_initialised(module: nn.Module) -> None:
    """A module and all modules inside it have called super().__init__()."""
    if error := explain_missing_init(module):
        raise error


@contextmanager
def missing_init_explained() -> Iterator[None]:
    """Inside the block, torch's error about a forgotten super().__init__() names the class and the line."""
    try:
        yield
    except Exception as error:
        if clearer := explain_missing_init(error):
            raise clearer from error
        raise


def explain_in_subclasses(cls: type[Module]) -> type[Module]:
    """Decorate a module's class: a subclass that forgets super().__init__() says so where it is constructed.

    >>> @explain_in_subclasses
    ... class Layer(nn.Module):
    ...     pass
    >>> class Mine(Layer):
    ...     def __init__(self):
    ...         self.W_query = nn.Linear(3, 2)
    >>> Mine()  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: Mine.__init__ never called super().__init__(), so torch cannot keep its layers; make super()...

    Only the __init__ of each subclass is wrapped: calls, copies, pickles and compiled code stay as they are.
    """

    def wrap_init(subclass: type[Module], /, **options: Any) -> None:
        super(cls, subclass).__init_subclass__(**options)
        if isinstance(init := vars(subclass).get("__init__"), FunctionType):
            subclass.__init__ = _explained(init)  # type: ignore[method-assign]

    cls.__init_subclass__ = classmethod(wrap_init)  # type: ignore[assignment]
    return cls


def explain_wrong_use(cls: type[Module]) -> type[Module]:
    """Decorate a layer's class: a wrong call of its constructor, and a subclass that forgets super(), are explained."""
    cls.__init__ = explain_wrong_call(cls.__init__)  # type: ignore[method-assign]
    return explain_in_subclasses(cls)


def _explained(init: Callable[..., None]) -> Callable[..., None]:
    @wraps(init)
    def build(self: nn.Module, *args: Any, **kwargs: Any) -> None:
        with missing_init_explained():
            init(self, *args, **kwargs)
        # Only when the outermost __init__ is done: a subclass of the subclass may still call nn.Module.__init__.
        if cast(Any, type(self)).__init__ is build and not _is_initialised(self):
            raise _explain(self, None)

    return build


def explain_missing_init(failed: nn.Module | BaseException) -> ValueError | None:
    """Name the class that forgot super().__init__(), in a module or behind an error of torch; None where none did."""
    if isinstance(failed, nn.Module):
        module = _first_uninitialised(failed)
        return None if module is None else _explain(module, None)
    if not isinstance(failed, AttributeError) or not _is_about_init(str(failed)):
        return None
    module, line = None, None
    for frame, number in walk_tb(failed.__traceback__):
        owner = frame.f_locals.get("self")
        if isinstance(owner, nn.Module) and not _is_initialised(owner):
            module = owner
            if frame.f_code.co_name == "__init__":
                line = (frame.f_code, number)
    return None if module is None else _explain(module, line)


def _is_initialised(module: nn.Module) -> bool:
    return "_modules" in module.__dict__


def _first_uninitialised(module: nn.Module) -> nn.Module | None:
    # Not module.modules(), which fails at the very module that is looked for.
    todo, seen = [module], set()
    while todo:
        module = todo.pop()
        if not _is_initialised(module):
            return module
        if id(module) not in seen:
            seen.add(id(module))
            children = [child for child in module._modules.values() if child is not None]
            todo += reversed(children)  # the first one is looked at first
    return None


def _is_about_init(message: str) -> bool:
    missing = message.partition(" object has no attribute ")[2].split("'")
    return "Module.__init__() call" in message or (len(missing) > 1 and missing[1] in _CREATED)


def _explain(module: nn.Module, line: tuple[CodeType, int] | None) -> ValueError:
    """The error; `line` is where __init__ needed what it had not yet created, if it came so far."""
    inits = [
        (cls.__name__, inspect.unwrap(init).__code__)
        for cls in type(module).__mro__[: type(module).__mro__.index(nn.Module)]
        if isinstance(init := vars(cls).get("__init__"), FunctionType)
    ]
    # Of several classes, the one whose __init__ calls no other __init__; all may do, but too late.
    without = next(((name, code) for name, code in inits if "__init__" not in code.co_names), None)
    if without is None and line is not None:
        owner = next((name for name, code in inits if code is line[0]), type(module).__name__)
        what = f"{owner}.__init__{_place(*line)} uses the module before super().__init__() was called"
    else:
        name, code = without or (inits[0] if inits else (type(module).__name__, None))
        place = "" if code is None else _place(code, code.co_firstlineno)
        what = f"{name}.__init__{place} never called super().__init__()"
    return ValueError(f"{what}, so torch cannot keep its layers; make super().__init__() the first line of __init__")


def _place(code: CodeType, line: int) -> str:
    """File and line, as in " (homework.py:31)"; nothing for code that is in no file, such as a cell of a notebook."""
    if not os.path.isfile(code.co_filename):
        return ""
    path = os.path.relpath(code.co_filename)
    return f" ({code.co_filename if path.startswith('..') else path}:{line})"
