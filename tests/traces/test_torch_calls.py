import torch
import torch.nn.functional as F
from torch import nn

from helpers import Textbook
from regard import step, trace
from regard.traces.torch_calls import OUTSIDE, Lineage, TorchCalls, ancestors, descendants


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


def test_a_module_that_names_nothing_gets_the_names_of_attention():
    homework, x = Homework(), torch.randn(2, 7, 6)
    t = trace(homework, x)
    usual = ["q", "k", "v", "scores", "scaled", "mask", "weights", "context"]
    assert [name for name in t.names if name in usual] == usual
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


def test_outside_a_trace_nothing_is_recorded():
    with trace() as t:
        pass
    torch.ones(3).softmax(-1)
    assert t.names == []


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


def test_functions_called_by_keyword_are_recorded_too():
    x, w = torch.randn(3, 5), torch.randn(2, 5)
    with trace() as t:
        F.linear(input=x, weight=w)
        torch.matmul(input=x, other=w.mT)
    assert t.names == ["linear", "matmul"]


def test_paused_calls_are_not_recorded():
    with TorchCalls() as recorded:
        torch.ones(2).exp()
        with recorded.paused():
            torch.ones(2).sin()
        torch.ones(2).cos()
    assert [call.name for call in recorded.calls] == ["ones", "exp", "ones", "cos"]


def test_submodules_give_their_name_to_the_function_that_they_stand_for():
    class Normed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.LayerNorm(6)
            self.table = nn.Embedding(7, 6)

        def forward(self, ids):
            return self.first(self.table(ids))

    t = trace(Normed(), torch.arange(5))
    assert [(s.name, s.operation) for s in t] == [("table", "table(5)"), ("first", "first(5×6)")]


def test_a_step_knows_the_steps_it_was_made_from():
    x = torch.randn(3, 5)
    with trace() as t:
        a = step("a", x * 2)
        b = step("b", torch.ones(5))
        step("c", torch.cat([a.transpose(0, 1).mT, (a + b).relu()]))
    assert [s.inputs for s in t] == [(OUTSIDE,), (), (0, 1)]


def test_what_is_written_into_a_tensor_goes_with_it():
    x = torch.randn(3, 5)
    with trace() as t:
        a, b = step("a", x * 2), torch.zeros(3, 5)
        b[1] = a[0]
        step("b", b)
        c = torch.zeros(3, 5)
        c[0].copy_(a[1])  # by way of a view
        step("c", c)
        step("d", c.mul_(2))
    assert [s.inputs for s in t] == [(OUTSIDE,), (0,), (0,), (2,)]


def test_calls_of_code_that_names_nothing_have_inputs_too():
    q, k = torch.randn(3, 5), torch.randn(3, 5)
    with trace() as t:
        F.softmax(q @ k.mT, dim=-1) @ k
    assert t.names == ["scores", "weights", "context"]
    assert [s.inputs for s in t] == [(OUTSIDE,), (0,), (OUTSIDE, 1)]


def test_parts_of_one_tensor_were_made_from_the_same_step():
    x = torch.randn(3, 6)
    with trace() as t:
        a, b = step("whole", x + 1).chunk(2, dim=-1)
        step("a", a)
        step("sum", a + b)
    assert [s.inputs for s in t] == [(OUTSIDE,), (0,), (0, 1)]


def test_ancestors_and_descendants_are_direct_or_by_way_of_others():
    with trace() as t:
        a = step("a", torch.ones(2))
        b = step("b", a + 1)
        step("c", torch.ones(3))
        step("d", b * 2)
    assert ancestors(t.steps, 3) == {0, 1}
    assert descendants(t.steps, 0) == {1, 3}
    assert ancestors(t.steps, 2) == descendants(t.steps, 2) == set()


def test_a_tensor_that_nobody_made_is_from_outside():
    assert Lineage().mark(torch.ones(2), 7) == (OUTSIDE,)


def test_complex_scores_are_traced():
    def attention(q, k, v):
        return ((q @ k.mH) / 2).real.softmax(-1) @ v

    q, k = torch.randn(2, 5, 3, dtype=torch.complex64), torch.randn(2, 7, 3, dtype=torch.complex64)
    assert "weights" in trace(attention, q, k, torch.randn(2, 7, 3))
