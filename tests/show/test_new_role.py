"""A new role is one entry of heads/report/roles.py: everything that shows roles shows it."""

import sys

import pytest
import torch

import regard
from regard.heads.report.roles import ROLES, RoleKind
from regard.show.page.payload import describe_page, described_heads
from regard.show.terminal.heads import print_heads
from regard.support.drawing import as_figure

pytest.importorskip("matplotlib")
T = 17


class NextAndFirst(torch.nn.Module):
    """Two heads: one looks at the token after, the other at the first."""

    def forward(self, keys):
        """Keys are the rows of a unit matrix, so that a linear layer gives any query."""
        following, first = torch.eye(T).roll(-1, 0), torch.zeros(T, T).index_fill(1, torch.tensor([0]), 1.0)
        linear = torch.nn.functional.linear
        queries = torch.stack([linear(keys, following.mT), linear(keys, first.mT)])[None]
        return torch.nn.functional.scaled_dot_product_attention(
            queries, keys.expand(1, 2, T, T), keys.expand(1, 2, T, T)
        )


@pytest.fixture
def seen(monkeypatch):
    """A report of them, where looking at the token after is a role."""
    kind = RoleKind(
        "next token",
        "Looks at the token just after.",
        colors=("#123456", "#abcdef"),
        glyph="M2 1l9 9",
        terminal="blue",
        statistic="next",
        phrase="the token after",
    )
    monkeypatch.setitem(ROLES, kind.name, kind)
    model = NextAndFirst()
    with regard.watch(model) as report:
        model(10 * torch.eye(T))
    return report


def test_the_role_is_given_with_its_evidence(seen):
    role = seen[0, 0].role
    assert (role.name, role.clear, seen[0, 1].role.name) == ("next token", True, "first token")
    assert role.evidence.startswith("weight on the token after 1.00")
    assert [head.layer for head in seen.heads(role="next token")] == [0]


def test_the_table_has_it_in_its_colour(seen, capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    print_heads(seen.table())
    assert "\x1b[34mnext token\x1b[0m" in capsys.readouterr().out


def test_the_document_of_a_page_has_its_words_its_glyph_and_its_colours(seen):
    role = {"name": "next token", "short": "next", "about": "Looks at the token just after.", "glyph": "M2 1l9 9"}
    assert role | {"light": "#123456", "dark": "#abcdef"} in describe_page([])["roles"]
    assert described_heads(seen)["heads"][0][0]["role"] == "next token"


def test_a_figure_has_it_in_its_cells_and_in_its_legend(seen):
    wide, narrow = (as_figure(seen, by="role", ax=None, width=width) for width in (6.9, 0.6))
    assert [text.get_text() for text in wide.texts] == ["next", "first"]
    *letters, legend = [text.get_text() for text in narrow.texts]
    assert letters == ["Ne", "Fi"]
    assert "Ne next token" in legend.replace("\n", " ")
