"""Commands: one file for each command of `regard`, registered in cli.py; to add one, touch these two.

A file holds the options and help texts, which typer reads from the function's signature, and what the command prints.
It imports torch inside functions only, so that `--help` is quick. shared/ has what several commands read and write:
options, heads, texts, models, runs, files. terminal/ has what surrounds them: keys, Ctrl-C, progress, usage errors.
"""
