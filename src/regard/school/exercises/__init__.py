"""Exercises: what is asked of a learner, the right answer, the wrong ones by name, and checking an answer."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.school.exercises.parts import Fault, Function, Judged, Layer, Question, Wrong

__all__ = ["Fault", "Function", "Judged", "Layer", "Question", "Wrong"]


def __getattr__(name: str) -> Any:
    """Import a public name on first use: what reads an exercise's files only does not wait for torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module("regard.school.exercises.parts"), name)
    return value
