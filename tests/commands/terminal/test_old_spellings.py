"""The options that `regard see` had, and what to type now."""

import shlex
import sys

import pytest

from regard.cli import main
from regard.commands.terminal.old_spellings import new_spelling


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("'The cat' -o page.html", "regard page 'The cat' -o page.html"),
        ("'The cat' -opage.html --open", "regard page 'The cat' -o page.html --open"),
        ("--output=head.svg --head 4.3 --json", "regard page --output head.svg --head 4.3"),
        (
            "a.txt --steps 1,4 --exact 4.3 --effect -o a.html",
            "regard page a.txt --steps 1,4 --exact 4.3 --effect -o a.html",
        ),
        ("--ladder -o ladder.html", "regard page --ladder -o ladder.html"),
        ("'The cat' --against 'The dog' --head 4.3", "regard compare 'The cat' 'The dog' --head 4.3"),
        ("--against -", "regard compare TEXT -"),
        ("a.txt --against-model runs/b --all", "regard compare a.txt --model tiny --model runs/b --all"),
        ("--model runs/a --against-model runs/b", "regard compare --model runs/a --model runs/b"),
        ("--layer 4 --head 3 --against-head 0.2", "regard compare --head 4.3 --head 0.2"),
        ("--against-head 0.2", "regard compare --head HEAD --head 0.2"),
        ("--cut 0.2,4.3 --to mean", "regard compare --cut 0.2,4.3 --to mean"),
        ("- --cut 0.2 -o cut.html --json", "regard compare - --cut 0.2 -o cut.html"),
    ],
)
def test_an_old_command_is_answered_with_the_new_one(old, new, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["regard", "see", *shlex.split(old)])
    with pytest.raises(SystemExit, match="2"):
        main()
    out, error = capsys.readouterr()
    assert (out, len(error.splitlines())) == ("", 1)
    assert error.endswith(f": {new}\n")


def test_other_options_were_never_there():
    assert new_spelling("--colour", ["--colour"]) is None
