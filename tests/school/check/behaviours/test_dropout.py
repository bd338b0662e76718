from pathlib import Path

import pytest

from regard.school.check.behaviours.behaviours import BEHAVIOURS
from regard.school.check.behaviours.dropout import arguments_with, dropout_in_training, random_in_eval
from school.check.learner import LESS, broken, checked, names

HELD_OUT = Path(__file__).parents[1] / "held_out"


@pytest.mark.parametrize(
    ("file", "name", "code"),
    [
        ("dropout_unused", "dropout never active", "context = (weights @ v).transpose(1, 2)"),
        ("dropout_result_lost", "dropout never active", "self.drop(w)"),
        ("functional_dropout", "dropout active in eval", "att = F.dropout(F.softmax(att, dim=-1), p=self.dropout)"),
        ("dropout_on_values", "dropout on the wrong tensor", "v = self.dropout(v)"),
    ],
)
def test_dropout_is_told_at_the_line_where_it_acts_or_should(file, name, code, tmp_path):
    (finding,) = checked((HELD_OUT / f"{file}.py").read_text(encoding="utf-8"), tmp_path).mistakes
    assert (finding.name, finding.code) == (name, code)


def test_both_are_behaviours():
    assert {dropout_in_training, random_in_eval} <= set(BEHAVIOURS)


def test_where_nothing_but_the_formula_is_right_the_output_is_not_dropped_as_well(tmp_path):
    edit = ("return (y, weights)", "y = self.drop(y)\n        return (y, weights)")
    assert names(broken(tmp_path, *edit)) == []
    verdict = broken(tmp_path, *edit, plain=True)
    assert names(verdict) == ["dropout on the wrong tensor"]
    assert verdict.mistakes[0].says == "Dropout acts on the output, too; it acts on the weights alone."


DROPPED, MADE = "dropped = self.drop(weights)", "self.drop = nn.Dropout(dropout)"
BY_HAND = "p = self.drop.p if self.training else 0.0\n        dropped = weights * (torch.rand_like(weights) {})"
SHARES = [
    ((DROPPED, BY_HAND.format(">= p")), "dropout without rescaling"),
    ((DROPPED, BY_HAND.format("< p) / max(p, 0.01) if p else (weights")), "keep probability used as drop probability"),
    (
        (MADE, "self.drop = nn.Dropout(1 - dropout) if dropout else nn.Identity()"),
        "keep probability used as drop probability",
    ),
    ((MADE, "self.drop = nn.Dropout(0.1)"), "dropout argument is ignored"),
]


@pytest.mark.parametrize(("edits", "name"), SHARES)
def test_another_share_than_the_argument_says_is_named(edits, name, tmp_path):
    assert names(broken(tmp_path, *edits)) == [name]


KEPT = ("dropout=0.0, bias", "{0}=0.9, bias", MADE, "self.drop = nn.Dropout({1}{0})")


@pytest.mark.parametrize("name", ["keep_prob", "p_keep", "keep_rate"])
def test_an_argument_for_the_share_that_is_kept_is_no_dropout(name, tmp_path):
    assert names(broken(tmp_path, *(one.format(name, "1 - ") for one in KEPT))) == []
    verdict = broken(tmp_path, *(one.format(name, "") for one in KEPT))
    assert names(verdict) == ["keep probability used as drop probability"]
    assert verdict.mistakes[0].says == f"With {name}=0.8 more is dropped than with {name}=0.2."


def test_a_docstring_says_that_p_is_the_share_that_is_kept(tmp_path):
    told = ("(nn.Module):\n", '(nn.Module):\n    """p: the probability of {} a weight."""\n\n')
    edits = [one.format("p", "") for one in KEPT]
    kept, dropped = ([told[0], told[1].format(word)] for word in ("keeping", "dropping"))
    assert names(broken(tmp_path, *edits, *kept)) == ["keep probability used as drop probability"]
    assert names(broken(tmp_path, *edits, *dropped)) == []


def test_dropout_by_hand_that_divides_by_what_is_kept_is_right(tmp_path):
    assert names(broken(tmp_path, DROPPED, BY_HAND.format(">= p) / (1 - p"))) == []


def test_dropout_on_the_mask_acts_on_the_wrong_tensor(tmp_path):
    softmax = "weights = scores.softmax(-1)"
    mask = "future = self.drop(torch.ones(T, T).triu(1))\n        "
    hides = f"{mask}scores = scores.masked_fill(future > 0, -torch.inf)\n        {softmax}"
    verdict = broken(tmp_path, *LESS, softmax, hides, DROPPED, "dropped = weights")
    assert names(verdict) == ["dropout on the wrong tensor"]
    assert verdict.mistakes[0].says.startswith("Dropout acts on the mask;")


def test_a_dropout_is_put_into_arguments_and_configurations():
    assert arguments_with({"dropout": 0.0, "config": {"attn_pdrop": 0.0, "d": 3}}, 0.2) == {
        "dropout": 0.2,
        "config": {"attn_pdrop": 0.2, "d": 3},
    }


ONE_MASK = "p = self.drop.p if self.training else 0.0\n        dropped = weights * (torch.rand({}) >= p) / (1 - p)"
DRAWS = {
    "1, 1, T, T": "All texts and all heads lose",
    "1, self.num_heads, T, T": "All texts lose",
    "B, 1, T, T": "All heads lose",
    "B, self.num_heads, 1, T": "All tokens lose",
}


@pytest.mark.parametrize("shape", DRAWS)
def test_one_draw_for_many_weights_is_named(shape, tmp_path):
    verdict = broken(tmp_path, *LESS, DROPPED, ONE_MASK.format(shape))
    assert names(verdict) == ["dropout mask is shared"]
    assert verdict.mistakes[0].says.startswith(DRAWS[shape])


def test_a_draw_for_every_weight_and_one_that_is_shared_on_purpose_are_right(tmp_path):
    assert names(broken(tmp_path, *LESS, DROPPED, ONE_MASK.format("B, self.num_heads, T, T"))) == []
    on_purpose = ONE_MASK.format("B, 1, T, T") + "  # shared by all heads, as in the paper"
    assert names(broken(tmp_path, *LESS, DROPPED, on_purpose)) == []
