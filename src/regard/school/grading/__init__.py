"""Grading: the submissions of a class, each checked in a sandbox."""
