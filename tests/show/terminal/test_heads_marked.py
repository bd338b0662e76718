"""What is assumed or unknown about a layer is said in tables, on pages and in figures."""

import pytest
import torch
from torch import nn

import regard
from regard.heads.report.listings import HeadSummary
from regard.heads.report.roles import Role
from regard.show.terminal.heads import mark_notes, marked_layers

REASON = "positions unknown: 7 queries attend to 5 keys"


class TwoKinds(nn.Module):
    """A layer with pooled keys, and one without."""

    def __init__(self):
        super().__init__()
        self.pooled, self.plain = Attention(5), Attention(7)

    def forward(self, x):
        return self.plain(self.pooled(x))


class Attention(nn.Module):
    num_heads = 2

    def __init__(self, keys):
        super().__init__()
        self.keys = keys

    def forward(self, x):
        q = x.unflatten(-1, (2, -1)).transpose(1, 2)
        k = q[:, :, : self.keys]
        return nn.functional.scaled_dot_product_attention(q, k, k).transpose(1, 2).flatten(2)


@pytest.fixture(scope="module")
def seen():
    with regard.watch(model := TwoKinds()) as report:
        model(torch.randn(1, 7, 12))
    return report


def test_a_table_has_a_mark_and_the_reason(seen):
    table = str(seen)
    assert all(f"\n  0.{head}* " in table for head in (0, 1))
    assert all(f"\n  1.{head}  " in table for head in (0, 1))
    assert table.endswith(f"\n\n  * layer 0: {REASON}")
    assert f"* layer 0: {REASON}" in seen._repr_html_()
    assert str(seen.heads(layer=0)).endswith(f"* layer 0: {REASON}")
    assert "*" not in str(seen.heads(layer=1))


def test_a_head_says_it(seen):
    assert repr(seen[0, 1]).endswith(REASON)
    assert REASON not in repr(seen[1, 1])
    assert [layer.get("marks") for layer in seen.summary()["layers"]] == [[REASON], None]


def test_a_page_says_it(seen, tmp_path):
    seen.to_html(tmp_path / "page.html")
    assert f'"marks": ["{REASON}"]'.replace(" ", "") in (tmp_path / "page.html").read_text().replace(" ", "")


def test_a_file_keeps_it(seen, tmp_path):
    for keep in (True, False):
        seen.save(tmp_path / "seen.safetensors", keep=keep)
        assert [layer.marks for layer in regard.load_seen(tmp_path / "seen.safetensors")] == [(REASON,), ()]


@pytest.mark.parametrize("plot", [{}, {"by": "entropy"}, {"by": "role"}], ids=str)
def test_figures_of_all_heads_say_it(seen, plot):
    axes = seen.plot(**plot)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0*", "1"]
    assert any(REASON.split()[-1] in text.get_text() for text in axes.texts)


def test_the_figure_of_a_head_says_it(seen):
    assert seen[0, 1].plot().get_title(loc="left").startswith("0.1* ")
    assert seen[1, 1].plot().get_title(loc="left").startswith("1.1 ")


def test_one_reason_is_said_once_for_all_its_layers():
    one, none = (HeadSummary(Role("mixed", 0.0, 0.0, ""), {}, 7, marks) for marks in ((REASON,), ()))
    heads = {(0, 0): one, (1, 0): none, (2, 0): one, (3, 0): one}
    assert marked_layers(heads) == {0, 2, 3}
    assert mark_notes(heads) == [f"* layers 0, 2–3: {REASON}"]
