"""What is recorded of a learner's code while it runs."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from regard.school.check.learner_code import driver
from regard.school.check.learner_code.recording import MOST_CALLS, Devices, Recorder
from school.check.learner import Learner

BUILD = {"d_in": 13, "d_out": 21, "context_length": 11, "dropout": 0.0, "num_heads": 3}
X = torch.randn(2, 5, 13, dtype=torch.float64)
CALL = {"args": ["x"]}


def run(target=Learner, tensors=None, **job):
    return driver.run(target, {"build": BUILD, "calls": [CALL], **job}, {"x": X, **(tensors or {})})


def recorded(function, **job):
    """The recorded calls of a function, and their values."""
    seen, returned = {"recorded": [], "dropped": []}, {}
    with Recorder({__file__}, {"record": True, **job}, seen, returned):
        function()
    return seen["recorded"], [returned[f"recorded.{i}"] for i in range(len(seen["recorded"]))]


def test_recorded_calls_have_lines_and_inputs():
    seen, tensors = run(record=True)
    softmax = next(i for i, call in enumerate(seen["recorded"]) if call["name"] == "softmax")
    line = (
        Path(sys.modules[Learner.__module__].__file__).read_text().splitlines()[seen["recorded"][softmax]["line"] - 1]
    )
    assert "torch.softmax(scores, dim=-1)" in line
    assert seen["recorded"][seen["recorded"][softmax]["inputs"][0]]["name"] == "masked_fill"
    assert tensors[f"recorded.{softmax}"].sum(-1).allclose(torch.ones(2, 3, 5, dtype=torch.float64))


def test_dropout_acts_only_where_it_is_asked_for():
    _, plain = run(train=True, seeds=True, calls=[CALL, CALL])
    assert plain["out.0.0"].equal(plain["out.1.0"])
    seen, dropped = run(train=True, seeds=True, calls=[CALL, CALL], dropout=0.5)
    assert not dropped["out.0.0"].equal(dropped["out.1.0"])
    assert seen["dropped"][0]["p"] == 0.5
    assert dropped["dropped.0"].shape == (2, 3, 5, 5)


def test_a_mask_that_stays_on_the_cpu_is_a_fault_of_devices():
    class Loose(Learner):
        def __init__(self, **sizes):
            super().__init__(**sizes)
            del self.mask
            self.mask = torch.ones(11, 11).triu(1).bool()

    assert run(devices=True)[0]["elsewhere"] is None
    assert run(Loose, devices=True)[0]["elsewhere"]["name"] == "masked_fill"


def test_infinities_become_large_numbers_on_request():
    class Infinite(nn.Module):
        def forward(self, x):
            return x.masked_fill(x > 0, torch.inf)

    _, tensors = run(Infinite, build={}, finite=True)
    assert tensors["out.0.0"].max() == 1e9


def test_dropout_acts_as_it_was_built_on_request():
    seen, _ = run(train=True, build={**BUILD, "dropout": 0.25}, drops=True)
    assert seen["dropped"][0]["p"] == 0.25


def test_a_property_and_an_assignment_in_place_are_calls_too():
    x = torch.randn(3, 3)

    def computes():
        y = x.mT
        y[0] = 0
        return y

    calls, values = recorded(computes)
    assert [call["name"] for call in calls] == ["mT", "setitem"]
    assert calls[1]["inputs"] == [0]
    assert values[1][0].tolist() == [0, 0, 0]


def test_an_equation_is_kept():
    x = torch.randn(2, 3)
    calls, _ = recorded(lambda: torch.einsum("ij,kj->ik", x, x))
    assert calls[0]["equation"] == "ij,kj->ik"
    assert calls[0]["line"] > 0


def test_the_fused_kernel_is_seen_in_steps():
    q = torch.randn(1, 2, 5, 4)
    calls, values = recorded(lambda: F.scaled_dot_product_attention(q, q, q, is_causal=True))
    weights = values[[call["name"] for call in calls].index("softmax")]
    assert weights.triu(1).eq(0).all()
    torch.testing.assert_close(weights @ q, values[-1])


def test_the_weights_inside_torchs_own_layer_are_seen():
    layer, x = nn.MultiheadAttention(6, 2, batch_first=True).train(), torch.randn(1, 3, 6)
    calls, _ = recorded(lambda: layer(x, x, x))
    assert "softmax" in [call["name"] for call in calls]


def test_no_more_than_so_many_calls_are_kept():
    x = torch.randn(3)
    calls, _ = recorded(lambda: [x + i for i in range(MOST_CALLS + 10)])
    assert len(calls) == MOST_CALLS


def test_what_is_moved_to_the_device_of_x_is_no_fault():
    x, mask = torch.randn(3, 3), torch.ones(3, 3).triu(1).bool()
    with Devices({__file__}, None, {"x": x}) as moved:
        x.masked_fill(mask.to(x.device), 0.0)
    assert moved.fault is None
    with Devices({__file__}, None, {"x": x}) as left:
        x.masked_fill(mask, 0.0)
    assert left.fault["name"] == "masked_fill"
