"""`regard docs` reads the pages of docs/, which are in the package."""

import fnmatch
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regard.cli import app
from regard.commands.shared.pages import FOLDER, pages
from terminal import in_terminal

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]


def docs(*words):
    return CliRunner().invoke(app, ["docs", *words])


def test_without_a_word_every_page_is_listed_with_what_it_answers():
    result = docs()
    assert result.exit_code == 0
    listed = {line.split()[0] for line in result.output.splitlines() if line.startswith("  ") and line[2] != " "}
    assert {page.stem for page in (ROOT / "docs").glob("*.md")} - {"README"} <= listed
    assert max(map(len, result.output.splitlines())) <= 80


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["nats"], "nats: the unit of entropy"),
        (["heads"], "head: one attention of several"),
        (["softmax"], "softmax: makes numbers of any size positive"),
        (["PSTACP"], "The six steps: PSTACP"),
        (["leak", "hunt"], "causal_mask,"),
        (["watch", "roles"], "Roles"),
        (["watch"], "Watch: what every head does"),
        (["watch.md"], "Watch: what every head does"),
        (["docs/watch.md"], "Watch: what every head does"),
        (["value"], "What is each weight matrix for?"),
        (["sink"], "Statistics"),
        (["checklist"], "The final checklist"),
        (["mnemonic"], "The six steps: PSTACP"),
    ],
    ids=[
        "a unit",
        "a plural",
        "a function",
        "a heading",
        "two words",
        "on one page",
        "a page",
        "a file",
        "a link",
        "where the glossary leads",
        "one of many",
        "a list",
        "a mnemonic",
    ],
)
def test_a_word_shows_its_meaning_and_the_section_about_it(words, shown):
    result = docs(*words)
    assert result.exit_code == 0
    assert shown in result.output
    assert max(map(len, result.output.splitlines())) <= 80


def test_every_command_that_is_named_below_a_section_shows_that_section():
    named = [line for line in docs("mask").output.splitlines() if "regard docs questions 'What does" in line]
    assert len(named) == 1
    heading = docs("questions", "What does the causal mask do?").output.strip().splitlines()[0]
    assert heading.strip() == "What does the causal mask do?"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sofmax"], "no page says 'sofmax'; did you mean softmax"),
        (["layer", "rotari"], "the page layer does not say 'rotari'; did you mean rotary?"),
        (["qqqqq"], "no page says 'qqqqq'; regard docs lists the pages"),
    ],
    ids=["a near word", "on one page", "nothing near"],
)
def test_a_word_that_no_page_says_is_answered_with_near_ones(words, message):
    result = docs(*words)
    assert isinstance(result.exception, ValueError)
    assert str(result.exception).startswith(message)


def test_links_pictures_and_markup_are_not_shown():
    shown = docs("page").output
    assert "](" not in shown
    assert ".png" not in shown
    assert "**" not in shown


def test_the_pages_are_those_of_the_clone_and_the_wheel_takes_every_one_of_them():
    assert FOLDER in (ROOT / "docs", FOLDER.parents[0] / "docs")
    assert {page.stem for page in (ROOT / "docs").glob("*.md")} == {*pages(), "README"}
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert "docs" in wheel["only-include"]
    assert wheel["sources"]["docs"] == "regard/docs"
    needed = ["/docs/card.md", "/docs/card/card.pdf"]
    assert not [one for one in needed for rule in wheel["exclude"] if fnmatch.fnmatch(one, rule)]


def test_a_long_page_is_opened_in_the_pager_of_the_terminal():
    shown = in_terminal("docs", "watch", PAGER="head -n 1")
    assert (shown.status, [line.strip() for line in shown.lines if line.strip()]) == (
        0,
        ["Watch: what every head does"],
    )
