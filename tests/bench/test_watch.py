"""The watch benchmark at toy size: wrong statistics are never timed, and what is printed fits."""

import json
import math
import subprocess
import sys

import pytest
import torch

from regard.bench import watch, watch_cases
from regard.bench.progress import StageProgress
from regard.bench.settings import Setting, WrongError
from regard.bench.watch import case_lines, summary_lines
from regard.bench.watch_cases import HeadShape, ModelShape
from regard.heads.measure import statistics
from regard.heads.measure.registry import DEFAULT

TINY = HeadShape(3, 8)
SETTING = Setting("cpu", torch.float32, rounds=2, seconds=0.01)
MODEL = ModelShape("a toy", layers=2, heads=3, width=4, vocabulary=31)


@pytest.mark.parametrize("name", DEFAULT)
def test_a_wrong_statistic_is_named_and_nothing_is_timed(name, monkeypatch, tmp_path):
    right = statistics.measure

    def wrong(call, collect):
        found = right(call, collect)
        spoiled = found[name].clone()
        if name == "largest_key":
            spoiled[0, 0, -1] = (spoiled[0, 0, -1] + 1) % call.sizes[3]
        else:
            spoiled[0, 0] = spoiled[0, 0] * 1.01 + 0.001
        return found | {name: spoiled}

    monkeypatch.setattr(statistics, "measure", wrong)
    monkeypatch.setattr(watch.timing, "interleave", _must_not_run)
    message = rf"3 heads of 8, T=129, float32: {name} is .* away from float64, and 0.0001 is allowed; nothing was timed"
    with pytest.raises(WrongError, match=message):
        _run(tmp_path, ["kernel"])
    assert not (tmp_path / "watch.json").exists()


@pytest.mark.parametrize(
    "spoil, message",
    [
        (lambda found: {n: t for n, t in found.items() if n != "sink"}, "sink was not measured; nothing was timed"),
        (lambda found: found | {"self": found["self"] * math.nan}, "self is inf away from float64"),
    ],
)
def test_a_statistic_that_is_missing_or_not_a_number_is_wrong(spoil, message, monkeypatch, tmp_path, capsys):
    right = statistics.measure
    monkeypatch.setattr(statistics, "measure", lambda call, collect: spoil(right(call, collect)))
    with pytest.raises(SystemExit) as left:
        watch.main(["--quick", "--device", "cpu", "--case", "kernel", "--out", str(tmp_path)])
    assert left.value.code == 1
    assert message in capsys.readouterr().err


def test_a_run_writes_what_it_returns(tmp_path):
    shown = []
    found = _run(tmp_path, ["kernel"], tokens={"kernel": (37, 41)}, show=shown.append, command="python -m x")
    assert json.loads((tmp_path / "watch.json").read_text(encoding="utf-8")) == found
    assert list(found) == ["benchmark", "machine", "settings", "checks", "kernel"]
    assert found["settings"] == {"device": "cpu", "dtype": "float32", "rounds": 2, "seconds": 0.01, "seed": 0}
    assert found["machine"]["command"] == "python -m x"
    assert [(c["number"], c["width"], c["tokens"]) for c in found["checks"]] == [(3, 8, 129)]
    assert [case["tokens"] for case in found["kernel"]] == [37, 41]
    for case in found["kernel"]:
        assert list(case["times"]) == ["SDPA alone", "SDPA + statistics", "explicit weights + statistics"]
        assert not [note for note in case["notes"] if not note.startswith("noisy: ")]
        alone = case["times"]["SDPA alone"]["wall"]
        for times in case["times"].values():
            assert list(times) == ["wall"]
            assert times["wall"]["to_base"] == pytest.approx(times["wall"]["best_ms"] / alone["best_ms"])
            assert times["wall"]["rounds"] >= 2
    text = "\n".join(shown).splitlines()
    assert max(map(len, text)) <= 80 or str(tmp_path) in max(text, key=len)
    assert sum(line.startswith("→ SDPA + statistics ") for line in text) == 2
    assert any(line.startswith("  3 heads of 8      41 ") for line in text)


def test_explicit_weights_are_left_out_where_the_text_is_long_or_memory_short(monkeypatch):
    with StageProgress() as progress:
        monkeypatch.setattr(watch_cases, "EXPLICIT_UP_TO", 36)
        assert watch_cases.EXPLICIT not in watch._kernel(TINY, 37, SETTING, progress)["times"]
        monkeypatch.setattr(watch_cases, "EXPLICIT_UP_TO", 37)
        monkeypatch.setattr(watch.timing, "free_memory", lambda on: 1000)
        case = watch._kernel(TINY, 37, SETTING, progress)
    assert list(case["times"]) == ["SDPA alone", "SDPA + statistics"]
    assert case["notes"][0] == "explicit weights + statistics: not tried: needs 0 GiB and 0 GiB are free"


def test_a_gpu_has_two_clocks_and_what_cannot_be_captured_is_said_in_the_table(monkeypatch):
    def capture(call):
        if call() == "stubborn":
            raise RuntimeError("operation not permitted when stream is capturing")
        return call

    monkeypatch.setattr(watch.timing, "eager", lambda call, times: 0.3 if call() == "stubborn" else 0.1)
    monkeypatch.setattr(watch.timing, "device", lambda call, times: 0.2)
    monkeypatch.setattr(watch.timing, "capture", capture)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    calls = {watch_cases.SDPA: lambda: "willing", watch_cases.STATISTICS: lambda: "stubborn"}
    setting = Setting("cuda", torch.bfloat16, rounds=2, seconds=9.0)
    times, notes = watch._time(calls, watch_cases.SDPA, setting, "toy", StageProgress(), graphs=True)
    assert times[watch_cases.SDPA]["device"]["ms"] == pytest.approx(200.0)
    assert times[watch_cases.STATISTICS]["eager"]["to_base"] == pytest.approx(3.0)
    assert "device" not in times[watch_cases.STATISTICS]
    why = "RuntimeError: operation not permitted when stream is capturing"
    assert notes == [f"SDPA + statistics: eager clock only, it cannot be captured in a graph: {why}"]
    case = {"kind": "kernel", "label": "toy", "number": 3, "width": 8, "tokens": 7, "base": watch_cases.SDPA}
    case |= {"times": times, "notes": notes}
    lines = case_lines(case)
    rows = [line.split()[4:] for line in lines if line.startswith("→")]
    assert rows == [["-", "-"], ["300.0", "3.00"]]  # the device's clock, then the wall's
    assert "eager clock only" in "\n".join(lines)
    assert summary_lines([case])[-1].split()[5:] == ["200.0", "-", "-", "100.0", "300.0", "3.00"]


def test_a_noisy_run_says_so(monkeypatch):
    ticks = iter([1.0, 1.0, 2.5])
    monkeypatch.setattr(watch.timing, "wall", lambda call, times: next(ticks))
    _, notes = watch._time({"SDPA alone": lambda: None}, "SDPA alone", SETTING, "toy", StageProgress(), graphs=False)
    assert notes == ["noisy: SDPA alone: by the wall clock the median is 1.8 × the best"]


def test_tables_of_a_gpu_fit_80_columns():
    names = [watch_cases.SDPA, watch_cases.STATISTICS, watch_cases.EXPLICIT, watch_cases.COLUMN_SUM]
    times = {"ms": 1234.5, "to_base": 123.456}
    case = {
        "kind": "kernel",
        "label": "16 heads of 128, T=65536, causal, B=1 · bfloat16 · cuda",
        "number": 16,
        "width": 128,
        "tokens": 65536,
        "base": watch_cases.SDPA,
        "times": {name: {"device": times, "eager": times} for name in names},
        "notes": ["flash-colreduce: failed: " + 20 * "for a long reason "],
    }
    model = case | {"kind": "model", "base": watch_cases.UNWATCHED}
    model["times"] = {name: {"eager": times} for name in ("unwatched", "watched", "eager, output_attentions")}
    model["peak_mib"] = dict.fromkeys(model["times"], 81920.0)
    lines = [*case_lines(case), *summary_lines([case]), *case_lines(model)]
    assert max(map(len, lines)) <= 80
    assert any("flash-colreduce (one column statistic, no output)" in line for line in lines)
    assert any(line.endswith("81,920") for line in lines)


def test_memory_grows_with_the_length_and_not_with_its_square(tmp_path):
    found = _run(tmp_path, ["memory"], tokens={"memory": (4099,)}, show=lambda text: None)["memory"][0]
    assert 0 < found["beyond_mib"] < found["weights_mib"] / 3
    assert found["weights_mib"] == pytest.approx(3 * 4099**2 * 4 / 2**20)


def test_a_model_is_timed_watched_and_unwatched_and_its_output_stays(tmp_path):
    pytest.importorskip("transformers")
    shown = []
    case = _run(tmp_path, ["model"], tokens={"model": (37,)}, show=shown.append)["model"][0]
    assert list(case["times"]) == ["unwatched", "watched", "eager, output_attentions"]
    assert case["same_bits"] is True
    assert case["times"]["unwatched"]["wall"]["to_base"] == 1.0
    assert any(line.startswith("→ watched ") for line in "\n".join(shown).splitlines())


def test_without_transformers_the_rest_is_measured(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "transformers", None)
    case = _run(tmp_path, ["model"], tokens={"model": (37,)}, show=lambda text: None)["model"][0]
    assert case["times"] == {}
    assert case["notes"][0].startswith("not measured: transformers is not installed (")


@pytest.mark.parametrize(
    "words, message",
    [
        (["--heads", "12"], "--heads 12 must be heads x width in whole numbers above 0, such as 12x64"),
        (["--heads", "0x64"], "--heads 0x64 must be heads x width"),
        (["--tokens", "1"], "--tokens 1 must be at least 2: one token has nothing to look back at"),
        (["--tokens", "many"], "--tokens many must be a whole number"),
        (["--case", "nothing"], "--case nothing must be one of kernel, memory, model"),
        (["--rounds", "0"], "--rounds 0 must be above 0"),
        (["--seconds", "-1"], "--seconds -1.0 must be above 0"),
        (["--device", "nowhere"], "nowhere"),
    ],
)
def test_a_wrong_command_line_says_what_would_be_right(words, message, capsys):
    with pytest.raises(SystemExit):
        watch.main(words)
    assert message in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_device_that_is_not_there_is_said(capsys):
    with pytest.raises(SystemExit):
        watch.main(["--device", "cuda"])
    assert "there is no CUDA device here; try --device cpu" in capsys.readouterr().err


def test_the_command_line_runs_what_it_is_told(tmp_path, capsys):
    words = ["--quick", "--device", "cpu", "--case", "kernel", "--heads", "3x8", "--tokens", "37", "--dtype", "fp32"]
    assert watch.main([*words, "--seconds", "0.01", "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "watch.json").read_text(encoding="utf-8"))
    assert [(c["number"], c["width"], c["tokens"]) for c in found["kernel"]] == [(3, 8, 37)]
    assert found["machine"]["command"].startswith("python -m regard.bench.watch --quick --device cpu --case kernel")
    assert "× SDPA alone" in capsys.readouterr().out


def test_importing_the_benchmark_loads_no_peer_and_nothing_that_draws():
    heavy = "{'typer', 'rich', 'matplotlib', 'transformers', 'triton', 'flash_colreduce'}"
    code = f"import sys, regard.bench.watch; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.gpu
def test_on_a_gpu_statistics_are_captured_and_timed_by_both_clocks(tmp_path):
    setting = Setting("cuda", torch.bfloat16, rounds=2, seconds=0.1)
    tokens = {"kernel": (1024,), "memory": (4096,), "model": (1024,)}
    found = watch.run(setting, watch.KINDS, [HeadShape(3, 64)], tokens, tmp_path, model=MODEL, show=lambda text: None)
    for times in found["kernel"][0]["times"].values():
        assert set(times) == {"device", "eager"}
    assert 0 < found["memory"][0]["beyond_mib"] < found["memory"][0]["weights_mib"]
    peaks = found["model"][0]["peak_mib"]
    assert 0 < peaks["unwatched"] < peaks["watched"] < peaks["eager, output_attentions"]


def _run(where, kinds, tokens=None, **told):
    tokens = dict.fromkeys(watch.KINDS, (37,)) | (tokens or {})
    told = {"model": MODEL, "checked_at": (129,), "weigh_models": False, **told}
    return watch.run(SETTING, kinds, [TINY], tokens, where, **told)


def _must_not_run(*args, **kwargs):
    raise AssertionError("something was timed")
