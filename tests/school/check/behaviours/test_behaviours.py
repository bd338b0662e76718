import pytest

from regard.school.check.behaviours.behaviours import BEHAVIOURS
from school.check.learner import LESS, broken, checked, edited, names, wrong

MISTAKES = [
    ("dropout active in eval", "textbook"),
    ("dropout active in eval", "fused"),
    ("dropout on the wrong tensor", "packed"),
    ("dropout on the wrong tensor", "loop"),
    ("dropout never active", "batched"),
    ("dropout never active", "packed"),
    ("no output projection", "einsum"),
    ("mask not a buffer", "textbook"),
    ("mask not a buffer", "loop"),
    ("in-place change of the caller's input", "loop"),
    ("in-place change of the caller's mask", "masked"),
    ("wrong parameter count", "textbook"),
    ("wrong parameter count", "fused"),
]
WARNINGS = [
    ("−1e9 overflows in fp16", "textbook"),
    ("−1e9 overflows in fp16", "masked"),
    ("fully masked row gives NaN", "masked"),
    ("sequence longer than the context", "fused"),
]


@pytest.mark.parametrize(("name", "layer"), MISTAKES)
def test_what_values_cannot_show_is_a_mistake(name, layer, tmp_path):
    case = wrong(name, layer)
    verdict = checked(case.source, tmp_path)
    assert [one.name for one in verdict.mistakes] == [name]


@pytest.mark.parametrize(("name", "layer"), WARNINGS)
def test_what_goes_wrong_elsewhere_is_a_warning(name, layer, tmp_path):
    verdict = checked(wrong(name, layer).source, tmp_path)
    assert verdict.is_right
    assert [one.name for one in verdict.warnings] == [name]


def test_a_row_without_keys_is_tried_beside_a_mistake_in_the_scores(tmp_path):
    source = wrong("fully masked row gives NaN", "masked").source.replace(" / math.sqrt(self.d_k)", "")
    assert [one.name for one in checked(source, tmp_path).findings] == ["no scale", "fully masked row gives NaN"]


def test_a_mask_that_forward_makes_on_the_cpu_is_a_warning(tmp_path):
    verdict = checked(edited("loop", ", device=x.device", ""), tmp_path)
    assert verdict.is_right
    assert "tensor made on the CPU" in [one.name for one in verdict.warnings]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            "return self.wo(joined)",
            "return self.wo(joined.squeeze())",
            "For one text (B = 1) the output has another shape: (5, 21).",
        ),
        (
            "return self.wo(joined)",
            "return self.wo(joined) * (2.0 if T == 1 else 1.0)",
            "For one token (T = 1) it computes something else than for 2 texts of 5 tokens.",
        ),
    ],
)
def test_other_sizes_are_tried(old, new, says, tmp_path):
    (finding,) = checked(edited("loop", old, new), tmp_path).mistakes
    assert finding.says == says


def test_chance_without_dropout_is_told(tmp_path):
    source = edited("loop", "return self.wo(joined)", "return self.wo(joined) * (1 + 1e-7 * torch.rand(1))")
    assert checked(source, tmp_path).is_right
    source = edited(
        "loop", "return self.wo(joined)", "return self.wo(joined + 1e-3 * torch.rand_like(joined) * (T == 4))"
    )
    assert not checked(source, tmp_path).is_right


def test_every_behaviour_says_what_it_is_for():
    assert all(one.__doc__ for one in BEHAVIOURS)


def test_texts_that_are_mixed_explain_an_unknown_difference(tmp_path):
    split = (
        "(t.transpose(1, 2) for t in heads)",
        "(t.reshape(B * T // B, B, self.num_heads, -1).permute(1, 2, 0, 3) for t in heads)",
    )
    assert names(broken(tmp_path, *LESS, *split)) == ["texts of a batch are mixed"]
