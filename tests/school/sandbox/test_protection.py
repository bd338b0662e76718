"""Protection: which layers there are, which are missing, and what can be read."""

import os
from pathlib import Path

import pytest
import torch

import regard
from regard.school.sandbox.protection import (
    LAYERS,
    Protection,
    ProtectionMissing,
    ProtectionReport,
    attempt,
    library_grants,
    library_roots,
)

PACKAGE = Path(regard.__file__).resolve().parent


def test_other_peoples_code_gets_every_layer_and_ones_own_gets_limits():
    assert Protection.for_others().layers == tuple(LAYERS)
    assert Protection.for_others().confined
    assert Protection.for_own_file().layers == ("limits",)
    assert not Protection.for_own_file().confined


def test_a_missing_layer_is_named_with_what_it_is_for():
    report = ProtectionReport(("limits", "calls"), {"files": "Function not implemented"})
    with pytest.raises(ProtectionMissing, match=r"one temporary folder written \(Landlock\): Function not implemented"):
        raise ProtectionMissing(report)


def test_torch_and_the_standard_library_are_among_the_libraries():
    roots = library_roots()
    for file in (torch.__file__, os.__file__):
        assert any(Path(root) in Path(file).resolve().parents for root in roots)


def test_nothing_of_regard_is_granted():
    for path, access in library_grants(Protection.for_others()):
        assert Path(path) not in (PACKAGE, *PACKAGE.parents) or access == 8, path
        assert PACKAGE not in Path(path).parents


def test_an_installed_regard_is_hidden_and_its_neighbours_are_not(tmp_path, monkeypatch):
    for name in ("regard", "torch"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr("regard.school.sandbox.protection.library_roots", lambda: [str(tmp_path)])
    granted = {path for path, access in library_grants(Protection.for_others()) if access != 8}
    assert str(tmp_path / "torch") in granted
    assert str(tmp_path / "regard") not in granted
    assert str(tmp_path) not in granted


def test_what_a_teacher_hides_is_hidden(tmp_path, monkeypatch):
    for name in ("key.json", "helper.py"):
        (tmp_path / name).write_text("7")
    monkeypatch.setattr("regard.school.sandbox.protection.library_roots", lambda: [str(tmp_path)])
    granted = {path for path, _ in library_grants(Protection.for_others(hidden=[tmp_path / "key.json"]))}
    assert str(tmp_path / "helper.py") in granted
    assert str(tmp_path / "key.json") not in granted


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        ("files", "a hidden file could be read"),
        ("calls", "a socket could be opened"),
        ("limits", "time and memory are not limited"),
    ],
)
def test_a_layer_that_refuses_nothing_counts_as_missing(layer, reason):
    assert attempt(layer) == reason
