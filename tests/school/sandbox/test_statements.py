import ast
import threading
from types import ModuleType

import pytest

from regard.school.sandbox.stand_ins import Unavailable
from regard.school.sandbox.statements import needed, parse, run_statements, time_limit


def ran(source, **options):
    module = ModuleType("homework")
    skipped = run_statements(source, "homework.py", module, **options)
    return vars(module), [(one["line"], one["type"], one["message"]) for one in skipped]


def test_what_stands_after_a_failure_runs():
    names, skipped = ran("x = 1\ny = 1 / 0\nz = 3\ndef f(): return x + z\n")
    assert (names["f"](), skipped) == (4, [(2, "ZeroDivisionError", "division by zero")])


def test_the_line_of_a_failure_is_that_of_the_statement_which_is_skipped():
    _, skipped = ran("def f():\n    int('seven')\n\nfor _ in range(3):\n    f()\n")
    assert skipped == [(5, "ValueError", "invalid literal for int() with base 10: 'seven'")]


def test_the_line_of_a_failure_in_a_class_is_in_the_class():
    _, skipped = ran("class A:\n    x = 3\n    y = 1 / 0\n")
    assert skipped == [(3, "ZeroDivisionError", "division by zero")]


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("raise SystemExit", "SystemExit"),
        ("return 3", "SyntaxError"),
        ("raise E", "E"),
        ("def f(): f()\nf()", "RecursionError"),
        ("x = [0] * 10 ** 18", "MemoryError"),
        ("class A(Missing): pass", "NameError"),
    ],
)
def test_no_failure_ends_the_file(statement, kind):
    odd = "class E(BaseException):\n    def __str__(self): raise KeyError\n"
    names, skipped = ran(f"{odd}{statement}\nlast = lambda: 7\n")
    assert (names["last"](), [one[1] for one in skipped]) == (7, [kind])


def test_a_future_import_is_for_all_statements():
    names, skipped = ran("from __future__ import annotations\ndef f(x: Missing): return 3\n")
    assert (names["f"](1), skipped) == (3, [])


def test_a_name_that_could_not_be_made_says_so_when_it_is_used():
    names, skipped = ran("data = open('input.txt')\nsize = len(data)\ndef f(): return size + 1\n")
    assert [one[1] for one in skipped] == ["FileNotFoundError", "Unavailable"]
    with pytest.raises(Unavailable, match=r"^data, and line 1 fails here: FileNotFoundError: .*'input.txt'$"):
        names["f"]()


def test_a_name_that_was_there_before_stays():
    names, _ = ran("x = 3\nx = 1 / 0\ndef f(): return x\n")
    assert names["f"]() == 3


def test_names_of_a_star_import_that_failed_are_not_here():
    names, skipped = ran("from no_course import *\ndef f(x): return len(helper(x))\n")
    assert [one[1] for one in skipped] == ["ModuleNotFoundError"]
    with pytest.raises(Unavailable, match="no_course, which is not installed here"):
        names["f"]([])


def test_a_cell_with_an_error_of_syntax_is_skipped_alone():
    names, skipped = ran("# %% [cell 1]\nx = 1\n# %% [cell 2]\ny = (\n# %% [cell 3]\ndef f(): return x\n")
    assert (names["f"](), skipped) == (1, [(4, "SyntaxError", "'(' was never closed")])


def test_a_cell_of_an_export_is_run_where_it_stands():
    code = "class A:\n    size = 3\n"
    nodes, _ = parse(f"x = 1\nget_ipython().run_cell_magic('time', '', {code!r})\n", "homework.py")
    assert [(type(one).__name__, one.lineno) for one in nodes] == [("Assign", 1), ("ClassDef", 2)]


def used(source):
    nodes = ast.parse(source).body
    return needed(nodes, [compile(ast.Module([one], []), "f.py", "exec") for one in nodes])


@pytest.mark.parametrize(
    "statement",
    [
        "size = 3",
        "import math as size",
        "size = other = 3",
        "table.append(3)",
        "table[3] = 7",
        "table.three = 7",
        "A.forward = 3",
        "torch.manual_seed(3)",
        "for size in range(3): pass",
        "setattr(A, 'x', 3)",
        "from course import *",
        "if True:\n    def g(): pass",
        "g = lambda x: x",
    ],
)
def test_what_a_definition_reads_and_what_changes_it_is_needed(statement):
    definition = "import torch\nclass A:\n    def forward(self): return size, table, torch\n"
    assert used(f"{definition}{statement}\n") == {0, 1, 2}


@pytest.mark.parametrize(
    "statement",
    [
        "A().forward()",
        "print(size)",
        "x = A()",
        "for x in A(): torch.save(x)",
        "import matplotlib",
        "assert A",
        "y = size",
    ],
)
def test_a_demonstration_is_not_needed(statement):
    definition = "import torch\nsize = 3\nclass A:\n    def forward(self): return size, torch\n"
    assert used(f"{definition}{statement}\n") == {0, 1, 2}


def test_what_is_needed_for_what_is_needed_is_needed():
    assert used("a = 1\nb = a\nc = b\nd = c\ndef f(): return c\n") == {0, 1, 2, 4}


def test_what_no_definition_needs_gets_little_time():
    names, skipped = ran("def f(): return 3\nwhile True: pass\nx = 7\n", spare_seconds=0.05)
    assert (names["f"](), "x" in names) == (3, False)
    assert skipped == [(2, "Stopped", "no class needs it, and it took longer than 2 s")]
    names, skipped = ran("def f(): return 3\nx = 1 / 0\n", spare_seconds=0.0)
    assert skipped == []


def test_an_imported_file_gives_all_its_names():
    names, skipped = ran("x = 7\nprint(1 / 0)\n", spare_seconds=0.0, imported=True)
    assert (names["x"], skipped) == (7, [])


def test_another_thread_has_no_time_limit():
    done = []

    def run():
        with time_limit(0.001):
            done.append(sum(range(100_000)))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert done == [4999950000]


def test_an_import_is_not_ended_half_way(tmp_path, monkeypatch):
    """A package that is there in part fails wherever it is used."""
    (tmp_path / "slow_package.py").write_text("import time\ntime.sleep(0.2)\nwhole = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with time_limit(0.02):
        import slow_package
    assert slow_package.whole
