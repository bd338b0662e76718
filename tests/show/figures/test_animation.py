"""The animation of a head: every visible weight once, tokens escaped, nothing loaded, and still where that is asked."""

from xml.etree import ElementTree

import pytest
import torch

import regard
from regard.show.figures.animation import animated_svg
from regard.support.tokens import TextTokens

SVG = "{http://www.w3.org/2000/svg}"


def seen_of(T, causal=True):
    torch.manual_seed(3)
    layer = regard.MultiHeadAttention(6, 6, None, 0.0, 2, causal=causal)
    with torch.no_grad(), regard.watch(layer) as seen:
        layer(torch.randn(1, T, 6))
    return seen


@pytest.mark.parametrize(("causal", "count"), [(True, 28), (False, 49)])
def test_every_visible_key_has_a_cell(causal, count):
    root = ElementTree.fromstring(animated_svg(seen_of(7, causal)[0, 1], "a <model>"))
    rows = [
        group
        for group in root.iter(f"{SVG}g")
        if group.get("class").startswith("r") and group.get("class") != "reading"
    ]
    cells = [group for group in rows if not group.get("class").startswith("reading")]
    assert sum(len(group.findall(f"{SVG}rect")) for group in cells) == count
    assert len(cells) == 7
    assert "a <model>" in "".join(root.itertext())


def test_it_loads_nothing_and_stands_still_for_who_wants_that():
    text = animated_svg(seen_of(5)[0, 0])
    assert "prefers-reduced-motion:reduce" in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "<script" not in text


def test_tokens_cannot_become_markup(monkeypatch):
    seen = seen_of(2)
    tokens = [TextTokens(["</text><script>", "&amp;"])]
    monkeypatch.setattr(type(seen[0, 0]), "query_tokens", tokens)
    monkeypatch.setattr(type(seen[0, 0]), "key_tokens", tokens)
    root = ElementTree.fromstring(animated_svg(seen[0, 0]))
    assert not list(root.iter(f"{SVG}script"))
    assert "&amp;" in [one.text for one in root.iter(f"{SVG}text")]


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="an animation shows at most 96 tokens and this text has 97; read fewer"):
        animated_svg(seen_of(97)[0, 0])
    with pytest.raises(ValueError, match=r"seconds=0 must be between 0\.02 and 60"):
        animated_svg(seen_of(3)[0, 0], seconds=0)
