"""Commands: one file for each command of `regard`. cli.py wires them."""
