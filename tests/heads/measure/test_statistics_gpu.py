"""On the GPU: calls that are measured together have the statistics that they have alone."""

import pytest
import torch

import regard
from heads.dense import random_call
from heads.made_calls import moved_call
from regard.attention.masks import causal
from regard.heads.measure import statistics
from regard.heads.measure.registry import COLUMNS, DEFAULT, ROWS
from regard.heads.measure.statistics import WaitingCalls

pytestmark = pytest.mark.gpu
EVERY = frozenset({*DEFAULT, *ROWS, *COLUMNS})


@pytest.mark.parametrize("D", [64, 40])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("B", [1, 2])
def test_calls_of_one_form_are_measured_as_they_would_be_alone(B, dtype, D):
    ids = torch.randint(9, (B, 131), device="cuda")
    calls = [moved_call(random_call(B, 4, 131, D=D, Hkv=2, mask=causal(), tokens=ids), "cuda") for _ in range(3)]
    calls = [call.with_attention(q=call.attention.q.to(dtype), k=call.attention.k.to(dtype)) for call in calls]
    waiting = WaitingCalls()
    assert all(waiting.add(call) for call in calls)
    for call, measured in waiting.measured(EVERY):
        right = statistics.measure(call, EVERY)
        assert measured.keys() == right.keys()
        for name, value in right.items():
            torch.testing.assert_close(
                measured[name], value, rtol=0, atol=0, equal_nan=True, msg=lambda m, n=name: f"{n}: {m}"
            )


def test_a_model_that_runs_on_another_stream_is_measured_on_it():
    model = regard.GPT(regard.GPTConfig(vocab_size=11, context_length=64, num_layers=3, num_heads=2, d_model=32)).cuda()
    ids, stream = torch.randint(11, (2, 64), device="cuda"), torch.cuda.Stream()
    with regard.watch(model) as right:
        model(ids)
    torch.cuda.synchronize()
    # About half a second: what does not wait for the stream reads memory that is not written yet.
    with regard.watch(model) as seen:
        with torch.cuda.stream(stream):
            torch.cuda._sleep(1_000_000_000)
            model(ids)
        torch.cuda.current_stream().wait_stream(stream)
        with torch.cuda.stream(stream):
            torch.cuda._sleep(1_000_000_000)
    for layer in range(3):
        torch.testing.assert_close(seen[layer].entropy, right[layer].entropy, rtol=0, atol=0)
