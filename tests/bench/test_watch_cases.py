"""What the watch benchmark runs, and the checks before it is timed."""

import math
import re

import pytest
import torch

from regard.bench import watch_cases
from regard.bench.settings import WrongError
from regard.bench.watch_cases import HeadShape, ModelShape, away, by_definition
from regard.heads.measure.registry import DEFAULT

TINY = HeadShape(3, 8)
MODEL = ModelShape("a toy", layers=2, heads=3, width=4, vocabulary=31)


def test_the_reference_is_the_definition_written_out_in_loops():
    q, k, _ = watch_cases.draw(HeadShape(2, 5), 7, torch.float64, "cpu", sharp=True)
    weights, found = by_definition(q, k)
    expected = {name: torch.full_like(values, torch.nan) for name, values in found.items() if name != "largest_key"}
    expected["received"].zero_()
    for h in range(2):
        for i in range(7):
            scores = [float(q[0, h, i] @ k[0, h, j]) / math.sqrt(5) for j in range(i + 1)]
            total = math.fsum(map(math.exp, scores))
            p = [math.exp(score) / total for score in scores]
            row = {
                "lse": math.log(total),
                "entropy": -math.fsum(w * math.log(w) for w in p),
                "largest": max(p),
                "distance": math.fsum(w * (i - j) for j, w in enumerate(p)),
                "sink": p[0],
                "previous": p[i - 1] if i else math.nan,
                "self": p[i],
                "next": 0.0 if i < 6 else math.nan,
            }
            for name, value in row.items():
                expected[name][0, h, i] = value
            expected["received"][0, h, : i + 1] += torch.tensor(p, dtype=torch.float64)
            assert found["largest_key"][0, h, i] == p.index(max(p))
            torch.testing.assert_close(weights[0, h, i, : i + 1], torch.tensor(p, dtype=torch.float64))
    for name, values in expected.items():
        torch.testing.assert_close(found[name], values, equal_nan=True)
    assert set(found) == set(DEFAULT)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_every_statistic_passes_the_check(dtype):
    errors = watch_cases.check(TINY, 131, dtype, "cpu")
    assert tuple(errors) == DEFAULT
    assert max(errors.values()) <= watch_cases.TOLERANCE[dtype]


def test_explicit_weights_give_what_fused_ones_give():
    q, k, v = watch_cases.draw(TINY, 37, torch.float32, "cpu")
    out, found = watch_cases.with_explicit_weights(q, k, v)
    fused, seen = watch_cases.with_statistics(q, k, v)
    torch.testing.assert_close(out, fused)
    assert torch.equal(fused, watch_cases.alone(q, k, v))
    for name, values in seen.items():
        torch.testing.assert_close(found[name], values, equal_nan=True)


def test_distance_is_relative_and_minds_what_is_not_there():
    assert away(torch.tensor([1.0, 3.0]), torch.tensor([2.0, 2.0])) == 0.25
    assert away(torch.zeros(3), torch.zeros(3)) == 0
    assert away(torch.tensor([1.0, torch.nan]), torch.tensor([1.0, 1.0])) == math.inf
    assert away(torch.ones(2), torch.ones(3)) == math.inf


def test_a_peer_that_is_wrong_is_not_timed():
    told = (TINY, torch.float32, "cpu")
    assert watch_cases.check_column_sum(lambda q, k, v: by_definition(q, k)[1]["received"], *told) is None
    excuse = watch_cases.check_column_sum(lambda q, k, v: q[..., 0], *told)
    assert re.fullmatch(r"not timed: it is .* away from float64, and 0.02 is allowed", excuse)


def test_a_process_that_fails_says_why():
    with pytest.raises(RuntimeError, match=r"peak_beyond_inputs at T=-3 ended with status 1: RuntimeError: .*-3"):
        watch_cases.in_a_new_process("peak_beyond_inputs", heads=TINY, T=-3, dtype=torch.float32)


def test_the_memory_of_a_model_is_measured_too():
    pytest.importorskip("transformers")
    assert 0 <= watch_cases.peak_of_model(watch_cases.WATCHED, MODEL, 37, torch.float32, "cpu") < 1 << 30


def test_a_model_whose_output_or_layers_change_is_not_timed():
    out = torch.ones(1, 5, 7)
    calls = {watch_cases.UNWATCHED: lambda: out, watch_cases.WATCHED: lambda: (1.1 * out, "12")}
    with pytest.raises(WrongError, match=r"a toy: the watched output is 0.1 away from the unwatched one, and 0.0001"):
        watch_cases.check_models(calls, MODEL, torch.float32)
    calls[watch_cases.WATCHED] = lambda: (out, "1")
    with pytest.raises(WrongError, match="a toy: 1 layers were seen and 2 ran; nothing was timed"):
        watch_cases.check_models(calls, MODEL, torch.float32)
