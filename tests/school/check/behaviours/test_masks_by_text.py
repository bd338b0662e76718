import pytest

from school.check.learner import broken, names

TAKES = (
    "class Attention(nn.Module):\n",
    'class Attention(nn.Module):\n    """mask: (batch, T, T), one mask per text, True = hidden."""\n',
    "x, context=None, key_padding_mask=None",
    "x, mask=None",
    "x if context is None else context",
    "x",
    "if key_padding_mask is not None",
    "if mask is not None",
)
HIDE = "scores.masked_fill(key_padding_mask[:, None, None, :], -torch.inf)"
FOLDED = "scores.flatten(0, 1).masked_fill({}, -torch.inf).view_as(scores)"


@pytest.mark.parametrize(
    ("hide", "found"),
    [
        ("scores.masked_fill(mask[:, None], -torch.inf)", []),
        (FOLDED.format("mask.repeat_interleave(self.num_heads, 0)"), []),
        (FOLDED.format("mask.repeat(self.num_heads, 1, 1)"), ["mask of another text used"]),
        ("scores.masked_fill(mask[0], -torch.inf)", ["mask of one text used for all"]),
    ],
)
def test_every_text_has_its_own_mask(hide, found, tmp_path):
    verdict = broken(tmp_path, *TAKES, HIDE, hide)
    assert names(verdict) == found
    assert "masks of each text" in verdict.checked


def test_a_layer_that_speaks_of_one_mask_is_not_asked_for_more(tmp_path):
    verdict = broken(
        tmp_path, *TAKES, "(batch, T, T), one mask per text", "(T, T)", HIDE, "scores.masked_fill(mask, -torch.inf)"
    )
    assert names(verdict) == []
    assert "masks of each text" not in verdict.checked
