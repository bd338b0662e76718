"""What was measured, as people read it."""
