"""`regard page`: a page or a figure of what the heads of a model do."""

import json
import re

import pytest

from regard.commands.page import page


def document(path):
    text = path.read_text(encoding="utf-8")
    return json.loads(re.search(r'id="regard-document">(.*?)</script>', text, flags=re.DOTALL).group(1))


def layers_with_steps(path):
    return [[i for i, layer in enumerate(one["layers"]) if layer["steps"]] for one in document(path)["reports"]]


def test_a_page_of_a_token_begins_with_it_in_the_head_that_says_most(tmp_path):
    page("The cat sat on the mat", output=str(tmp_path / "page.html"), token="sat")
    start = {"layer": 2, "head": 1, "view": "head", "side": "query", "focus": 2, "pinned": True}
    assert document(tmp_path / "page.html")["start"] == start


def test_a_figure_of_a_token_is_another_than_that_of_a_head(tmp_path):
    for name, options in {"sat.svg": {"token": "sat"}, "on.svg": {"token": "on"}, "head.svg": {}}.items():
        page("The cat sat on the mat", output=str(tmp_path / name), **options)
    texts = [(tmp_path / name).read_text() for name in ("sat.svg", "on.svg", "head.svg")]
    assert ["where sat looks" in text for text in texts] == [True, False, False]
    assert "where on looks" in texts[1]


def test_a_token_and_a_head_are_not_drawn_together(tmp_path):
    with pytest.raises(ValueError, match=r"--token sat begins with the head that says most about it; leave out --head"):
        page("The cat sat", output=str(tmp_path / "page.html"), token="sat", head="4.3")


def test_a_page_is_written_and_opened(tmp_path, monkeypatch, capsys):
    launched = []
    monkeypatch.setattr("typer.launch", launched.append)
    path = tmp_path / "page.html"
    page("The cat sat", output=str(path), opens=True)
    assert launched == [str(path)]
    assert capsys.readouterr().out == f"\n  Wrote {path}\n"
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_without_a_name_the_page_is_page_html_and_begins_with_the_clearest_role(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page(max_tokens=30)
    assert document(tmp_path / "page.html")["start"] == {"layer": 4, "head": 3}
    page("The cat sat", head="5.4")
    assert document(tmp_path / "page.html")["start"] == {"layer": 5, "head": 4}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"head": "2.1"}, [[2]]),
        ({"layer": "blocks.3.attention"}, [[3]]),
        ({"steps": "4,1"}, [[1, 4]]),
        ({"steps": "all"}, [[0, 1, 2, 3, 4, 5]]),
    ],
    ids=["the layer of the head", "a layer by name", "chosen layers", "all"],
)
def test_a_page_has_the_steps_of(options, expected, tmp_path):
    page("The cat sat", output=str(tmp_path / "page.html"), **options)
    assert layers_with_steps(tmp_path / "page.html") == expected


def test_the_heads_of_a_page_can_be_shaded_by_effect(tmp_path):
    page("The cat sat", output=str(tmp_path / "page.html"), effect=True)
    written = document(tmp_path / "page.html")
    assert (written["start"]["view"], written["start"]["sort"]) == ("heads", "effect")
    assert all("effect" in head["means"] for layer in written["reports"][0]["layers"] for head in layer["heads"])


def test_a_figure_shows_the_head(tmp_path, capsys):
    page("The cat sat", output=str(tmp_path / "head.svg"), head="1.2")
    assert ">sat</text>" in (tmp_path / "head.svg").read_text()
    assert "Wrote" in capsys.readouterr().out


def test_the_ladder_is_a_page_with_the_steps_of_each_rung(tmp_path, capsys):
    page(ladder=True, output=str(tmp_path / "ladder.html"))
    assert layers_with_steps(tmp_path / "ladder.html") == [[0]] * 4
    assert capsys.readouterr().out == f"\n  Wrote {tmp_path / 'ladder.html'}\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": "7"}, r"^--steps 7: there is no layer 7; the model has layers 0 to 5$"),
        ({"steps": "one"}, r"^--steps one must be numbers of layers, such as 1,4; or all$"),
        ({"exact": "4"}, r"^--exact 4 must be heads, such as 4\.3, head 3 of layer 4; or several: 4\.3,0\.2$"),
        ({"exact": "4.3,4.11"}, r"^--exact 4\.11: head 11 does not exist"),
        ({"head": "9.0"}, r"^layer 9 does not exist: this report has 6 layers, 0 to 5$"),
        ({"head": "3"}, r"^--head 3 needs a layer to be in; add --layer 0, or write --head 0\.3$"),
        ({"max_tokens": 0}, r"^--max-tokens 0 must be at least 1$"),
        (
            {"output": "out.doc"},
            r"^-o out\.doc: a page is FILE\.html, a figure \.svg, \.png or \.pdf; try -o out\.html$",
        ),
        ({"output": "/no/such/out.html"}, r"^-o /no/such/out\.html: there is no directory /no/such; make it first"),
        (
            {"output": "a.svg", "steps": "1", "opens": True},
            r"^--steps and --open cannot be used here: that is about a page; write one: -o page\.html$",
        ),
        ({"output": "a.svg", "effect": True}, r"^--effect cannot be used here: that is about a page; write one: -o"),
        (
            {"ladder": True, "model": "gpt2"},
            r"^a text and --model cannot be used here: --ladder shows its own example; leave --ladder out$",
        ),
    ],
)
def test_what_a_page_cannot_hold_is_refused_and_nothing_is_written(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        page("The cat sat", **{"output": str(tmp_path / "page.html")} | options)
    assert list(tmp_path.iterdir()) == []
