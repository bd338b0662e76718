"""How verdicts, grades and lessons look in a terminal."""
