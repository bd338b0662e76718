"""An atlas as a table."""

import pytest

import regard
from heads.atlas.corpora import Letters, corpus, small_model
from regard.heads.atlas.result import Atlas
from regard.support.drawing import as_html


@pytest.fixture(scope="module")
def atlas():
    return regard.atlas(small_model(), corpus(3), tokenizer=Letters())


def test_every_head_has_a_row_with_its_role_and_its_shares(atlas):
    lines = atlas.table(all=True, width=120).splitlines()
    assert lines[0] == "  GPT · 2 layers · 6 heads · 3 texts · 20 tokens"
    assert lines[2].split()[:5] == ["head", "role", "rows", "texts", "entropy"]
    assert sorted(line.split()[0] for line in lines[3:9]) == ["0.0", "0.1", "0.2", "1.0", "1.1", "1.2"]
    first = atlas.heads()[0]
    assert lines[3].split()[0] == f"{first.layer}.{first.head}"
    assert f"{first.stability:.0%}" in lines[3]


def test_a_short_table_says_how_many_are_left_out(atlas):
    text = atlas.table(few=2)
    assert "  … and 4 more: atlas.table(all=True)" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "share of texts in which it has its most frequent role" in text


def test_a_notebook_gets_the_same_as_html(atlas):
    assert as_html(atlas).startswith("<p>GPT · 2 layers · 6 heads · 3 texts · 20 tokens</p><table>")


def test_an_empty_atlas_says_so():
    assert str(Atlas([])) == "  nothing was read yet"
    assert as_html(Atlas([])) == "<p>nothing was read yet</p>"
