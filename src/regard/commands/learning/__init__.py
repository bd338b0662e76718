"""The parts of `regard learn`: the list to choose from, watch mode, the table of a class, verification."""
