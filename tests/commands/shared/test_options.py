"""Options that commands share."""

import pytest

from regard.commands.shared.options import check_max_tokens, command_line, refuse


def test_the_next_command_reads_the_same():
    assert command_line("see", None) == "regard see"
    assert command_line("compare", "The cat", "-", max_tokens=7) == "regard compare 'The cat' - --max-tokens 7"
    assert command_line("page", "a.txt", model="my runs/a") == "regard page a.txt --model 'my runs/a'"


def test_only_options_that_were_typed_are_refused():
    refuse({"--head": None, "--open": False}, "why", "remedy")
    with pytest.raises(ValueError, match=r"^--layer and --all cannot be used here: why; remedy$"):
        refuse({"--head": None, "--layer": 0, "--all": True}, "why", "remedy")


def test_a_text_needs_tokens():
    check_max_tokens(None)
    check_max_tokens(2, least=2)
    with pytest.raises(ValueError, match=r"^--max-tokens 1 must be at least 2: for a reason$"):
        check_max_tokens(1, least=2, why=": for a reason")
