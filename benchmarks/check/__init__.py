"""How many known mistakes `regard check` names; cases.py reads the wrong layers, which the tests use too."""
