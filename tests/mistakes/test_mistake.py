from mistakes.cases import random_case
from regard.mistakes.formula import Formula, keep
from regard.mistakes.mistake import formula_with, number_text, with_heads, with_mask, written_in
from regard.mistakes.search import MISTAKES


def test_a_sentence_has_the_numbers_of_the_layer():
    scale = next(one for one in MISTAKES if one.name == "scale by √d_model")
    said = scale.describe(random_case())
    assert said == "The scores are divided by √21, the width of all heads together; it is √head_dim = √7."


def test_every_mistake_says_what_why_and_how():
    for one in MISTAKES:
        said = one.describe(random_case(factor=0.125))
        assert said.endswith(".")
        assert "{" not in said
        assert one.why.endswith(".")
        assert one.fix


def test_some_mistakes_need_heads_or_a_mask():
    assert with_heads(random_case()) is True
    assert with_heads(random_case(H=1)) is False
    assert with_mask(random_case()) is True
    assert with_mask(random_case(causal=False)) is False


def test_a_factor_that_is_no_root_is_written_as_a_number():
    assert number_text(1 / 2.345678) == "divided by 2.346"


def test_a_mistake_may_replace_several_steps():
    after = next(one for one in MISTAKES if one.name == "scaled after the softmax")
    formula = formula_with([after])
    assert set(after.acts) == {"weigh", "scale"}
    assert formula.scale is keep
    assert formula.merge is Formula().merge


def test_a_mistake_that_the_text_must_show_is_tried_without_a_text():
    twice = [one for one in MISTAKES if one.name == "log-softmax for softmax"]
    assert written_in("", twice)
    assert written_in("F.log_softmax(scores, dim=-1)", twice)
    assert not written_in("F.softmax(scores, dim=-1)", twice)
