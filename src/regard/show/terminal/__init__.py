"""Tables and pictures for a terminal."""
