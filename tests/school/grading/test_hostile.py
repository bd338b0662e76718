"""A class of hostile submissions through `regard grade`, as one user and as another. At length: make torture."""

import os
import shutil
import sys

import pytest

from school.grading.hostile import make_class
from school.grading.hostile_files import NAMES, ODD_FILES
from school.grading.hostile_layers import LAYERS
from school.grading.torture import PACKAGE, torture, unprintable, wrong_csv, wrong_grades, wrong_html
from school.sandbox.conftest import kernel_has_every_layer
from school.sandbox.torture import closed_to_others, make_victim

needs_layers = pytest.mark.skipif(not kernel_has_every_layer(), reason="this system lacks a layer of protection")
needs_nobody = pytest.mark.skipif(
    not hasattr(os, "getuid") or os.getuid() != 0 or not shutil.which("setpriv") or not shutil.which("unshare"),
    reason="only root can become an ordinary user, by setpriv and unshare",
)


def broken(found):
    # Others may work in /tmp while this runs; `make torture` counts that, too.
    return [one for one in found.broken if not one.startswith("changed elsewhere")]


@pytest.mark.slow
@needs_layers
def test_thirty_hostile_submissions_get_a_verdict_and_change_nothing():
    found = torture(30, seed=3, limit=6.0, workers=None)
    assert broken(found) == []
    assert len(found.grades) == 30


@pytest.mark.slow
@needs_layers
@needs_nobody
def test_the_same_holds_for_an_ordinary_user():
    if any(map(closed_to_others, (sys.prefix, PACKAGE))):
        pytest.skip("an ordinary user cannot read these files")
    found = torture(12, seed=5, limit=6.0, workers=None, nobody=True)
    assert broken(found) == []
    assert len(found.grades) == 12


def test_a_class_of_500_has_every_odd_file_every_layer_and_every_name(tmp_path):
    (tmp_path / "class").mkdir()
    made = make_class(tmp_path / "class", make_victim(tmp_path / "victim"), 500, 7, os.getpid(), PACKAGE)
    (tmp_path / "class" / "closed").chmod(0o700)
    assert len(made) == len(os.listdir(tmp_path / "class")) == 500
    assert set(made.values()) >= {*LAYERS, *(f"file: {name}" for name in ODD_FILES)}
    assert all(any(name.startswith(one) for name in made) for one in NAMES)


def test_what_must_not_be_is_found():
    assert unprintable("stdout", "red \x1b[31m\n") == [r"stdout has ['\x1b']"]
    assert unprintable("stdout", "plain\n") == []
    assert wrong_csv("a,'=1,b\n=1,a;@x,c\n") == ["a formula: '=1'", "a formula: 'a;@x'"]
    assert wrong_html("<p style='x'>&lt;b&gt;</p>") == []
    assert wrong_html("<b>")[0].startswith("markup: 'b")
    assert "onclick" in wrong_html("<p onclick=x>")[0]
    assert wrong_html("<!-- x -->") == ["markup: 'a comment:  x '"]
    grade = {"submission": "a.py", "status": "right", "checked": "A", "problem": "", "mistakes": [], "seconds": 1.0}
    assert wrong_grades({"a.py": "an attack"}, [grade], 1.0) == ["an attack: right: A"]
    assert wrong_grades({"a.py": "an attack"}, [grade | {"status": "wrong"}], 1.0) == []
    assert wrong_grades({"a.py": "honest: right"}, [grade], 1.0) == []
    assert wrong_grades({"a.py": "x", "b.py": "y"}, [grade], 1.0) == ["no verdict: ['b.py']"]
    slow = wrong_grades({"a.py": "x"}, [grade | {"status": "wrong", "seconds": 99.0}], 1.0)
    assert slow == ["x: it took 99.0 s: []"]
