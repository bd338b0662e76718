"""Every benchmark at its smallest: it runs, and what computes something else is never timed."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import cut, generate, layer, memory, timing, train, watch, watch_cases
from benchmarks.__main__ import BENCHMARKS, main
from benchmarks.harness import Setting, WrongError, same_digits
from benchmarks.peers import CONTENDERS, OURS, TEXTBOOK, Shape, Weights, ask, distance, refusal
from benchmarks.timing import Timing, interleave, ratios, schedule
from benchmarks.twins import QUICK, twin
from benchmarks.watch_cases import HeadShape, by_definition
from regard.gpt import GPT
from regard.heads.measure import statistics
from regard.heads.measure.registry import DEFAULT

ROOT = Path(__file__).parents[1]
TINY = Shape(width=33, heads=3, batch=2, tokens=7)
TOY = QUICK.with_(vocab_size=101, context_length=17, num_layers=2, d_model=24, num_heads=3)
QUICKLY = ["--quick", "--device", "cpu", "--rounds", "2", "--seconds", "0.01"]
RUNS = {
    "layer": ["--shape", "33,3,2,7", "--only", "regard,textbook layer,bare split"],
    "watch": ["--heads", "3x8", "--tokens", "37", "--case", "kernel", "--case", "model"],
    "atlas": ["--tokens", "300"],
    "cut": ["--tokens", "37"],
    "written": ["--tokens", "37"],
    "generate": ["--prompt", "5", "--new", "3"],
    "train": ["--tokens", "13"],
}


@pytest.mark.parametrize("name", RUNS)
def test_a_benchmark_shows_tables_that_fit_and_leaves_a_file(name, tmp_path, capsys):
    pytest.importorskip("transformers")
    assert main([name, *QUICKLY, *RUNS[name], "--out", str(tmp_path)]) == 0
    results = json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8"))
    assert results["benchmark"] == name
    assert results["machine"]["command"].startswith(f"python -m benchmarks {name} --quick --device cpu")
    shown = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("→ ") for line in shown) >= 1
    assert max(len(line) for line in shown if str(tmp_path) not in line) <= 80
    assert not any("failed" in line or "not installed" in line for line in shown)


@pytest.mark.slow
def test_the_memory_of_a_layer_is_measured_in_a_process_of_its_own():
    assert memory.measure(OURS, Shape(32, 2, 1, 64)) < 1 << 30
    with pytest.raises(RuntimeError, match=r"it ended with status 1: .*No module named benchmarks\.nowhere"):
        memory.bytes_from_process(["benchmarks.nowhere"], "it")


def test_memory_of_statistics_grows_with_the_length_and_not_with_its_square():
    (case,) = watch.run(
        Setting("cpu", torch.float32), ["memory"], [HeadShape(3, 8)], {**watch.TOKENS["quick"], "memory": (4099,)}
    )["memory"]
    assert 0 < case["beyond_mib"] < case["weights_mib"] / 3


def test_the_list_of_benchmarks_is_shown_and_an_unknown_one_refused(capsys):
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert all(f"\n  {name} " in shown for name in BENCHMARKS)
    assert main(["layers"]) == 2
    assert f"there is no benchmark layers; choose one of {', '.join(BENCHMARKS)}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["layer", "--shape", "770,12,1,8"], "width 770 is not divisible by 12 heads; try 11, 14 or 22 heads"),
        (["layer", "--only", "nobody"], "nobody: no such contender; choose from regard, "),
        (["watch", "--heads", "12"], "--heads 12 must be heads x width in whole numbers above 0, such as 12x64"),
        (["generate", "--quick", "--new", "99"], "--prompt 7 and --new 99 do not fit quick's context of 64"),
        (["train", "--quick", "--model", "tiny"], "--quick has a model of its own; leave it out, or --model tiny"),
        (["cut", "--rounds", "0"], "--rounds 0 must be above 0"),
        (["memory", "--tokens", "0"], "--tokens 0 must be above 0"),
        (["train", "--out", "/dev/null/here"], "--out /dev/null/here cannot be written to: Not a directory"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_runs(words, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_a_script_is_started_by_its_file():
    done = subprocess.run(
        [sys.executable, "benchmarks/watch_host.py", "--case", "7", "--head-width", "4", "--rounds", "1"],
        cwd=ROOT, env={"PYTHONPATH": "src", "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "unwatched ms" in done.stdout


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", CONTENDERS)
def test_every_peer_agrees_with_float64(name, dtype):
    weights = Weights.random(TINY.width, dtype)
    try:
        built = CONTENDERS[name](TINY, weights).to(dtype)
    except ImportError as error:
        pytest.skip(f"{name} is not installed: {error}")
    assert refusal(distance(built, ask(TINY, weights, dtype, "cpu")), dtype) is None


class SeesTheFuture(torch.nn.Module):
    def __init__(self, right):
        super().__init__()
        self.right = right

    def forward(self, x):
        return self.right(x.flip(1)).flip(1)


def test_a_layer_that_is_wrong_missing_or_broken_is_noted_and_not_timed(monkeypatch, tmp_path):
    def missing(shape, weights):
        raise ImportError("No module named 'elsewhere'")

    right = CONTENDERS["bare split"]
    monkeypatch.setitem(CONTENDERS, "future", lambda shape, weights: SeesTheFuture(right(shape, weights)))
    monkeypatch.setitem(CONTENDERS, "missing", missing)
    monkeypatch.setitem(CONTENDERS, "broken", lambda shape, weights: 1 / 0)
    (case,) = layer.run(
        [TINY], [torch.float32], rounds=2, seconds=0.01, out_dir=tmp_path, only=[OURS, "future", "missing", "broken"]
    )["cases"]
    assert list(case["contenders"]) == [OURS]
    future, *others = case["notes"]
    assert future.startswith("future: not timed: its output is ")
    assert others == [
        "missing: not installed (No module named 'elsewhere')",
        "broken: failed: ZeroDivisionError: division by zero",
    ]


def test_the_expected_rows_are_those_of_the_whole_formula():
    shape = Shape(width=10, heads=2, batch=3, tokens=131)
    weights = Weights.random(shape.width, torch.float64)
    question = ask(shape, weights, torch.float64, "cpu")
    textbook = CONTENDERS[TEXTBOOK](shape, weights).double()
    assert len(set(question.rows.tolist())) == 64
    torch.testing.assert_close(question.out, textbook(question.x)[:, question.rows])
    x = question.x.clone().requires_grad_()
    torch.testing.assert_close(question.x_grad, torch.autograd.grad(textbook(x), x, question.grad)[0])


def _must_not_run(*args, **kwargs):
    raise AssertionError("something was timed")


@pytest.mark.parametrize("name", ["entropy", "largest_key", "received"])
def test_a_wrong_statistic_is_named_and_nothing_is_timed(name, monkeypatch, tmp_path):
    right = statistics.measure

    def wrong(call, collect):
        measured = right(call, collect)
        spoiled = measured[name].clone()
        if name == "largest_key":
            spoiled[0, 0, -1] = (spoiled[0, 0, -1] + 1) % call.sizes[3]
        else:
            spoiled[0, 0] = spoiled[0, 0] * 1.01 + 0.001
        return measured | {name: spoiled}

    monkeypatch.setattr(statistics, "measure", wrong)
    monkeypatch.setattr(timing, "interleave", _must_not_run)
    with pytest.raises(WrongError, match=rf"T=129, float32: {name} is .* away from float64, and 0.0001 is allowed"):
        watch.run(Setting("cpu", torch.float32), ["kernel"], [HeadShape(3, 8)], watch.TOKENS["quick"], tmp_path)
    assert not (tmp_path / "watch.json").exists()


def test_a_wrong_text_gradient_or_cut_is_refused_and_nothing_is_timed(monkeypatch, tmp_path):
    pytest.importorskip("transformers")
    monkeypatch.setattr(timing, "interleave", _must_not_run)
    monkeypatch.setattr(GPT, "generate", lambda *_, **__: [[5] * 3])
    setting = generate.GenerateSetting("cpu", torch.float32, prompt=5, new=3)
    with pytest.raises(WrongError, match=r"a token of ours is .* below the best"):
        generate.run(setting, {"toy": TOY}, [1], tmp_path)
    right = train.loss_of_theirs
    monkeypatch.setattr(train, "loss_of_theirs", lambda model, ids, targets: right(model, ids, ids))
    monkeypatch.setitem(train.TOLERANCE, "fp32", (1.0, 1e-3))  # losses at random tokens prove little
    with pytest.raises(WrongError, match=r"the gradient of transformers is .* away"):
        train.run(train.TrainSetting("cpu", "fp32", tokens=13), {"toy": TOY}, [2], tmp_path)
    same = torch.ones(1, 3, 5)
    with pytest.raises(WrongError, match="the logits are the same as without the cut"):
        cut.check({cut.BASE: lambda: same, cut.OURS: lambda: same}, torch.float32)
    assert not list(tmp_path.iterdir())


def test_the_twin_has_the_same_weights_and_gives_the_same_logits():
    pytest.importorskip("transformers")
    ours = GPT(TOY).eval()
    ids = torch.randint(0, 101, (2, 13))
    with torch.no_grad():
        torch.testing.assert_close(ours(ids), twin(ours)(ids).logits)


def test_the_reference_of_statistics_is_their_definition_written_out_in_loops():
    q, k, _ = watch_cases.draw(HeadShape(2, 5), 7, torch.float64, "cpu", sharp=True)
    _, measured = by_definition(q, k)
    expected = {name: torch.full_like(values, torch.nan) for name, values in measured.items() if name != "largest_key"}
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
            assert measured["largest_key"][0, h, i] == p.index(max(p))
    for name, values in expected.items():
        torch.testing.assert_close(measured[name], values, equal_nan=True)
    assert set(measured) == set(DEFAULT)


def test_calls_are_interleaved_in_a_new_order_each_round():
    ran = []

    def clock(call, times):
        call()
        return 0.06  # long enough that one call is one measurement

    timings = interleave({name: (lambda name=name: ran.append(name)) for name in "ab"}, clock, rounds=13, seed=5)
    timed = ran[2:]  # one call each to find out how long they take
    assert all(sorted(timed[i : i + 2]) == ["a", "b"] for i in range(0, 26, 2))
    assert timed != ["a", "b"] * 13
    assert timings["a"].rounds == 13
    assert [r for r, together in enumerate(schedule({"quick": 12, "slow": 3})) if "slow" in together] == [3, 7, 11]


def test_the_best_round_counts_on_a_cpu_and_the_median_on_a_gpu():
    best, median = (Timing(1.0, 1.8, rounds=3, calls=1, by_median=by_median) for by_median in (False, True))
    assert (best.counts, median.counts, best.is_noisy) == (1.0, 1.8, True)
    assert ratios({"a": best, "b": median}, "a") == {"a": 1.0, "b": 1.8}


def test_a_gpu_has_two_clocks_and_a_graph_that_cannot_be_captured_is_named(monkeypatch):
    def capture(call):
        if call() == "stubborn":
            raise RuntimeError("operation not permitted when stream is capturing")
        return call

    monkeypatch.setattr(timing, "eager", lambda call, times: 0.3)
    monkeypatch.setattr(timing, "device", lambda call, times: 0.2)
    monkeypatch.setattr(timing, "capture", capture)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    calls = {OURS: lambda: "willing", "other": lambda: "stubborn"}
    timings, failures = timing.measure_by_all_clocks(calls, Setting("cuda", torch.bfloat16, 2, 9.0), "toy")
    assert {clock: list(by_name) for clock, by_name in timings.items()} == {"eager": [OURS, "other"], "device": [OURS]}
    assert failures == {"other": "RuntimeError: operation not permitted when stream is capturing"}


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")  # torch's compiler warns, by version; as an error it would count as a failed peer
@pytest.mark.parametrize("name", RUNS)
def test_a_benchmark_runs_on_a_gpu(name, tmp_path):
    words = ["--quick", "--device", "cuda", "--rounds", "2", "--seconds", "0.1", "--out", str(tmp_path)]
    assert main([name, *words]) == 0


def test_the_numbers_of_a_column_share_their_digits():
    assert same_digits([0.125, 31.0]) == ["0.125", "31.000"]
    assert same_digits([250.0, None, 1000.25]) == ["250.0", "-", "1000.2"]
    assert same_digits([10.0, 11.5]) == ["10.00", "11.50"]
    assert same_digits([]) == []
