import pytest

from school.check.learner import LESS, broken, names

RETURNED = "return (y, weights) if need_weights else y"
WRONG = {
    "weights.mT": "They are transposed: row i is what token i gets, not what it looks at.",
    "scores": "They are the scores, before the softmax.",
    "scores.exp()": "Their rows do not sum to 1.",
    "weights[:, :1].expand_as(weights)": "They are those of one head, in the place of every head.",
    "weights.flip(1)": "The output was made with other weights.",
    "F.dropout(weights, 0.5)": "Their rows do not sum to 1.",
}
RIGHT = ("weights", "weights.mean(1)", "weights.flatten(0, 1)", "list(weights.unbind(1))", "weights.transpose(0, 1)")


@pytest.mark.parametrize("form", WRONG)
def test_what_is_returned_and_was_not_used_is_a_mistake(form, tmp_path):
    held = f"other = {form}\n        return (y, other) if need_weights else y"
    verdict = broken(tmp_path, RETURNED, held)
    assert names(verdict) == ["returned weights are not the weights used"]
    assert verdict.mistakes[0].says == WRONG[form]


@pytest.mark.parametrize("form", RIGHT)
def test_usual_forms_of_the_weights_are_right(form, tmp_path):
    verdict = broken(tmp_path, RETURNED, f"return (y, {form}) if need_weights else y")
    assert verdict.is_right
    assert "returned weights" in verdict.checked
    assert broken(tmp_path, RETURNED, f"return y, {form}").is_right  # without being asked


def test_weights_before_the_mask_are_not_those_that_were_used(tmp_path):
    softmax, hidden = "weights = scores.softmax(-1)", "torch.ones_like(scores).triu(1) > 0"
    masked = f"{softmax}\n        mixed = scores.masked_fill({hidden}, -torch.inf).softmax(-1)"
    verdict = broken(
        tmp_path, *LESS, softmax, masked, "self.drop(weights)", "self.drop(mixed)", RETURNED, "return y, weights"
    )
    assert [one.says[:30] for one in verdict.mistakes] == ["They are taken before the mask"]


def test_scores_that_are_returned_as_scores_are_right(tmp_path):
    assert broken(tmp_path, RETURNED, "return y, scores").is_right


def test_the_weights_of_one_head_are_a_warning(tmp_path):
    verdict = broken(tmp_path, RETURNED, "return y, weights[:, 0]")
    assert verdict.is_right
    assert [one.name for one in verdict.warnings] == ["returned weights are of one head"]


def test_weights_in_an_unknown_form_are_not_checked(tmp_path):
    verdict = broken(tmp_path, RETURNED, "return y, weights.flatten(0, 1)[:4]")
    assert verdict.not_checked == ["returned weights: of the shape (4, 5, 5)"]


def documented(text):
    return ("class Attention(nn.Module):\n", f'class Attention(nn.Module):\n    """{text}"""\n')


def test_the_mean_is_wrong_where_the_text_speaks_of_every_head(tmp_path):
    mean = (RETURNED, "return y, weights.mean(1)")
    verdict = broken(tmp_path, *mean, *documented("Returns the output and the weights, (B, heads, T, T)."))
    assert names(verdict) == ["returned weights are the mean over the heads"]
    assert broken(tmp_path, *mean, *documented("Returns the mean of the weights (B, heads, T, T).")).is_right


@pytest.mark.parametrize(
    "text",
    [
        "Returns\n    y: (B, T, E)\n    weights: (B, heads, T, S)\n    ",
        "forward(x) -> y, maps of shape (B, heads, T, S)",
        "Attention that also returns one attention map per head.",
    ],
)
def test_every_head_is_spoken_of_in_several_ways(text, tmp_path):
    assert names(broken(tmp_path, RETURNED, "return y, weights.mean(1)", *documented(text))) == [
        "returned weights are the mean over the heads"
    ]
    assert broken(tmp_path, RETURNED, "return y, weights", *documented(text)).is_right


def test_shapes_of_steps_say_nothing_of_what_is_returned(tmp_path):
    steps = ("weights = scores.softmax(-1)", "weights = scores.softmax(-1)  # (B, T, S) -> (B, H, T, S), for each head")
    assert broken(tmp_path, RETURNED, "return y, weights.mean(1)", *steps).is_right


def test_weights_after_dropout_are_wrong_where_the_text_says_that_they_sum_to_1(tmp_path):
    dropped = (RETURNED, "return y, dropped")
    assert broken(tmp_path, *dropped, *documented("Returns the output and the weights.")).is_right
    told = documented("Returns the output and the weights;\n    their rows sum to 1.\n    ")
    assert names(broken(tmp_path, *dropped, *told)) == ["returned weights are after dropout"]
    assert broken(tmp_path, RETURNED, "return y, weights", *told).is_right


def test_scores_that_are_named_so_are_wrong_where_the_text_calls_them_weights(tmp_path):
    scores = (RETURNED, "return y, scores")
    assert broken(tmp_path, *scores).is_right
    verdict = broken(tmp_path, *scores, *documented("Returns the output and the attention weights."))
    assert names(verdict) == ["returned weights are not the weights used"]
