"""The operation that a trace shows is written from the calls that made the tensor."""

import torch
import torch.nn.functional as F
from torch import nn

from regard import step, trace
from regard.traces.labels import Owned, Owners


def operations(t):
    return {s.name: s.operation for s in t}


def test_a_tensor_from_outside_is_an_input():
    with trace() as t:
        step("x", X)
        step("y", X)
    assert operations(t) == {"x": "input", "y": "x"}


def test_names_follow_a_tensor_through_split_transpose_and_matrix_transpose():
    with trace() as t:
        q, k = step("queries", X), step("keys", X * 2)
        q = step("split", q.unflatten(-1, (3, 5)))
        q = step("transpose", q.transpose(1, 2))
        k = k.view(2, 7, 3, 5).permute(0, 2, 1, 3)
        step("scores", q @ k.mT)
    assert operations(t) == {
        "queries": "input",
        "keys": "queries × 2",
        "split": "unflatten(-1, (3, 5))",
        "transpose": "transpose(1, 2)",
        "scores": "queries @ keys.mT",
    }


def test_calls_between_two_steps_are_written_in_a_row():
    with trace() as t:
        x = step("x", X)
        step("heads", x.view(2, 7, 3, 5).transpose(1, 2))
        step("y", (x @ x.mT).transpose(1, 2).contiguous())
        step("z", F.gelu(x + 1, approximate="tanh") * x)
    assert operations(t) == {
        "x": "input",
        "heads": "view(2, 7, 3, 5).transpose(1, 2)",
        "y": "(x @ x.mT).transpose(1, 2).contiguous()",
        "z": "gelu(x + 1) × x",
    }


def test_joined_heads_take_the_name_of_their_step():
    with trace() as t:
        context = step("context", torch.randn(2, 3, 7, 5))
        back = step("back", context.transpose(1, 2))
        concat = step("concat", back.flatten(2))
        step("out", concat + 1)
    assert operations(t) == {
        "context": "randn(2, 3, 7, 5)",
        "back": "transpose(1, 2)",
        "concat": "flatten(2)",
        "out": "concat + 1",
    }


def test_masked_scores_are_still_scores_and_the_scale_is_the_root_of_what_was_summed():
    with trace() as t:
        q = step("queries", X[..., :9])
        scores = step("scores", q @ q.mT)
        masked = step("mask", scores.masked_fill(torch.eye(7).bool(), -torch.inf))
        step("scaled", masked / 3.0)
        step("scaled", masked * 9**-0.5)
    assert operations(t)["mask"] == "masked_fill(bool(eye(7)), −∞)"
    assert operations(t)["scaled"] == operations(t)["scaled 2"] == "scores / √9"


def test_dropped_weights_are_still_weights_and_dropout_is_shown_even_where_it_does_nothing():
    for training in (True, False):
        with trace() as t:
            weights = step("weights", X.softmax(-1))
            kept = step("dropout", F.dropout(weights, 0.5, training))
            step("context", kept @ kept.mT)
        assert operations(t)["dropout"] == "dropout(p=0.5)"
        assert operations(t)["context"] == "weights @ weights.mT"


def test_submodules_are_written_by_their_name_in_a_traced_block_too():
    class Small(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.up = nn.RMSNorm(15), nn.Linear(15, 4)

        def forward(self, x):
            step("x", x)
            step("widened", self.up(self.norm(x)))
            return step("same", F.linear(x.double(), self.up.weight.double()))

    module = Small()
    with trace() as t:
        module(X)
    assert operations(t) == operations(trace(module, X)) == {"x": "input", "widened": "up(norm(x))", "same": "up(x)"}


def test_a_weight_used_by_another_function_than_its_modules_is_written_by_its_name():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(11, 15)

        def forward(self, ids):
            x = step("x", self.table(ids))
            return step("logits", F.linear(x, self.table.weight))

    with trace() as t:
        Tied()(torch.arange(3))  # built inside: its weight was made by a torch function too
    assert operations(t) == {"x": "table(arange(3))", "logits": "linear(x, table.weight)"}


def test_a_part_of_a_weight_is_not_written_as_its_module():
    class Part(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.Linear(15, 4)

        def forward(self, x):
            return step("part", F.linear(step("x", x), self.up.weight[:3]))

    assert operations(trace(Part(), X))["part"] == "linear(x, up.weight)"


def test_copies_in_another_dtype_keep_name_and_operation():
    with trace() as t:
        x = step("x", X)
        step("sum", (x + 1).to(torch.float64).float().detach())
        step("twice", x.double() + x.clone())
    assert operations(t) == {"x": "input", "sum": "x + 1", "twice": "x + x"}


def test_a_copy_of_an_input_is_still_an_input():
    with trace() as t:
        step("x", X.double())
    assert operations(t) == {"x": "input"}


def test_changes_in_place_are_shown():
    with trace() as t:
        x = step("x", X.clone())
        step("more", x.add_(100))
        step("again", x)
    assert operations(t) == {"x": "input", "more": "add(100)", "again": "x"}


def test_parts_of_a_tensor_keep_its_name():
    with trace() as t:
        x = step("qkv", X)
        q, k, _ = x.chunk(3, dim=-1)
        step("queries", q)
        step("scores", q @ k.mT)
        step("row", x[0, 1:, :3])
    assert operations(t) == {
        "qkv": "input",
        "queries": "chunk(3, dim=-1)",
        "scores": "qkv @ qkv.mT",
        "row": "qkv[0, 1:, :3]",
    }


def test_a_long_expression_is_written_by_its_sizes_and_does_not_grow():
    with trace() as t:
        x = step("x", X)
        for _ in range(200):
            x = x + x * x
        step("long", x)
        for _ in range(200):
            x = x.transpose(0, 1)
        step("turned", x)
    assert len(operations(t)["long"]) < 200
    assert len(operations(t)["turned"]) < 200


def test_an_operation_given_by_the_step_is_the_one_that_is_shown():
    with trace() as t:
        x = step("x", X)
        step("mask", x.masked_fill(x > 0, -torch.inf), "−∞ unless causal")
    assert operations(t)["mask"] == "−∞ unless causal"


X = torch.randn(2, 7, 15, generator=torch.Generator().manual_seed(5))


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(3, 5), nn.LayerNorm(5)])
        self.register_buffer("mask", torch.ones(2))

    def look_for(self, owners, tensor):
        return owners.find(tensor)


def test_a_module_given_knows_its_parameters_and_buffers():
    outer = Outer()
    owners = Owners(outer)
    assert owners.find(outer.blocks[0].weight) == (outer.blocks[0], "blocks.0", "weight")
    assert owners.find(outer.blocks[1].bias) == (outer.blocks[1], "blocks.1", "bias")
    assert owners.find(outer.mask) == (outer, "", "mask")
    assert owners.find(torch.ones(2)) is None


def test_a_running_module_is_found_among_the_callers():
    outer, owners = Outer(), Owners()
    assert owners.find(outer.blocks[0].weight) is None
    assert outer.look_for(owners, outer.blocks[0].weight) == (outer.blocks[0], "blocks.0", "weight")


def test_the_parents_name_replaces_the_empty_one_of_the_module_itself():
    outer = Outer()
    owners = Owners(outer.blocks[0])
    assert owners.find(outer.blocks[0].weight).path == ""
    assert outer.look_for(owners, outer.blocks[0].weight).path == "blocks.0"


def test_a_path_is_shortened_to_its_last_word():
    names = {"blocks.0.attention.W_query": "W_query", "to_out.0": "to_out.0", "3": "3", "": ""}
    assert {path: Owned(nn.Identity(), path, "weight").short_path for path in names} == names


def test_a_module_stands_for_the_function_of_its_name():
    assert Owned(nn.LayerNorm(2), "norm", "weight").runs("layer_norm")
    assert not Owned(nn.Embedding(2, 3), "table", "weight").runs("linear")
    assert not Owned(nn.Linear(2, 3), "", "weight").runs("linear")  # without a name there is nothing to call it by
