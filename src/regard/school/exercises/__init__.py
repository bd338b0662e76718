"""Exercises: what is asked of a learner, the right answer, the wrong ones by name, and checking an answer."""

from regard.school.exercises.exercise import Fault, Function, Judged, Layer, Picture, Question, Wrong

__all__ = ["Fault", "Function", "Judged", "Layer", "Picture", "Question", "Wrong"]
