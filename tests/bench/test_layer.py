"""The layer benchmark at toy size: everybody is right or is not timed, and what is printed fits."""

import json
import re
import subprocess
import sys

import pytest
import torch

from regard.bench import layer, peers
from regard.bench.peers import CONTENDERS, OURS, TEXTBOOK, Shape
from regard.bench.progress import StageProgress
from regard.bench.settings import Setting

TINY = Shape(width=33, heads=3, batch=2, tokens=7)


class SeesTheFuture(torch.nn.Module):
    def __init__(self, right):
        super().__init__()
        self.right = right

    def forward(self, x):
        return self.right(x.flip(1)).flip(1)


class ForgetsTheValues(torch.nn.Module):
    """Its output is right and its gradient is not."""

    def __init__(self, right):
        super().__init__()
        self.right = right

    def forward(self, x):
        return self.right(x).detach() + 0 * x


def test_a_wrong_contender_is_refused_and_the_note_says_how_wrong(monkeypatch, tmp_path):
    right = CONTENDERS["bare split"]
    monkeypatch.setitem(CONTENDERS, "future", lambda shape, weights: SeesTheFuture(right(shape, weights)))
    monkeypatch.setitem(CONTENDERS, "forgetful", lambda shape, weights: ForgetsTheValues(right(shape, weights)))
    found = _run(tmp_path, only=[OURS, "future", "forgetful"], modes=["forward"])
    case = found["cases"][0]
    assert list(case["contenders"]) == [OURS]
    future, forgetful = case["notes"]
    assert future.startswith("future: not timed: its output is ")
    assert future.endswith(" away from float64, and 0.0001 is allowed in float32")
    assert forgetful.startswith("forgetful: not timed: its input gradient is 1 away")


def test_a_peer_that_is_missing_or_breaks_is_noted_and_the_rest_is_measured(monkeypatch, tmp_path):
    def missing(shape, weights):
        raise ImportError("No module named 'elsewhere'")

    def broken(shape, weights):
        raise RuntimeError("\nno such kernel\nand a long story")

    monkeypatch.setitem(CONTENDERS, "missing", missing)
    monkeypatch.setitem(CONTENDERS, "broken", broken)
    case = _run(tmp_path, only=[OURS, "missing", "broken"], modes=["forward"])["cases"][0]
    assert case["notes"] == [
        "missing: not installed (No module named 'elsewhere')",
        "broken: failed: RuntimeError: no such kernel",
    ]
    assert list(case["contenders"]) == [OURS]


def test_what_does_not_fit_into_memory_is_not_tried(monkeypatch, tmp_path):
    shape = Shape(width=33, heads=3, batch=2, tokens=131)
    room = 2 * peers.memory_needed(OURS, shape, torch.float32)
    monkeypatch.setattr(layer.timing, "free_memory", lambda on: room)
    case = _run(tmp_path, shape, only=[OURS, TEXTBOOK], modes=["forward"])["cases"][0]
    assert list(case["contenders"]) == [OURS]
    assert case["notes"][0].startswith("textbook layer: not tried: it needs about ")


def test_a_run_writes_what_it_returns(tmp_path):
    shown = []
    found = _run(tmp_path, only=[OURS, TEXTBOOK, "bare split"], show=shown.append, command="python -m x")
    assert json.loads((tmp_path / "layer.json").read_text(encoding="utf-8")) == found
    assert found["machine"]["command"] == "python -m x"
    case = found["cases"][0]
    assert case["shape"] == {"width": 33, "heads": 3, "batch": 2, "tokens": 7, "name": ""}
    assert (case["dtype"], case["device"], case["notes"]) == ("float32", "cpu", [])
    for contender in case["contenders"].values():
        assert set(contender["times"]) == {"wall"}
        for mode in ("forward", "step"):
            times = contender["times"]["wall"][mode]
            assert times["rounds"] >= 2
            assert 0 < times["best_ms"] <= times["median_ms"]
    assert case["contenders"][OURS]["times"]["wall"]["step"]["to_ours"] == 1.0
    assert [(s["mode"], s["compiled"]) for s in found["summary"]] == [("forward", False), ("step", False)]
    text = "\n".join(shown).splitlines()
    assert max(map(len, text)) <= 80 or str(tmp_path) in max(text, key=len)
    assert any(line.startswith("→ regard ") for line in text)


def test_a_gpu_has_two_clocks_and_a_graph_that_cannot_be_captured_is_noted(monkeypatch):
    def capture(call):
        if call() == "stubborn":
            raise RuntimeError("operation not permitted when stream is capturing")
        return call

    monkeypatch.setattr(layer.timing, "eager", lambda call, times: 0.3)
    monkeypatch.setattr(layer.timing, "device", lambda call, times: 0.2)
    monkeypatch.setattr(layer.timing, "capture", capture)
    monkeypatch.setattr(layer.timing, "peak_memory", lambda call, on: 3 << 20)
    calls = {OURS: lambda: "willing", "other": lambda: "stubborn"}
    found = {name: {"times": {}, "peak_mib": {}} for name in calls}
    notes = []
    setting = Setting("cuda", torch.bfloat16, rounds=3, seconds=9.0)
    layer._measure(calls, "step", setting, {"contenders": found, "notes": notes}, "toy", StageProgress())
    assert {name: list(c["times"]) for name, c in found.items()} == {OURS: ["eager", "device"], "other": ["eager"]}
    assert found[OURS]["times"]["device"]["step"]["best_ms"] == pytest.approx(200.0)
    assert found["other"]["peak_mib"] == {"step": 3.0}
    why = "RuntimeError: operation not permitted when stream is capturing"
    assert notes == [f"other: no device time for step: {why}"]


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS, but there was no current CUDA context:UserWarning")
def test_a_gpu_is_timed_by_both_clocks_and_its_memory_is_counted(tmp_path):
    show = {"show": lambda text: None}
    found = layer.run([Shape(64, 2, 2, 128)], [torch.bfloat16], "cuda", rounds=2, out_dir=tmp_path, seconds=0.1, **show)
    ours = found["cases"][0]["contenders"][OURS]
    for clock in ("device", "eager"):
        assert set(ours["times"][clock]) == {"forward", "step"}
    assert ours["peak_mib"]["step"] > ours["peak_mib"]["forward"] > 0


@pytest.mark.parametrize(
    "words, message",
    [
        (["--shape", "768,12"], "--shape 768,12 must be four whole numbers E,H,B,T, such as 768,12,2,1024"),
        (
            ["--shape", "770,12,1,8"],
            "--shape 770,12,1,8: width 770 is not divisible by 12 heads; try 11, 14 or 22 heads",
        ),
        (["--shape", "768,12,0,8"], "--shape 768,12,0,8: every size must be at least 1, such as 768,12,2,1024"),
        (["--device", "abacus"], "--device abacus is none that torch knows; try cpu or cuda"),
        (["--only", "nobody"], "nobody: no such contender; choose from regard, "),
        (["--compiled", "nobody"], "nobody: no such contender"),
    ],
)
def test_a_wrong_command_line_says_what_would_be_right(words, message, capsys):
    with pytest.raises(SystemExit):
        layer.main(words)
    assert re.search(message, capsys.readouterr().err)


def test_the_command_line_runs_what_it_is_told(tmp_path, capsys):
    words = ["--shape", "33,3,2,7", "--only", "regard", "--mode", "step", "--quick", "--seconds", "0.01", "--out"]
    assert layer.main([*words, str(tmp_path)]) == 0
    found = json.loads((tmp_path / "layer.json").read_text(encoding="utf-8"))
    assert list(found["cases"][0]["contenders"]["regard"]["times"]["wall"]) == ["step"]
    assert found["machine"]["command"].startswith("python -m regard.bench.layer --shape 33,3,2,7")
    assert "step ms" in capsys.readouterr().out


def test_importing_the_benchmarks_loads_no_peer_and_nothing_that_draws():
    heavy = "{'typer', 'rich', 'matplotlib', 'transformers', 'x_transformers'}"
    code = f"import sys, regard.bench.layer, regard.bench.memory; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def _run(where, shape=TINY, **told):
    told = {"show": lambda text: None, **told}
    return layer.run([shape], [torch.float32], "cpu", rounds=2, out_dir=where, seconds=0.01, **told)
