"""Commands: one file for each command of `regard`, registered in cli.py.

A file holds the options and help texts, which typer reads from the function's signature, and what the command prints.
It imports torch inside functions only, so that `--help` is quick. models.py loads the models that commands run.
"""
