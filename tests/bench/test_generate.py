"""The generation benchmark at toy size: a wrong text is never timed, and what is printed fits."""

import json
import subprocess
import sys

import pytest
import torch

from regard.bench import generate
from regard.bench.generate import GenerateSetting, build, bytes_read, calls, case_lines, check
from regard.bench.settings import WrongError
from regard.bench.twins import QUICK, twin
from regard.gpt import GPT

SETTING = GenerateSetting("cpu", torch.float32, prompt=5, new=7, rounds=2, seconds=0.01)
TOY = QUICK.with_(vocab_size=101, num_layers=1, d_model=24, num_heads=3)


@pytest.fixture(scope="module")
def ours():
    model = build(TOY, SETTING)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model


@pytest.fixture(scope="module")
def theirs(ours):
    pytest.importorskip("transformers")
    return twin(ours)


def test_everybody_writes_as_many_tokens_and_the_same(ours, theirs):
    ids = torch.randint(0, 101, (3, 5))
    told = calls(ours, theirs, ids, 7, cuda=False)
    assert list(told) == ["regard", "transformers"]
    first, second = (go() for go in told.values())
    assert first == second
    assert [len(row) for row in first] == [7, 7, 7]
    assert list(calls(ours, theirs, ids, 7, cuda=True))[-1] == "transformers, static cache"


def test_a_wrong_token_is_told_and_nothing_is_timed(ours, theirs, monkeypatch, tmp_path):
    ids = torch.randint(0, 101, (2, 5))
    right = ours.generate(ids, 7, temperature=0)
    assert check("toy", theirs, ids, right) <= 1e-4
    wrong = [right[0], [*right[1][:3], (right[1][3] + 1) % 101, *right[1][4:]]]
    with pytest.raises(
        WrongError, match=r"toy: a token of ours is .* below the best .* 0.0001 is allowed; nothing was"
    ):
        check("toy", theirs, ids, wrong)
    monkeypatch.setattr(generate.timing, "interleave", _must_not_run)
    monkeypatch.setattr(GPT, "generate", lambda *_, **__: [[5] * 7])
    with pytest.raises(WrongError):
        generate.run(SETTING, ["toy"], [1], tmp_path, configs={"toy": TOY}, show=lambda text: None)


def test_a_run_shows_tables_that_fit_and_leaves_a_file(tmp_path):
    pytest.importorskip("transformers")
    shown = []
    generate.run(SETTING, ["toy"], [1, 3], tmp_path, configs={"toy": TOY}, show=shown.append)
    found = json.loads((tmp_path / "generate.json").read_text(encoding="utf-8"))
    assert [case["batch"] for case in found["cases"]] == [1, 3]
    for case in found["cases"]:
        assert list(case["contenders"]) == ["regard", "transformers"]
        one = case["contenders"]["regard"]
        assert one["to_ours"] == 1
        assert one["tokens_s"] == pytest.approx(case["batch"] * 7 / one["best_s"])
        assert one["of_limit"] == pytest.approx(one["tokens_s"] / case["limit_tokens_s"])
        assert case["contenders"]["transformers"]["equal_tokens"] == 1
    text = "\n".join(shown).splitlines()
    assert max(map(len, text)) <= 80 or str(tmp_path) in max(text, key=len)
    assert sum(line.startswith("→ regard ") for line in text) == 2


def test_the_limit_counts_every_weight_that_a_token_needs():
    model = GPT(TOY.with_(tied=False))
    weights = sum(p.numel() for p in model.parameters())
    assert bytes_read(model) == 4 * (weights - 101 * 24 - 64 * 24)  # a row of each embedding is looked up, no more


def test_a_peer_that_fails_is_told_of_and_the_rest_is_measured(monkeypatch, tmp_path):
    pytest.importorskip("transformers")
    usual = generate.calls

    def failing(*args):
        return usual(*args) | {"transformers": lambda: 1 / 0}

    monkeypatch.setattr(generate, "calls", failing)
    found = generate.run(SETTING, ["toy"], [1], tmp_path, configs={"toy": TOY}, show=lambda text: None)
    case = found["cases"][0]
    assert list(case["contenders"]) == ["regard"]
    assert case["notes"][0] == "transformers: failed: ZeroDivisionError: division by zero"


def test_without_transformers_ours_is_measured(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "transformers", None)
    found = generate.run(SETTING, ["toy"], [1], tmp_path, configs={"toy": TOY}, show=lambda text: None)
    case = found["cases"][0]
    assert list(case["contenders"]) == ["regard"]
    assert any(note.startswith("transformers is not installed (") for note in case["notes"])


def test_tables_of_a_gpu_fit_80_columns():
    one = {"tokens_s": 65432.1, "to_ours": 12.345, "of_limit": 0.6, "peak_mib": 12345.6, "equal_tokens": 0.9921}
    case = {
        "label": "gpt2-medium, B=32 · prompt 64 + 128 new · bfloat16 · cuda",
        "limit_tokens_s": 123456.0,
        "bytes_a_step": 3.1e9,
        "contenders": dict.fromkeys([generate.OURS, generate.DEFAULT, generate.STATIC], one),
        "notes": ["transformers, static cache: failed: " + 20 * "for a long reason "],
    }
    lines = case_lines(case)
    assert max(map(len, lines)) <= 80
    assert "99.2%" in lines[3]


@pytest.mark.parametrize(
    "words, message",
    [
        (["--model", "gpt2-smal"], "no preset is called 'gpt2-smal'; there are tiny, gpt2-small"),
        (["--batch", "0"], "--batch 0 must be above 0"),
        (["--new", "-3"], "--new -3 must be above 0"),
        (["--prompt", "1000"], "--prompt 1000 and --new 128 do not fit gpt2-small's context of 1024"),
        (["--device", "nowhere"], "nowhere"),
    ],
)
def test_a_wrong_command_line_says_what_would_be_right(words, message, capsys):
    with pytest.raises(SystemExit):
        generate.main(words)
    assert message in capsys.readouterr().err


def test_the_command_line_runs_what_it_is_told(tmp_path, capsys):
    pytest.importorskip("transformers")
    assert generate.main(["--quick", "--device", "cpu", "--batch", "2", "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "generate.json").read_text(encoding="utf-8"))
    assert (
        found["machine"]["command"]
        == f"python -m regard.bench.generate --quick --device cpu --batch 2 --out {tmp_path}"
    )
    assert "time ÷ ours" in capsys.readouterr().out


def test_importing_the_benchmark_loads_no_peer_and_nothing_that_draws():
    heavy = "{'typer', 'rich', 'matplotlib', 'transformers', 'triton', 'tokenizers', 'huggingface_hub'}"
    code = f"import sys, regard.bench.generate; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")  # torch's compiler warns, by version; as an error it would count as a failed peer
def test_on_a_gpu_the_static_cache_is_measured_too(tmp_path):
    setting = GenerateSetting("cuda", torch.bfloat16, prompt=5, new=7, rounds=2, seconds=0.1)
    found = generate.run(setting, ["toy"], [1], tmp_path, configs={"toy": QUICK}, show=lambda text: None)
    assert list(found["cases"][0]["contenders"]) == [generate.OURS, generate.DEFAULT, generate.STATIC]


def _must_not_run(*args, **kwargs):
    raise AssertionError("something was timed")
