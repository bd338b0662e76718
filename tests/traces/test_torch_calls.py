import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers import Textbook
from regard import step, trace


class Homework(nn.Module):
    """Attention as a learner writes it: no step is named."""

    def __init__(self):
        super().__init__()
        self.q = nn.Linear(6, 5, bias=False)
        self.k = nn.Linear(6, 5, bias=False)
        self.v = nn.Linear(6, 5)

    def forward(self, x):
        q, k, v = self.q(x), self.k(x), self.v(x)
        scores = q @ k.transpose(-2, -1)
        scores = scores / 5**0.5
        scores = scores.masked_fill(torch.ones(7, 7).triu(1).bool(), float("-inf"))
        return F.dropout(scores.softmax(dim=-1), 0.0) @ v


def test_a_module_that_names_nothing_is_told_in_the_words_of_attention():
    homework, x = Homework(), torch.randn(2, 7, 6)
    t = trace(homework, x)
    assert [name for name in t.names if name in {"q", "k", "v", "scores", "scaled", "mask", "weights", "context"}] == [
        "q", "k", "v", "scores", "scaled", "mask", "weights", "context",
    ]  # fmt: skip
    torch.testing.assert_close(t["q"], homework.q(x))
    torch.testing.assert_close(t["scores"], homework.q(x) @ homework.k(x).mT)
    torch.testing.assert_close(t["scaled"], t["scores"] / 5**0.5)
    torch.testing.assert_close(t["weights"], t["mask"].softmax(-1))
    torch.testing.assert_close(t["context"], t.out)
    torch.testing.assert_close(t.out, homework(x))


def test_the_textbooks_layer_is_traced_whole():
    book = Textbook(d_in=6, d_out=10, context_length=11, dropout=0.0, num_heads=2)
    x = torch.randn(2, 7, 6)
    t = trace(book, x)
    shapes = {s.name: s.shape for s in t}
    assert shapes["W_query"] == shapes["W_key"] == shapes["W_value"] == (2, 7, 10)
    assert shapes["scores"] == shapes["mask"] == shapes["weights"] == (2, 2, 7, 7)
    assert shapes["context"] == (2, 2, 7, 5)
    assert shapes["out_proj"] == (2, 7, 10)
    assert torch.equal(t["mask"].isinf(), torch.ones(7, 7).triu(1).bool().expand(2, 2, 7, 7))
    torch.testing.assert_close(t["out_proj"], book(x))


def test_scores_masked_in_place_keep_what_they_were():
    book = Textbook(d_in=6, d_out=10, context_length=11, dropout=0.0, num_heads=2)
    assert trace(book, torch.randn(2, 7, 6))["scores"].isfinite().all()


def test_operations_say_what_was_done_to_which_sizes():
    t = trace(Homework(), torch.randn(2, 7, 6))
    operations = {s.name: s.operation for s in t}
    assert operations["q"] == "q(2×7×6)"
    assert operations["scores"] == "2×7×5 @ 2×5×7"
    assert operations["transpose"] == "transpose(-2, -1)"


def test_a_block_without_a_module_is_followed_too():
    x = torch.randn(3, 5)
    with trace() as t:
        y = torch.softmax(x @ x.mT, dim=-1) @ x
    assert [name for name in t.names if name in {"scores", "weights", "context"}] == ["scores", "weights", "context"]
    torch.testing.assert_close(t["context"], y)


def test_two_heads_one_after_the_other_get_numbers():
    t = trace(nn.Sequential(Homework(), nn.Linear(5, 6), Homework()), torch.randn(2, 7, 6))
    assert {"0.q", "1", "2.q", "scores", "scores 2", "weights", "weights 2", "context", "context 2"} <= set(t.names)


def test_named_steps_take_the_place_of_operations():
    with trace() as t:
        step("sum", torch.ones(3) + torch.ones(3))
    assert t.names == ["sum"]


def test_outside_a_trace_nothing_is_written_down():
    with trace() as t:
        pass
    torch.ones(3).softmax(-1)
    assert t.names == []


def test_a_forgotten_super_init_is_named_with_its_remedy():
    class Forgetful(nn.Module):
        def __init__(self):
            self.width = 3

        def forward(self, x):
            return x

    remedy = r"Forgetful.__init__ never called super\(\).__init__\(\).*; make super\(\).__init__\(\) the first line of __init__"
    with pytest.raises(ValueError, match=remedy):
        trace(Forgetful(), torch.ones(3))
    with pytest.raises(ValueError, match=remedy):
        trace(nn.Sequential(nn.ReLU(), Forgetful()), torch.ones(3))


def test_a_forgotten_super_init_is_named_where_the_layer_is_built():
    class Forgetful(nn.Module):
        def __init__(self):
            self.W_query = nn.Linear(3, 2)

    with pytest.raises(ValueError, match=r"Forgetful.__init__ never called super\(\).__init__\(\)"), trace():
        Forgetful()


@pytest.mark.parametrize("sizes", [(2, 5, 6), ((2, 5, 6),)], ids=["numbers", "a tuple"])
def test_view_after_transpose_says_contiguous(sizes):
    class Joined(nn.Module):
        def forward(self, x):
            return x.transpose(1, 2).view(*sizes)

    message = (
        r"view\(2, 5, 6\) needs memory in order, but this 2×5×3×2 tensor was transposed \(strides \(30, 2, 10, 1\)\); "
        r"call .contiguous\(\) before .view\(\), or use .reshape\(2, 5, 6\)"
    )
    with pytest.raises(ValueError, match=message):
        trace(Joined(), torch.randn(2, 3, 5, 2))


@pytest.mark.parametrize("shape", [(2, 7, 5), (7, 5), (5,)])
def test_a_wrong_input_width_says_both_widths(shape):
    message = r"x has width 5 but this linear layer takes 6; project it first, or build the layer with 5"
    with pytest.raises(ValueError, match=message):
        trace(nn.Linear(6, 3), torch.randn(shape))


def test_any_other_error_is_left_as_it_is():
    class Wrong(nn.Module):
        def forward(self, x):
            return x @ x

    with pytest.raises(RuntimeError, match=r"must match|cannot be multiplied") as caught:
        trace(Wrong(), torch.randn(3, 5))
    assert caught.value.__cause__ is None


def test_a_reason_is_given_only_where_the_step_is_known():
    class Mine(nn.Module):
        def forward(self, x):
            return (x @ x.transpose(1, 2)).softmax(-1) @ x

    reasons = {step.name: step.why for step in trace(Mine(), torch.randn(2, 5, 3))}
    assert reasons == {
        "transpose": "",
        "scores": "every query, every key",
        "weights": "each row sums to 1",
        "context": "values mixed by weight",
    }
