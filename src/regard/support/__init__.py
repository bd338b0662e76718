"""Helpers that know nothing of attention."""
