"""The block of the held-out corpus, as it is and joined in other ways."""

from pathlib import Path

import pytest
import torch

from regard.school.check.blocks.wiring import BlockParts, attention_inside, check_wiring, find_parts, ways
from regard.school.check.own_file import check_here
from regard.school.check.request import Request
from school.check.learner import subject_of

HELD_OUT = Path(__file__).parents[1] / "held_out"
BLOCK = (HELD_OUT / "right_block_prenorm.py").read_text(encoding="utf-8")
GPT = (HELD_OUT / "gpt_mask_off_by_one.py").read_text(encoding="utf-8")
FIRST, SECOND = "x = x + self.attn(self.ln_1(x))", "return x + self.mlp(self.ln_2(x))"


def joined(first, second=SECOND):
    assert FIRST in BLOCK
    assert SECOND in BLOCK
    return BLOCK.replace(FIRST, first).replace(SECOND, second)


RIGHT = {
    "pre": (BLOCK, "x + attention(norm(x)), then x + feed_forward(norm(x))"),
    "post": (
        joined("x = self.ln_1(x + self.attn(x))", "return self.ln_2(x + self.mlp(x))"),
        "norm(x + attention(x)), then norm(x + feed_forward(x))",
    ),
    "norms in the other order": (
        joined("x = x + self.attn(self.ln_2(x))", "return x + self.mlp(self.ln_1(x))"),
        "x + attention(norm(x)), then x + feed_forward(norm(x))",
    ),
    "parallel": (
        joined("y = self.ln_1(x)", "return x + self.attn(y) + self.mlp(y)"),
        "x + attention(norm(x)) + feed_forward(norm(x))",
    ),
}
WRONG = {
    "no residual around the attention": joined("x = self.attn(self.ln_1(x))"),
    "no residual around the feed-forward": joined(FIRST, "return self.mlp(self.ln_2(x))"),
    "no norm before the feed-forward": joined(FIRST, "return x + self.mlp(x)"),
    "no norm before the attention": joined("x = x + self.attn(x)"),
    "residual of the normed input around the attention": joined("x = self.ln_1(x)\n        x = x + self.attn(x)"),
    "residual of the block's input around the feed-forward": joined(
        "h = x + self.attn(self.ln_1(x))", "return x + self.mlp(self.ln_2(h))"
    ),
    "feed-forward without activation": BLOCK.replace("F.gelu(self.c_fc(x))", "self.c_fc(x)"),
}


@pytest.mark.parametrize("way", RIGHT)
def test_a_block_that_is_joined_as_usual_is_right(way, tmp_path):
    source, words = RIGHT[way]
    wiring = check_wiring(subject_of(source, tmp_path, "Block"), Request())
    assert wiring.findings == []
    assert wiring.note == f"The wiring of Block is right: {words}."


@pytest.mark.parametrize("name", WRONG)
def test_a_block_that_is_joined_wrongly_is_told_by_name(name, tmp_path):
    wiring = check_wiring(subject_of(WRONG[name], tmp_path, "Block"), Request())
    assert [one.name for one in wiring.findings] == [name]
    assert wiring.findings[0].line > 0


def test_both_residuals_may_be_missing(tmp_path):
    source = joined("x = self.attn(self.ln_1(x))", "return self.mlp(self.ln_2(x))")
    wiring = check_wiring(subject_of(source, tmp_path, "Block"), Request())
    assert [one.name for one in wiring.findings] == [
        "no residual around the attention",
        "no residual around the feed-forward",
    ]


def test_a_block_that_is_joined_in_an_unknown_way_is_not_called_wrong(tmp_path):
    source = joined(FIRST, "return x + 0.5 * self.mlp(self.ln_2(x))")
    wiring = check_wiring(subject_of(source, tmp_path, "Block"), Request())
    assert wiring.findings == []
    assert "could not be checked" in wiring.note


@pytest.mark.parametrize("has_positions", [True, False])
def test_a_model_without_positions_is_told(has_positions, tmp_path):
    source = GPT if has_positions else GPT.replace(" + self.wpe(pos)", "")
    wiring = check_wiring(subject_of(source, tmp_path, "GPT"), Request())
    assert [one.name for one in wiring.findings] == ([] if has_positions else ["no positions"])


def test_the_blocks_of_a_file_are_checked_beside_its_attention(tmp_path):
    path = tmp_path / "homework.py"
    path.write_text(WRONG["no residual around the attention"])
    attention, block = check_here(path, "", Request())
    assert (attention.name, attention.status) == ("CausalSelfAttention", "right")
    assert (block.name, block.status) == ("Block", "wrong")
    path.write_text(BLOCK)
    (attention,) = check_here(path, "", Request())
    assert attention.notes[-1].startswith("The wiring of Block is right")


def test_a_layer_without_attention_inside_has_no_wiring(tmp_path):
    assert check_wiring(subject_of(BLOCK, tmp_path, "MLP"), Request()) is None
    assert attention_inside({}) is None
    assert find_parts({"inside": []}, "attn") is None


def test_ways_are_tried_with_the_fewest_mistakes_first():
    parts = BlockParts("", "attn", "ff", ("norm1", "norm2"))
    made = [way.make(torch.ones(2, 3, 5)) for way in ways(lambda path, x: 2 * x, parts, 0)]
    assert torch.equal(made[0], torch.full((2, 3, 5), 25.0))  # x + 4 x, twice
    assert all(way.wrong == () for way in ways(lambda path, x: x, parts, 0))
    assert all(len(way.wrong) == 2 for way in ways(lambda path, x: x, parts, 2))
