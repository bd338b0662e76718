import pytest

from school.check.learner import broken, checked, names

HIDE = "scores.masked_fill(key_padding_mask[:, None, None, :], -torch.inf)"
ARGUMENT = "key_padding_mask"
SCORES = "scores = q @ k.mT / math.sqrt(self.head_dim)\n"
CAUSAL = "        scores = scores.masked_fill(torch.ones_like(scores).triu(1) > 0, -1e30)\n"
WRONG = [
    ("scores", "padding mask ignored"),
    ("scores.masked_fill(key_padding_mask[:, None, :, None], -1e9)", "padding on the query axis"),
    ("scores.masked_fill(key_padding_mask[0], -1e9)", "padding of one text used for all"),
    (
        "scores.flatten(0, 1).masked_fill(key_padding_mask.repeat(self.num_heads, 1)[:, None], -1e9).view_as(scores)",
        "padding of another text used",
    ),
    ("scores.masked_fill(key_padding_mask[:, None, None, :], -3.0)", "padded text differs from the text alone"),
]
RIGHT = [
    ("pad_mask", "scores.masked_fill(pad_mask[:, None, None, :] == 0, -1e9)"),
    ("attention_mask", "scores.masked_fill(attention_mask[:, None, None, :] == 0, -1e9)"),
    ("valid_lens", "scores.masked_fill((torch.arange(T) >= valid_lens[:, None])[:, None, None], -1e6)"),
    ("padding_mask", "scores + padding_mask"),
]


@pytest.mark.parametrize(("hide", "name"), WRONG, ids=[name for _, name in WRONG])
def test_padding_that_is_seen_is_named(hide, name, tmp_path):
    assert names(broken(tmp_path, HIDE, hide)) == [name]


@pytest.mark.parametrize(("argument", "hide"), RIGHT, ids=[argument for argument, _ in RIGHT])
def test_padding_is_right_in_every_usual_form(argument, hide, tmp_path):
    verdict = broken(tmp_path, HIDE, hide, ARGUMENT, argument, "context=None, ", "", "context", "None")
    assert names(verdict) == []
    assert "padding" in verdict.checked


def test_lengths_that_are_inverted_are_named(tmp_path):
    hide = "scores.masked_fill((torch.arange(T) < lengths[:, None])[:, None, None], -1e6)"
    assert names(broken(tmp_path, HIDE, hide, ARGUMENT, "lengths")) == ["padding mask inverted"]


def test_a_mask_that_is_inverted_against_its_documentation_is_named(tmp_path):
    doc = ("class Attention(nn.Module):\n", 'class Attention(nn.Module):\n    """mask: True = real token."""\n')
    assert names(broken(tmp_path, *doc)) == ["padding mask inverted"]
    assert names(broken(tmp_path, *doc, "masked_fill(key", "masked_fill(~key")) == []


def test_padding_that_is_dropped_where_the_future_is_hidden_is_found_by_padding_on_the_left(tmp_path):
    assert names(broken(tmp_path, "context=None, ", "", "context", "None", SCORES, SCORES + CAUSAL)) == []
    verdict = broken(tmp_path, "context=None, ", "", "context", "None", SCORES, SCORES + CAUSAL, HIDE, "scores")
    assert names(verdict) == ["padding mask ignored"]


def test_padding_of_a_context_is_that_of_its_tokens(tmp_path):
    needs = ("x, context=None", "x, context", "source = x if context is None else context", "source = context")
    assert names(broken(tmp_path, *needs, ARGUMENT, "context_mask")) == []
    verdict = broken(tmp_path, *needs, HIDE, "scores", ARGUMENT, "context_mask")
    assert names(verdict) == ["padding mask ignored"]


def test_an_argument_of_unknown_meaning_is_not_checked(tmp_path):
    odd = "scores * (1 + odd_mask[:, None, None, :].double().clamp(0, 1))"
    verdict = broken(tmp_path, HIDE, odd, ARGUMENT, "odd_mask", "context=None, ", "", "context", "None")
    assert verdict.not_checked == ["padding: what odd_mask means is not known"]


FOREIGN = ("context=None, ", "", "context", "None")


def documented(text, argument, hide):
    """Edits: an argument whose name says nothing, and a docstring that says what it is."""
    doc = f'class Attention(nn.Module):\n    """{text}"""\n'
    return (*FOREIGN, "class Attention(nn.Module):\n", doc, HIDE, hide, ARGUMENT, argument)


def test_an_argument_in_another_language_is_known_by_its_documentation(tmp_path):
    text = "relleno: (B, T), True en las posiciones de relleno"
    assert names(broken(tmp_path, *documented(text, "relleno", HIDE.replace(ARGUMENT, "relleno")))) == []
    of_all = "scores.masked_fill(relleno.all(dim=0), -torch.inf)"
    assert names(broken(tmp_path, *documented(text, "relleno", of_all))) == ["padded text differs from the text alone"]


def test_a_mask_that_is_inverted_against_a_foreign_text_is_named(tmp_path):
    text = "maska: (B, T), 1 - настоящее слово, 0 - дополнение"
    hide = "scores.masked_fill(maska[:, None, None, :].bool(), -torch.inf)"
    assert names(broken(tmp_path, *documented(text, "maska", hide))) == ["padding mask inverted"]


def test_a_mask_of_ones_that_is_added_as_it_is_is_named(tmp_path):
    text, hide = "yan_ma: (B, T), 1 = real, 0 = padding", "scores + yan_ma[:, None, None, :]"
    assert names(broken(tmp_path, *documented(text, "yan_ma", hide))) == ["padded text differs from the text alone"]
    text = "yan_ma: (B, T), 0 = real, -inf = padding"
    assert names(broken(tmp_path, *documented(text, "yan_ma", hide))) == []


@pytest.mark.parametrize(("sign", "found"), [(">=", []), (">", ["padded text differs from the text alone"])])
def test_lengths_that_are_required_are_tried_with_padding(sign, found, tmp_path):
    hide = f"scores.masked_fill((torch.arange(T) {sign} lengths[:, None])[:, None, None], -1e6)"
    needs = ("key_padding_mask=None", "key_padding_mask", "if key_padding_mask is not None:", "if True:")
    assert names(broken(tmp_path, *FOREIGN, *needs, HIDE, hide, ARGUMENT, "lengths")) == found


def test_a_mask_of_tokens_that_is_negated_in_place_is_named(tmp_path):
    hide = "scores.masked_fill(valid.logical_not_()[:, None, None, :], -torch.inf)"
    assert names(broken(tmp_path, *FOREIGN, HIDE, hide, ARGUMENT, "valid")) == ["in-place change of the caller's mask"]


def test_an_argument_that_is_no_mask_is_not_named(tmp_path):
    verdict = broken(tmp_path, *FOREIGN, HIDE, "scores * gain", ARGUMENT, "gain")
    assert names(verdict) == []
    assert not verdict.not_checked


def test_padding_that_takes_the_place_of_the_future_is_named(tmp_path):
    both = "        if key_padding_mask is None:\n    " + CAUSAL
    verdict = broken(tmp_path, "context=None, ", "", "context", "None", SCORES, SCORES + both)
    assert names(verdict) == ["no causal mask where padding is given"]


FUNCTION = """import torch


def attention(q, k, v, lengths=None):
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    if lengths is not None:
        padding = torch.arange(k.shape[-2]) >= lengths.view(-1, *[1] * (q.dim() - 1))
        scores = scores.masked_fill(padding, -torch.inf)
    return torch.softmax(scores, dim=-1) @ v
"""


def test_padding_of_a_function_is_what_the_formula_hides(tmp_path):
    right = checked(FUNCTION, tmp_path)
    assert right.is_right
    assert "padding" in right.checked
    for old, new, name in (
        ("-torch.inf", "-1.0", "padded text differs from the text alone"),
        (">=", "<", "padding mask inverted"),
        ("scores = scores.masked", "scores.masked", "padding mask ignored"),
    ):
        assert names(checked(FUNCTION.replace(old, new), tmp_path)) == [name]


def test_what_fails_whatever_is_passed_is_a_mistake_with_a_name(tmp_path):
    assert names(checked(FUNCTION.replace("(padding", "(pad"), tmp_path)) == ["unknown name"]
    assert names(broken(tmp_path, HIDE, HIDE.replace("_mask[", "_mask.cuda()["))) == ["hard-coded device"]
    verdict = broken(tmp_path, HIDE, "scores.masked_fill(key_padding_mask.view(-1, 7), -1e9)")
    assert names(verdict) == []
    assert verdict.not_checked[0].startswith("padding: it fails with key_padding_mask")


def test_padding_of_x_and_of_a_context_are_both_tried(tmp_path):
    both = (
        "class Attention(nn.Module):\n",
        'class Attention(nn.Module):\n    """encoder_padding_mask: (B, S), True = padding."""\n',
        "key_padding_mask=None",
        "key_padding_mask=None, encoder_padding_mask=None",
        "        if key_padding_mask is not None:\n",
        "        if context is not None:\n            key_padding_mask = {}\n"
        "        if key_padding_mask is not None:\n",
    )
    assert names(broken(tmp_path, *both[:5], both[5].format("encoder_padding_mask"))) == []
    assert names(broken(tmp_path, *both[:5], both[5].format("None"))) == ["padding mask ignored"]


def test_lengths_of_an_unknown_name_are_those_of_every_text(tmp_path):
    hide = "scores.masked_fill((torch.arange(T) >= {})[:, None, None], -1e6)"
    takes = ("context=None, ", "", "context", "None", ARGUMENT, "uzunluklar")
    assert names(broken(tmp_path, HIDE, hide.format("uzunluklar[:, None]"), *takes)) == []
    wrong = broken(tmp_path, HIDE, hide.format("uzunluklar[:1, None]"), *takes)
    assert names(wrong) == ["padding of one text used for all"]
