import ast
from pathlib import Path

import regard.school.check as room
from benchmarks.check.cases import read_edits
from benchmarks.check.names import END, START, mistake_names, mistakes_table, with_table
from regard.mistakes.search import MISTAKES
from regard.school.check import verdict

PAGE = Path(__file__).parents[3] / "docs" / "check.md"


def test_the_page_lists_every_mistake():
    page = PAGE.read_text(encoding="utf-8")
    assert with_table(page) == page, "python -m benchmarks.check.names docs/check.md writes it"


def test_every_simulated_mistake_and_every_mistake_of_the_corpus_is_listed_once():
    names = [one.name for one in mistake_names()]
    assert len(set(names)) == len(names)
    assert all(one.name in names or one.family in names for one in MISTAKES)
    assert {edit.name for edit in read_edits()} <= set(names)


def test_a_new_mistake_is_listed_where_it_is_made_and_nowhere_else():
    before = mistakes_table().splitlines()
    fake = verdict.known("keys made of wood", "Wood does not attend.", is_warning=True)
    try:
        assert set(mistakes_table().splitlines()) - set(before) == {
            "| keys made of wood | warning | Wood does not attend. |"
        }
        assert fake.found("It knocks.", 3).name == "keys made of wood"
    finally:
        verdict.KNOWN.remove(fake)


def test_no_finding_has_a_name_that_is_not_in_the_list():
    """A finding is without a name, or made by a mistake of the list."""
    for path in Path(room.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_finding = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Finding" and node.args
            if is_finding and isinstance(node.args[0], ast.Constant):
                assert node.args[0].value == "", path


def test_the_table_stands_between_its_marks():
    assert with_table(f"a\n{START}old\n{END}b\n") == f"a\n{START}\n{mistakes_table()}\n{END}b\n"
