"""Layers by strangers, six corpora: right ones are never called wrong, wrong ones never right.

MISSES are the wrong ones that are not called wrong yet; whoever mends one takes it off the list.
"""

import json
from pathlib import Path

import pytest

from benchmarks.check.strangers import layers
from regard.school.check.own_file import check_here
from regard.school.check.request import Request

FOLDER = Path(__file__).parent / "strangers"
MISSES = json.loads((FOLDER / "misses.json").read_text(encoding="utf-8"))
CORPORA = ("", "later", "third", "fourth", "fifth", "sixth")
QUICK = 43  # every so many are in `make test`, but for these
SLOW = 5  # every so many of the others are in `make slow`; all of them are in `make torture`
ALSO = {"002", "010", "031", "037", "110", "163", "179", "194", "213", "226", "231", "238", "241", "248", "250"}


def cases():
    number = 0
    for folder in (FOLDER / name for name in CORPORA):
        for part in ("right", "wrong", "use"):
            for row, source in layers(part, folder):
                number += 1
                name = f"{folder.name}/{part}/{row['file']}"
                is_quick = number % QUICK == 0 or (folder.name == "sixth" and row["file"][1:4] in ALSO)
                others = [pytest.mark.slow, *[pytest.mark.torture] * (number % SLOW > 0)]
                marks = () if is_quick else others
                yield pytest.param(name, row, source, id=name, marks=marks)


@pytest.mark.parametrize(("name", "row", "source"), list(cases()))
def test_a_right_layer_is_never_wrong_and_a_wrong_one_is(name, row, source, tmp_path):
    path = tmp_path / row["file"]
    path.write_text(source, encoding="utf-8")
    statuses = {verdict.status for verdict in check_here(path, "", Request())}
    if row["expected"] == "wrong":
        assert "wrong" in statuses or name in MISSES
    else:
        assert "wrong" not in statuses


def test_every_miss_is_a_layer_of_the_corpus():
    corpora = [(FOLDER / name, part) for name in CORPORA for part in ("right", "wrong", "use")]
    names = {f"{folder.name}/{part}/{row['file']}" for folder, part in corpora for row, _ in layers(part, folder)}
    assert set(MISSES) <= names
