"""The poster: every head once, roles in words, and a sheet of the size that was asked for."""

import pytest
import torch

import regard
from regard.show.figures.poster import PAPERS, draw_poster


@pytest.fixture(scope="module")
def seen():
    model = regard.GPT.from_pretrained("tiny")
    text = "Alice was very tired, and Alice was very tired."
    with torch.no_grad(), regard.watch(model) as seen:
        model(torch.tensor([model.tokenizer.encode(text)]))
    return seen


def test_a_poster_has_a_map_for_every_head_and_the_words_of_its_roles(seen):
    figure = draw_poster(seen, title="a model")
    (sheet,) = figure.axes
    assert len(sheet.images) == 48 + 1  # and the scale
    texts = [one.get_text() for one in sheet.texts]
    portraits = seen.portraits().values()
    clear = [one.role.name for one in portraits if one.role.clear]
    assert texts.count("previous") == clear.count("previous token") > 0
    assert f"previous token {clear.count('previous token')}" in texts
    assert f"no clear role {48 - len(clear)}" in texts
    assert "a model" in texts
    assert any("Alice was very tired" in one for one in texts)


def test_nothing_reaches_beyond_the_sheet(seen):
    figure = draw_poster(seen, title="a model", paper="a4")
    box = figure.get_window_extent()
    for text in figure.axes[0].texts:
        part = text.get_window_extent()
        assert box.x0 <= part.x0 <= part.x1 <= box.x1, text.get_text()
        assert box.y0 <= part.y0 <= part.y1 <= box.y1, text.get_text()


@pytest.mark.parametrize("paper", ["a4", "a2"])
def test_the_sheet_is_turned_so_that_maps_are_largest(seen, paper):
    assert tuple(draw_poster(seen, paper=paper).get_size_inches()) == pytest.approx(PAPERS[paper])
    layer = regard.MultiHeadAttention(22, 22, None, 0.0, 11)
    with torch.no_grad(), regard.watch(layer) as wide:
        layer(torch.randn(1, 5, 22))
    assert tuple(draw_poster(wide, paper=paper).get_size_inches()) == pytest.approx(PAPERS[paper][::-1])


def test_an_unknown_sheet_is_refused(seen):
    with pytest.raises(ValueError, match="paper='a9' is not known; it is one of a4, a3, a2, a1"):
        draw_poster(seen, paper="a9")
