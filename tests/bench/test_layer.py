"""The layer benchmark at toy size: everybody is right or is not timed, and what is printed fits."""

import json
import re
import subprocess
import sys

import pytest
import torch

from regard.bench import layer, memory, peers
from regard.bench.peers import CONTENDERS, OURS, TEXTBOOK, Shape, Weights, ask, distance, refusal
from regard.bench.report import Progress
from regard.bench.tables import panels, summary, summary_lines, tables

TINY = Shape(width=33, heads=3, batch=2, tokens=7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", CONTENDERS)
def test_every_peer_agrees_with_float64(name, dtype):
    weights = Weights.random(TINY.width, dtype)
    try:
        built = CONTENDERS[name](TINY, weights).to(dtype)
    except ImportError as error:
        pytest.skip(f"{name} is not installed: {error}")
    assert refusal(distance(built, ask(TINY, weights, dtype, "cpu")), dtype) is None


def test_the_answers_are_those_of_the_whole_formula_where_only_some_rows_are_asked_for():
    shape = Shape(width=10, heads=2, batch=3, tokens=131)
    weights = Weights.random(shape.width, torch.float64)
    question = ask(shape, weights, torch.float64, "cpu")
    documents = CONTENDERS[TEXTBOOK](shape, weights).double()
    assert question.rows.tolist()[0] == 0
    assert question.rows.tolist()[-1] == 130
    assert len(set(question.rows.tolist())) == 64
    torch.testing.assert_close(question.out, documents(question.x)[:, question.rows])
    x = question.x.clone().requires_grad_()
    torch.testing.assert_close(question.x_grad, torch.autograd.grad(documents(x), x, question.grad)[0])


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
    layer._measure(calls, "step", "cuda", found, notes, 3, 9.0, 0, "toy", Progress())
    assert {name: list(c["times"]) for name, c in found.items()} == {OURS: ["eager", "device"], "other": ["eager"]}
    assert found[OURS]["times"]["device"]["step"]["best_ms"] == pytest.approx(200.0)
    assert found["other"]["peak_mib"] == {"step": 3.0}
    why = "RuntimeError: operation not permitted when stream is capturing"
    assert notes == [f"other: no device time for step: {why}"]


@pytest.mark.gpu
def test_a_gpu_is_timed_by_both_clocks_and_its_memory_is_counted(tmp_path):
    show = {"show": lambda text: None}
    found = layer.run([Shape(64, 2, 2, 128)], [torch.bfloat16], "cuda", rounds=2, out_dir=tmp_path, seconds=0.1, **show)
    ours = found["cases"][0]["contenders"][OURS]
    for clock in ("device", "eager"):
        assert set(ours["times"][clock]) == {"forward", "step"}
    assert ours["peak_mib"]["step"] > ours["peak_mib"]["forward"] > 0


def test_tables_of_a_gpu_fit_80_columns_and_have_the_fastest_first():
    case = _made_up_case()
    lines = [*tables(case), *summary_lines(summary([case]))]
    assert max(map(len, lines)) <= 80
    assert sum(line.startswith("→ regard") for line in lines) == 2  # a table for each clock
    names = [line[2:27].strip() for line in tables(case)]
    assert names.index("bare split") < names.index("regard") < names.index("textbook layer compiled")
    assert any("fwd MiB" in line for line in lines)
    assert [p.bars[0][0] for p in panels(case)] == ["bare split", "bare split"]


def test_a_noisy_run_says_so():
    case = _made_up_case()
    assert not any("noisy" in line for line in tables(case))
    case["contenders"]["bare split"]["times"]["device"]["step"] = dict(
        case["contenders"]["bare split"]["times"]["device"]["step"], median_ms=7.0
    )
    assert [line for line in tables(case) if "noisy" in line] == [
        "  noisy: the median of bare split, step, is 3.5 × its best"
    ]


def test_the_summary_holds_compiled_contenders_against_compiled_ones():
    entries = summary([_made_up_case()])
    device = [e for e in entries if e["clock"] == "device" and e["mode"] == "step"]
    assert [(e["compiled"], e["fastest"]) for e in device] == [(False, "bare split"), (True, "regard compiled")]
    assert device[0]["ours_to_fastest"] == pytest.approx(1.25)
    assert device[0]["textbook_to_ours"] is None
    assert device[1]["textbook_to_ours"] == pytest.approx(54600 / 2.0)


@pytest.mark.parametrize(
    "words, message",
    [
        (["--shape", "768,12"], "--shape 768,12 must be four whole numbers E,H,B,T, such as 768,12,2,1024"),
        (["--shape", "770,12,1,8"], r"width \(770\) must be a multiple of heads \(12\)"),
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


def test_memory_is_measured_in_a_process_of_its_own():
    assert 1_000_000 < memory.measure(OURS, Shape(64, 2, 1, 4099), timeout=120.0) < 1_000_000_000


def test_the_documents_memory_is_estimated_where_it_does_not_fit(monkeypatch, capsys):
    monkeypatch.setattr(memory, "measure", lambda name, shape: 345_600_000)
    monkeypatch.setattr(memory, "free_memory", lambda on: 9_000_000_000)
    assert memory.main(["--textbook"]) == 0
    out = capsys.readouterr().out
    assert "regard                   346 MB  measured" in out
    assert "MB  estimated (free memory: 9,000 MB)" in out
    assert max(map(len, out.splitlines())) <= 80


def _run(where, shape=TINY, **told):
    told = {"show": lambda text: None, **told}
    return layer.run([shape], [torch.float32], "cpu", rounds=2, out_dir=where, seconds=0.01, **told)


def _made_up_case():
    def times(best):
        found = {
            "median_ms": best,
            "rounds": 9,
            "calls": 3,
            "to_fastest": 1.0,
            "to_ours": best / 2.5,
            "best_ms": best,
            "ms": best,
        }
        return {clock: {"forward": found, "step": found} for clock in ("device", "eager")}

    best = {"regard": 2.5, "bare split": 2.0, "textbook layer compiled": 54600.0, "regard compiled": 2.0}
    return {
        "label": "4096 wide, 32 heads, B=2 T=16384",
        "dtype": "bfloat16",
        "device": "cuda",
        "notes": ["x-transformers: not installed (No module named 'x_transformers')"],
        "contenders": {
            name: {"times": times(ms), "peak_mib": {"forward": 19_700.0, "step": 54_600.0}} for name, ms in best.items()
        },
    }
