"""Old module names are the same modules, with a warning that names the new one."""

import importlib
import sys

import pytest

from regard.support.moved import MOVED


@pytest.mark.parametrize("old", [*MOVED, "regard.grading.key", "regard.sandbox.limits"])
def test_an_old_name_is_the_same_module_and_says_its_new_name(old, monkeypatch):
    package = ".".join(old.split(".")[:2])
    for name in {old, package}:
        monkeypatch.delitem(sys.modules, name, raising=False)
    new = old.replace(package, MOVED[package])
    with pytest.warns(DeprecationWarning, match="the old name goes in 0.3") as warned:
        module = importlib.import_module(old)
    assert str(warned[-1].message) == f"{old} is {new} now; the old name goes in 0.3"
    assert module is importlib.import_module(new)
    assert module.__spec__.name == module.__name__ == new


def test_classes_do_not_exist_twice():
    sys.modules.pop("regard.exercises", None)
    with pytest.warns(DeprecationWarning, match=r"regard\.school\.exercises now"):
        from regard.exercises import Function
    from regard.school.exercises import Function as Same

    assert Function is Same


def test_other_names_are_not_found():
    with pytest.raises(ModuleNotFoundError, match=r"regard\.nowhere"):
        importlib.import_module("regard.nowhere")
