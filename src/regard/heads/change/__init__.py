"""Switching heads off, and what that costs."""
