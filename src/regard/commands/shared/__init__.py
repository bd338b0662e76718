"""Shared by commands: their options, how a head is written, models and texts, runs of a model, files."""
