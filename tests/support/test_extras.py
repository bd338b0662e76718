"""How an extra is installed from where a person is."""

import sys
from pathlib import Path

import pytest

from regard.support.extras import EXTRAS, how_to_install

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@pytest.mark.parametrize("extra", EXTRAS)
def test_in_a_clone_an_extra_has_its_name_and_elsewhere_its_packages(extra, tmp_path, monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[2])
    assert how_to_install(extra) == f'pip install ".[{extra}]"'
    monkeypatch.chdir(tmp_path)
    assert how_to_install(extra) == f"pip install {' '.join(EXTRAS[extra])}"
    Path("pyproject.toml").write_text('name = "another"')
    assert how_to_install(extra) == f"pip install {' '.join(EXTRAS[extra])}"


def test_the_packages_are_those_of_the_extras():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    stated = {name: tuple(one.partition(">")[0] for one in project["optional-dependencies"][name]) for name in EXTRAS}
    assert stated == EXTRAS
