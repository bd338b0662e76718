import torch
from torch.testing import assert_close

from mistakes.cases import mistake, random_case
from regard.mistakes.search import MISTAKES
from regard.school.check.compare.constructor_arguments import PROBES
from regard.school.check.compare.experiment import experiment
from regard.school.check.explain.examples import counterexample, tiny_example
from regard.school.check.request import Request
from school.check.learner import edited, subject_of


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
