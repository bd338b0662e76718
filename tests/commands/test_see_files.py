"""The files that `regard see` writes."""

import json
import os
import re

import pytest

from regard.commands.see import see
from regard.commands.see_files import check_files, read_contents


def layers_with_steps(path):
    text = path.read_text(encoding="utf-8")
    page = json.loads(re.search(r'id="regard-document">(.*?)</script>', text, flags=re.DOTALL).group(1))
    return [[i for i, layer in enumerate(one["layers"]) if layer["steps"]] for one in page["reports"]]


@pytest.mark.parametrize(
    ("options", "expected"),
    [({"head": "2.1"}, [[2]]), ({"steps": "4,1"}, [[1, 4]]), ({"steps": "all"}, [[0, 1, 2, 3, 4, 5]])],
    ids=["the layer of the head", "chosen layers", "all"],
)
def test_a_page_has_the_steps_of(options, expected, tmp_path):
    see("The cat sat", output=str(tmp_path / "page.html"), **options)
    assert layers_with_steps(tmp_path / "page.html") == expected


def test_the_ladder_is_a_page_with_the_steps_of_each_rung(tmp_path, capsys):
    see(ladder=True, output=str(tmp_path / "ladder.html"))
    assert layers_with_steps(tmp_path / "ladder.html") == [[0]] * 4
    assert capsys.readouterr().out == f"\n  Wrote {tmp_path / 'ladder.html'}\n"
    with pytest.raises(ValueError, match=r"^--ladder is a page; add -o ladder\.html"):
        see(ladder=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": "7"}, r"^--steps 7: there is no layer 7; the model has layers 0 to 5$"),
        ({"steps": "one"}, r"^--steps one must be numbers of layers, such as 1,4; or all$"),
        ({"exact": "4"}, r"^--exact 4 must be heads, such as 4\.3, head 3 of layer 4; or several: 4\.3,0\.2$"),
        ({"exact": "4.3,4.11"}, r"^--exact 4\.11: head 11 does not exist"),
    ],
)
def test_what_a_page_cannot_hold_is_refused_and_nothing_is_written(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        see("The cat sat", output=str(tmp_path / "page.html"), **options)
    assert list(tmp_path.iterdir()) == []


def test_several_heads_can_be_exact():
    assert read_contents(None, "4.3, 0.2", "page.html").exact == [(4, 3), (0, 2)]
    with pytest.raises(ValueError, match=r"^--exact 4\.3 is about a page; add -o page\.html$"):
        read_contents(None, "4.3", None)


def test_a_directory_without_permission_is_refused_first(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(ValueError, match=r"^-o .*page\.html: the directory .* is not writable; choose another$"):
        check_files(str(tmp_path / "page.html"), None, opens=False)
