"""Everything that draws. drawings.py imports all of it; a command that draws a table alone need not wait for torch."""
