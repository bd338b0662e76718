from pathlib import Path

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import regard
from mistakes.cases import mistake, random_case
from regard.mistakes.search import MISTAKES
from regard.school.check.check import check_subject
from regard.school.check.compare.constructor_arguments import PROBES
from regard.school.check.compare.experiment import experiment
from regard.school.check.explain.findings import counterexample, tiny_example
from regard.school.check.request import Request
from school.check.learner import LESS, Learner, broken, checked, edited, names, subject_of

HELD_OUT = Path(__file__).parents[1] / "held_out"


class Whole(Learner):
    def __init__(self, d_in, d_out, context_length, dropout):
        super().__init__(d_in, d_out, context_length, dropout, 1)


class Normed(Learner):
    def __init__(self, d_model, num_heads):
        super().__init__(d_model, d_model, 16, 0.0, num_heads)
        self.norm = nn.LayerNorm(d_model)

    def forward(self, x):
        return super().forward(self.norm(x))


@pytest.mark.parametrize(
    ("target", "task"),
    [
        (Learner, "causal multi-head attention, 3 heads of 7"),
        (Whole, "causal self-attention, one head of 21"),
    ],
)
def test_a_verdict_tells_what_was_compared(target, task):
    assert regard.check(target).task == task


def test_a_norm_of_x_is_noted():
    assert "It normalises x before it projects it." in regard.check(Normed).notes


def held_out(name):
    return (HELD_OUT / name).read_text(encoding="utf-8")


def test_attention_over_the_batch_is_wrong_unless_the_code_says_that_tokens_stand_first(tmp_path):
    text = held_out("tokens_first_by_mistake.py")
    verdict = checked(text, tmp_path)
    assert [one.name for one in verdict.mistakes] == ["attention over the batch instead of the tokens"]
    said = text.replace("# x: (batch, tokens, width)", "# x: (tokens, batch, width)").replace("B, T, E", "T, B, E")
    swapped = said.replace(".view(B, T,", ".view(T, B,").replace("reshape(B, T, E)", "reshape(T, B, E)")
    assert checked(swapped, tmp_path).is_right


def test_a_mask_that_does_the_opposite_of_its_docstring_is_inverted(tmp_path):
    text = held_out("polarity_argument.py")
    (finding,) = checked(text, tmp_path).mistakes
    assert finding.name == "mask polarity inverted"
    assert "masked_fill(mask == 1" in finding.code
    without = text.replace('"""mask: 1 = may look, 0 = hidden"""', "")
    verdict = check_subject(subject_of(without, tmp_path), Request())
    assert verdict.is_right
    assert "Its mask: 1 = hidden." in verdict.notes or "Its mask: True = hidden." in verdict.notes


def test_a_mistake_is_shown_on_three_tokens_and_one_head():
    one = mistake(MISTAKES, "scale by √d_model")
    example = tiny_example(one, (one,), random_case())
    assert example.about == "weights for 3 tokens, head 0 of 3"
    assert example.seen.shape == example.expected.shape == (3, 3)
    assert_close(example.seen.sum(-1), torch.ones(3, dtype=torch.float64))
    assert not torch.allclose(example.seen, example.expected)


def test_weights_that_fit_no_right_layer_have_no_example():
    one = mistake(MISTAKES, "embedding split before projection")
    assert tiny_example(one, (one,), random_case(d_in=63)) is None


def test_a_counterexample_is_as_small_as_it_can_be(tmp_path):
    request = Request()
    relu = subject_of(edited("loop", "torch.softmax(s, dim=-1)", "torch.relu(s)"), tmp_path)
    example = counterexample(experiment(relu, PROBES[0], 0, request))
    assert example.about == "out for 1 text, 1 token, 1 head"
    reverse = subject_of(edited("loop", "torch.cat(contexts,", "torch.cat(contexts[::-1],"), tmp_path)
    example = counterexample(experiment(reverse, PROBES[0], 0, request))
    assert example.about == "out for 1 text, 1 token, 3 heads"


def test_a_layer_that_says_tokens_first_and_takes_texts_first_attends_over_the_batch(tmp_path):
    doc = 'class Attention(nn.Module):\n    """x: (seq_len, batch, d_model)"""\n'
    said = ("class Attention(nn.Module):\n", doc, "B, T, E = x.shape", "a, b, E = x.shape", "(B, T, E)", "(a, b, E)")
    verdict = broken(tmp_path, *LESS, *said)
    assert names(verdict) == ["attention over the batch instead of the tokens"]
    assert verdict.mistakes[0].says.startswith("Its docstring says that x is (T, B, width); ")
    inner = doc.replace("x: (seq_len", "torch's own takes (seq_len")
    assert broken(tmp_path, *LESS, said[0], inner, *said[2:]).is_right


UNKNOWN = """import torch
from torch import nn

class OzDikkat(nn.Module):
    def __init__(self, boyut, baslik):
        super().__init__()
        self.s, self.a, self.d = (nn.Linear(boyut, baslik) for _ in range(3))
        self.baslik = baslik

    def forward(self, x):
        s, a, d = self.s(x), self.a(x), self.d(x)
        return (s @ a.mT / self.baslik**0.5).softmax(-1) @ d
"""


def test_a_product_that_fits_for_no_value_of_an_unknown_argument_is_told(tmp_path):
    assert checked(UNKNOWN, tmp_path).status == "right"
    assert names(checked(UNKNOWN.replace("a.mT", "a"), tmp_path)) == ["keys not transposed"]


def test_a_root_of_negative_numbers_is_told_and_not_a_mask_that_gives_nan_too(tmp_path):
    (finding,) = checked(edited("loop", "torch.softmax(s, dim=-1)", "torch.softmax(s**0.5, dim=-1)"), tmp_path).mistakes
    assert (finding.name, finding.says) == (
        "root of a negative number",
        "The first NaN is made by pow, of numbers some of which are negative.",
    )
    assert "s**0.5" in finding.code
