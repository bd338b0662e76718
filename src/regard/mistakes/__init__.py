"""Mistakes: the formula of attention with each wrong step that people write, and which of them explain an output."""
