"""Other people's code in its own process: it returns numbers, never a verdict."""
