"""The training benchmark at toy size: both models learn the same from the same tokens, or nothing is timed."""

import dataclasses
import json
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

from regard.bench import train
from regard.bench.settings import WrongError
from regard.bench.train import Learner, Prepared, TrainSetting, batch_of, case_lines, check, flops, peak_flops
from regard.bench.twins import QUICK

SETTING = TrainSetting("cpu", "fp32", tokens=13, rounds=2, seconds=0.01)
TOY = QUICK.with_(vocab_size=101, context_length=17, num_layers=2, d_model=24, num_heads=3)


def quietly(setting=SETTING, batches=(2,), out="unused", **more):
    return train.run(setting, ["toy"], batches, out, configs={"toy": TOY}, show=lambda text: None, **more)


def test_both_models_learn_the_same_step_after_step():
    pytest.importorskip("transformers")
    ids, targets = batch_of(TOY, 3, SETTING)
    ours, theirs = (Learner(who, TOY, SETTING, 3) for who in SETTING.names)
    for _ in range(4):
        expected, found = ours.backward(ids, targets), theirs.backward(ids, targets)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(theirs.bottom.grad, ours.bottom.grad, rtol=1e-4, atol=1e-6)
        ours.update()
        theirs.update()
        torch.testing.assert_close(theirs.bottom, ours.bottom, rtol=1e-4, atol=1e-6)


def test_every_token_counts_in_their_loss_too():
    pytest.importorskip("transformers")
    ids, targets = batch_of(TOY, 3, SETTING)
    learner = Learner(train.THEIRS, TOY, SETTING, 3)
    with torch.no_grad():
        expected = F.cross_entropy(learner.model(ids).logits.flatten(0, 1), targets.flatten())
        torch.testing.assert_close(learner.loss(ids, targets), expected)
    assert ids.shape == targets.shape == (3, 13)
    torch.testing.assert_close(ids[:, 1:], targets[:, :-1])


@pytest.mark.parametrize("who", [train.OURS, train.THEIRS])
def test_a_step_moves_the_weights_and_leaves_no_gradient(who):
    pytest.importorskip("transformers")
    ids, targets = batch_of(TOY, 2, SETTING)
    learner = Learner(who, TOY, SETTING, 2)
    before = {name: p.detach().clone() for name, p in learner.model.named_parameters()}
    learner.step(ids, targets)
    for name, p in learner.model.named_parameters():
        assert p.grad is None
        assert not torch.equal(p, before[name]), name
    assert learner.model.training
    assert [group["weight_decay"] for group in learner.optimizer.param_groups] == [0.1, 0.0]
    assert all(group["fused"] for group in learner.optimizer.param_groups)


def test_labels_shifted_the_wrong_way_are_told_and_nothing_is_timed(monkeypatch, tmp_path):
    pytest.importorskip("transformers")
    right = train.loss_of_theirs
    monkeypatch.setattr(train, "loss_of_theirs", lambda model, ids, targets: right(model, ids, ids))
    monkeypatch.setattr(train.timing, "interleave", _must_not_run)
    monkeypatch.setitem(train.TOLERANCE, "fp32", (1.0, 1e-3))  # of losses at random tokens little can be said
    with pytest.raises(WrongError, match=r"toy: the gradient of transformers is .* 0.001 is allowed in fp32; nothing"):
        quietly(out=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("loss", [2.001, float("nan")])
def test_a_loss_that_is_another_or_none_is_refused(loss):
    ours = Prepared(lambda: None, [2.0], torch.ones(17, 24), None)
    assert check("toy", "they", ours, ours, "fp32") == (0, 0)
    with pytest.raises(WrongError, match=r"the loss of they is .* away from ours, and 1e-05 is allowed"):
        check("toy", "they", dataclasses.replace(ours, losses=[loss]), ours, "fp32")


def test_a_run_shows_tables_that_fit_and_leaves_a_file_and_a_plot(tmp_path):
    pytest.importorskip("transformers")
    shown = []
    train.run(SETTING, ["toy"], [1, 3], tmp_path, configs={"toy": TOY}, show=shown.append)
    found = json.loads((tmp_path / "train.json").read_text(encoding="utf-8"))
    assert found["settings"]["dtype"] == "fp32"
    assert [case["batch"] for case in found["cases"]] == [1, 3]
    for case in found["cases"]:
        assert list(case["contenders"]) == ["regard", "transformers"]
        assert case["contenders"]["regard"]["to_ours"] == 1
        for one in case["contenders"].values():
            assert one["tokens_s"] == pytest.approx(case["batch"] * 13 / (one["best_ms"] / 1e3))
            assert one["flop_s"] == pytest.approx(case["flops_a_step"] / (one["ms"] / 1e3))
            assert one["of_peak"] is one["peak_mib"] is None
            assert one["losses"][0] > one["losses"][1] > one["losses"][2]
            assert one["loss_away"] < 1e-5
            assert one["gradient_away"] < 1e-3
    text = "\n".join(shown).splitlines()
    assert max(map(len, text)) <= 80 or str(tmp_path) in max(text, key=len)
    assert sum(line.startswith("→ regard ") for line in text) == 2
    pytest.importorskip("matplotlib")
    assert (tmp_path / "train.png").stat().st_size > 0


def test_bf16_is_by_autocast_and_weights_stay_as_they_are(tmp_path):
    pytest.importorskip("transformers")
    setting = dataclasses.replace(SETTING, dtype="bf16")
    assert {p.dtype for p in Learner(train.OURS, TOY, setting, 2).model.parameters()} == {torch.float32}
    one = quietly(setting, out=tmp_path)["cases"][0]["contenders"]["transformers"]
    assert 1e-4 < one["gradient_away"] < 0.1  # float32 would be nearer


def test_compiled_both_are_measured_and_ours_compiled_is_what_counts(monkeypatch, tmp_path):
    pytest.importorskip("transformers")
    told = []
    monkeypatch.setattr(torch, "compile", lambda loss, **how: told.append(how) or loss)
    case = quietly(dataclasses.replace(SETTING, compiled=True), out=tmp_path)["cases"][0]
    assert list(case["contenders"]) == ["regard compiled", "transformers compiled", "regard", "transformers"]
    assert told == [{"dynamic": False}] * 2
    assert case["contenders"]["regard compiled"]["to_ours"] == 1
    assert "→ regard compiled" in "\n".join(case_lines(case))


def test_a_peer_that_fails_is_told_of_and_the_rest_is_measured(monkeypatch, tmp_path):
    pytest.importorskip("transformers")
    monkeypatch.setattr(train, "loss_of_theirs", lambda *_: 1 / 0)
    case = quietly(out=tmp_path)["cases"][0]
    assert list(case["contenders"]) == ["regard"]
    assert case["notes"][0] == "transformers: failed: ZeroDivisionError: division by zero"


def test_when_ours_fails_the_run_fails(monkeypatch, tmp_path):
    monkeypatch.setattr(train.GPT, "loss", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError, match="division by zero"):
        quietly(out=tmp_path)


def test_without_transformers_ours_is_measured(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "transformers", None)
    case = quietly(out=tmp_path)["cases"][0]
    assert list(case["contenders"]) == ["regard"]
    assert case["notes"][0].startswith("transformers: not installed (")


def test_the_work_of_a_step_is_what_its_products_need():
    E, inner, V, T, layers = 24, 96, 101, 13, 2
    products = layers * (4 * E * E + 2 * E * inner) + V * E  # multiplications a token, without biases and norms
    others = layers * (4 * E + inner + E + 4 * E) + 2 * E
    attention = layers * 2 * E * T / 2  # scores and context, half of them hidden
    assert flops(TOY, batch=5, tokens=T) == 5 * T * 6 * (products + others + attention)
    untied = TOY.with_(tied=False)
    assert flops(untied, batch=5, tokens=T) == flops(TOY, batch=5, tokens=T)


def test_the_peak_is_told_only_where_it_is_known():
    assert peak_flops("NVIDIA H100 80GB HBM3", "bf16") == 989e12
    assert peak_flops("NVIDIA H200", "fp32") is None
    assert peak_flops("NVIDIA H100 PCIe", "bf16") is None
    assert peak_flops(None, "bf16") is None


def test_tables_of_a_gpu_fit_80_columns():
    one = {"tokens_s": 651234.5, "ms": 1234.5, "to_ours": 12.345, "of_peak": 0.53, "peak_mib": 123456.7,
           "loss_away": 1e-4, "gradient_away": 0.0123}  # fmt: skip
    setting = TrainSetting("cuda", "bf16", tokens=1024, compiled=True)
    case = {
        "label": "gpt2-medium, B=32 T=1024 · bf16 · cuda",
        "base": setting.base,
        "flops_a_step": 83e12,
        "contenders": dict.fromkeys(setting.names, one),
        "notes": ["transformers compiled: failed: " + 20 * "for a long reason "],
    }
    lines = case_lines(case)
    assert max(map(len, lines)) <= 80
    assert "53%  123,457" in lines[3]
    assert "83 TFLOP; all losses and gradients within 0.01 of ours" in lines[7]


@pytest.mark.parametrize(
    "words, message",
    [
        (["--model", "gpt2-smal"], "no preset is called 'gpt2-smal'; there are tiny, gpt2-small"),
        (["--batch", "2", "--batch", "0"], "--batch 0 must be above 0"),
        (["--tokens", "-3"], "--tokens -3 must be above 0"),
        (["--model", "tiny", "--tokens", "1000"], "--tokens 1000 do not fit tiny's context of 512"),
        (["--device", "nowhere"], "nowhere"),
        (["--dtype", "fp16"], "--dtype fp16 must be one of bf16, fp32"),
    ],
)
def test_a_wrong_command_line_says_what_would_be_right(words, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        train.main(["--device", "cpu", *words])
    assert message in capsys.readouterr().err


def test_the_command_line_runs_what_it_is_told(tmp_path, capsys):
    pytest.importorskip("transformers")
    words = ["--quick", "--device", "cpu", "--batch", "3", "--tokens", "11", "--out", str(tmp_path)]
    assert train.main(words) == 0
    found = json.loads((tmp_path / "train.json").read_text(encoding="utf-8"))
    assert found["machine"]["command"] == f"python -m regard.bench.train {' '.join(words)}"
    assert [(case["batch"], case["tokens"]) for case in found["cases"]] == [(3, 11)]
    assert "time ÷ ours" in capsys.readouterr().out


def test_the_usual_sizes_are_those_of_the_machine(monkeypatch):
    told = []
    monkeypatch.setattr(train, "run", lambda *args, **more: told.append(args))
    train.main(["--device", "cpu"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    train.main(["--device", "cuda"])
    (on_cpu, names, cpu_batches, _), (on_cuda, _, cuda_batches, _) = told
    assert (on_cpu.dtype, on_cpu.tokens, on_cpu.compiled, cpu_batches, names) == (
        "fp32",
        256,
        False,
        [2],
        ["gpt2-small"],
    )
    assert (on_cuda.dtype, on_cuda.tokens, on_cuda.compiled, cuda_batches) == ("bf16", 1024, True, [32])


def test_importing_the_benchmark_loads_no_peer_and_nothing_that_draws():
    heavy = "{'typer', 'rich', 'matplotlib', 'transformers', 'triton', 'tokenizers', 'huggingface_hub'}"
    code = f"import sys, regard.bench.train; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.gpu
@pytest.mark.compiled
def test_on_a_gpu_all_four_are_measured_and_weighed(tmp_path):
    setting = TrainSetting("cuda", "bf16", tokens=64, compiled=True, rounds=2, seconds=0.1)
    case = train.run(setting, ["quick"], [4], tmp_path, configs={"quick": QUICK}, show=lambda text: None)["cases"][0]
    assert list(case["contenders"]) == setting.names
    weights = 4 * sum(p.numel() for p in train.GPT(QUICK).parameters())
    for one in case["contenders"].values():
        assert one["peak_mib"] * 2**20 > 4 * weights  # the weights, two moments, and gradients


def _must_not_run(*args, **kwargs):
    raise AssertionError("something was timed")
