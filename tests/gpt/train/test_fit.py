"""fit: what a run learns, writes and refuses."""

import json
import os
import resource
import signal
import subprocess
import sys
import threading

import pytest
import torch

import regard.gpt
from regard.gpt import GPT, GPTConfig
from regard.gpt.loss import next_token_loss
from regard.gpt.tokenizer import Tokenizer
from regard.gpt.train import loop as run
from regard.gpt.train.fit import fit
from regard.gpt.train.loop import Diverged
from regard.gpt.train.state import locked

SIZES = {"vocab_size": 31, "context_length": 7, "num_layers": 1, "d_model": 8, "num_heads": 2}
COUNTING = torch.arange(600) % 31
USUAL = {"steps": 12, "batch": 4, "learning_rate": 1e-2, "progress": False, "device": "cpu", "val_fraction": 0.1}


@pytest.fixture(autouse=True)
def _fast(monkeypatch):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(run, "plot", lambda lines, path: True)  # the picture has tests of its own
    yield
    torch.set_num_threads(threads)


def small(seed=1, **changes):
    torch.manual_seed(seed)
    return GPT(GPTConfig(**SIZES | changes))


def losses(found):
    return [(line["step"], line["loss"], line["grad_norm"], line.get("val_loss")) for line in found.log()]


def same_weights(one, other):
    theirs = dict(other.named_parameters())
    return all(p.equal(theirs[name]) for name, p in one.named_parameters())


def stop_after(step):
    """What Ctrl-C does, at a step."""
    return lambda line: os.kill(os.getpid(), signal.SIGINT) if line["step"] == step else None


def test_it_learns_to_count(tmp_path):
    found = fit(small(), COUNTING, out=tmp_path, **USUAL | {"steps": 60, "learning_rate": 3e-2})
    assert found.finished
    assert found.val_loss < 2 < 3 < found.log()[0]["loss"]
    assert regard.gpt.fit is fit


def test_a_step_is_what_the_formula_says(tmp_path):
    """The first step by hand: the loss of its windows, and AdamW on clipped gradients."""
    model, twin = small(), small()
    options = {"steps": 1, "clip": 0.1, "weight_decay": 0.2, "min_learning_rate": 1e-2}
    found = fit(model, COUNTING, out=tmp_path, **USUAL | options)
    ids, targets = regard.gpt.train.data.Batches(COUNTING[:540], 4, 7, 0)(0)
    loss = torch.nn.functional.cross_entropy(twin(ids).flatten(0, 1), targets.flatten())
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(twin.parameters(), 0.1)
    for p in twin.parameters():
        decay = 0.2 if p.dim() == 2 else 0.0
        torch.optim.AdamW([p], lr=1e-2, betas=(0.9, 0.95), weight_decay=decay).step()
    torch.testing.assert_close(found.loss, loss.item(), rtol=1e-5, atol=0)
    torch.testing.assert_close(found.log()[0]["grad_norm"], norm.item(), rtol=1e-5, atol=0)
    for mine, right in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(mine, right)


def test_the_log_has_a_line_a_step_with_everything(tmp_path):
    told = []
    fit(small(), COUNTING, out=tmp_path, evaluate_every=5, on_step=told.append, **USUAL)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert lines == told
    assert [line["step"] for line in lines] == list(range(1, 13))
    assert [line["tokens"] for line in lines] == [28 * n for n in range(1, 13)]
    assert [line["step"] for line in lines if "val_loss" in line] == [5, 10, 12]
    assert all({"loss", "lr", "grad_norm", "tokens_per_second", "time"} <= line.keys() for line in lines)
    assert lines[-1]["lr"] == pytest.approx(1e-3)


def test_losses_are_the_same_however_seldom_they_are_fetched(tmp_path):
    once = fit(small(), COUNTING, out=tmp_path / "a", log_every=1, **USUAL)
    seldom = fit(small(), COUNTING, out=tmp_path / "b", log_every=5, **USUAL)
    assert losses(once) == losses(seldom)


@pytest.mark.parametrize("stop", [1, 3, 7])
def test_stopped_and_resumed_it_equals_an_unbroken_run_bit_for_bit(tmp_path, stop):
    options = USUAL | {"checkpoint_every": 3, "evaluate_every": 4, "accumulate": 2}
    whole = small(dropout=0.2)
    unbroken = fit(whole, COUNTING, out=tmp_path / "a", **options)
    begun = small(dropout=0.2)
    first = fit(begun, COUNTING, out=tmp_path / "b", on_step=stop_after(stop), **options)
    assert not first.finished
    assert same_weights(GPT.from_pretrained(first.model), begun)  # as it is, for whoever has seen enough
    assert first.step == stop
    assert first.checkpoint.name == f"checkpoint-{stop:08d}.safetensors"
    second = small(seed=99, dropout=0.2)  # its own weights do not matter
    resumed = fit(second, COUNTING, out=tmp_path / "b", **options)
    assert resumed.finished
    assert losses(resumed) == losses(unbroken)
    assert same_weights(second, whole)
    assert resumed.best == unbroken.best


def test_dropout_is_at_work_and_differs_by_step(tmp_path):
    dry = fit(small(), COUNTING, out=tmp_path / "a", **USUAL)
    wet = fit(small(dropout=0.2), COUNTING, out=tmp_path / "b", **USUAL)
    assert losses(dry)[0] != losses(wet)[0]


def test_a_finished_run_started_again_has_nothing_to_do(tmp_path):
    first = fit(small(), COUNTING, out=tmp_path, **USUAL)
    again = fit(small(seed=2), COUNTING, out=tmp_path, **USUAL, on_step=lambda line: pytest.fail("a step was taken"))
    assert (again.loss, again.val_loss, again.step) == (first.loss, first.val_loss, 12)


def test_the_model_is_there_at_the_end_and_the_best_one_too(tmp_path):
    model = small()
    found = fit(model, COUNTING, out=tmp_path, **USUAL)
    assert found.best == {"val_loss": found.val_loss, "step": 12}
    assert same_weights(GPT.from_pretrained(found.model), model)
    assert same_weights(GPT.from_pretrained(tmp_path / "best"), model)


def test_the_best_model_is_kept_where_the_last_is_worse(tmp_path, monkeypatch):
    values = iter([3.0, 1.0, 2.0])
    monkeypatch.setattr(run.Run, "_evaluate", lambda self: next(values))
    model, seen = small(), {}
    keep = {"on_step": lambda line: seen.update({line["step"]: [p.detach().clone() for p in model.parameters()]})}
    found = fit(model, COUNTING, out=tmp_path, evaluate_every=4, **keep, **USUAL)
    assert (found.val_loss, found.best) == (2.0, {"val_loss": 1.0, "step": 8})
    best = GPT.from_pretrained(tmp_path / "best")
    assert all(p.equal(right) for p, right in zip(best.parameters(), seen[8], strict=True))


def test_accumulating_equals_a_bigger_batch(tmp_path):
    one, other = small().double(), small().double()
    big = fit(one, COUNTING, out=tmp_path / "a", **USUAL | {"batch": 6})
    parts = fit(other, COUNTING, out=tmp_path / "b", **USUAL | {"batch": 2, "accumulate": 3})
    torch.testing.assert_close([x[1] for x in losses(big)], [x[1] for x in losses(parts)], rtol=1e-6, atol=0)
    for mine, right in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, right)


def test_validation_is_the_mean_over_windows_of_the_last_part(tmp_path):
    model = small()
    found = fit(model, COUNTING, out=tmp_path, **USUAL, evaluate_windows=100)
    held = COUNTING[540:]
    rows = torch.stack([held[at : at + 8] for at in range(0, 56, 7)])
    right = model.loss(rows[:, :-1], rows[:, 1:])
    torch.testing.assert_close(found.val_loss, right.item(), rtol=1e-5, atol=0)
    fewer = fit(small(), COUNTING, out=tmp_path / "b", **USUAL, evaluate_windows=3)
    assert fewer.val_loss != found.val_loss


def test_without_a_validation_part_there_is_no_validation(tmp_path):
    found = fit(small(), COUNTING, out=tmp_path, **USUAL | {"val_fraction": 0.0})
    assert found.val_loss is None
    assert not (tmp_path / "best").exists()
    assert found.model.is_dir()


def test_bfloat16_learns_and_weights_stay_float32(tmp_path):
    model = small()
    found = fit(model, COUNTING, out=tmp_path, **USUAL | {"dtype": "bf16", "steps": 30, "learning_rate": 3e-2})
    assert found.loss < found.log()[0]["loss"] - 1
    assert {p.dtype for p in model.parameters()} == {torch.float32}


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inductor's own, on import
def test_a_compiled_model_learns_the_same(tmp_path):
    plain = fit(small(), COUNTING, out=tmp_path / "a", **USUAL | {"steps": 3})
    compiled = fit(small(), COUNTING, out=tmp_path / "b", compile=True, **USUAL | {"steps": 3})
    torch.testing.assert_close([x[1] for x in losses(plain)], [x[1] for x in losses(compiled)], rtol=1e-4, atol=1e-4)


def test_text_files_are_read_and_samples_come_on_the_way(tmp_path):
    (tmp_path / "text.txt").write_text("the cat sat on the mat\n" * 40)
    model = small(vocab_size=270, context_length=16)
    model.tokenizer = Tokenizer.train(["the cat sat on the mat"], vocab_size=270)
    found = fit(model, tmp_path / "text.txt", out=tmp_path / "run", sample_every=6, sample_prompt="the", **USUAL)
    samples = [line["sample"] for line in found.log() if "sample" in line]
    assert len(samples) == 2
    assert all(sample.startswith("the") for sample in samples)
    assert GPT.from_pretrained(found.model).tokenizer == model.tokenizer
    without = fit(model, tmp_path / "text.txt", out=tmp_path / "b", **USUAL)
    assert not any("sample" in line for line in without.log())


def test_samples_do_not_change_what_is_learnt(tmp_path):
    def model():
        found = small(vocab_size=270, context_length=16, dropout=0.1)
        found.tokenizer = Tokenizer.train(["the cat sat on the mat"], vocab_size=270)
        return found

    with_samples = fit(model(), COUNTING, out=tmp_path / "a", sample_every=5, evaluate_every=1, **USUAL)
    without = fit(model(), COUNTING, out=tmp_path / "b", evaluate_every=0, **USUAL)
    assert [x[:3] for x in losses(with_samples)] == [x[:3] for x in losses(without)]


def test_the_callers_chance_and_signals_stay_as_they_were(tmp_path):
    before = torch.get_rng_state(), signal.getsignal(signal.SIGINT)
    model = small()
    torch.set_rng_state(before[0])
    fit(model, COUNTING, out=tmp_path, **USUAL)
    assert torch.get_rng_state().equal(before[0])
    assert signal.getsignal(signal.SIGINT) is before[1]


def test_it_runs_in_a_thread_where_signals_are_not_ours(tmp_path):
    found = []
    thread = threading.Thread(target=lambda: found.append(fit(small(), COUNTING, out=tmp_path, **USUAL)))
    thread.start()
    thread.join()
    assert found[0].finished


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_what_is_no_number_stops_and_is_not_saved(tmp_path, monkeypatch, what):
    calls = []

    def poisoned(x, weight, targets):
        calls.append(1)
        loss = next_token_loss(x, weight, targets)
        if len(calls) == 8:
            return loss * torch.nan if what == "loss" else loss + (weight[0, 0] * 0).sqrt()
        return loss

    monkeypatch.setattr("regard.gpt.model.next_token_loss", poisoned)
    number = "the loss is nan" if what == "loss" else "the gradient's length (nan|inf)"
    options = USUAL | {"checkpoint_every": 3, "evaluate_every": 0, "warmup": 12}
    with pytest.raises(
        Diverged,
        match=rf"{number}.* at step 8, with a learning rate of 0.00667; that step was not saved. "
        r"Last good checkpoint: .*checkpoint-00000006.safetensors. Try a lower",
    ):
        fit(small(), COUNTING, out=tmp_path, **options)
    assert sorted(path.name for path in tmp_path.glob("checkpoint*")) == [
        "checkpoint-00000003.safetensors",
        "checkpoint-00000006.safetensors",
    ]
    assert [json.loads(line)["step"] for line in (tmp_path / "log.jsonl").read_text().splitlines()] == list(range(1, 8))
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("options", "sizes", "data", "message"),
    [
        ({"batch": 8}, {}, COUNTING, "batch was 4 and is 8"),
        ({"learning_rate": 1e-3}, {}, COUNTING, "learning_rate was 0.01 and is 0.001"),
        ({"steps": 24}, {}, COUNTING, "steps was 12 and is 24"),
        ({"seed": 5}, {}, COUNTING, "seed was 0 and is 5"),
        ({}, {"d_model": 16}, COUNTING, "config.d_model was 8 and is 16"),
        ({}, {}, COUNTING.flip(0), "data.sha256 was .*… and is .*…"),
    ],
)
def test_another_run_is_refused_with_the_differences(tmp_path, options, sizes, data, message):
    fit(small(), COUNTING, out=tmp_path, on_step=stop_after(5), **USUAL)
    model = small(seed=3, **sizes)
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(
        ValueError, match=rf"checkpoint-00000005.safetensors is of another run: {message}. Tell it the same"
    ):
        fit(model, data, out=tmp_path, **USUAL | options)
    assert all(p.equal(b) for p, b in zip(model.parameters(), before, strict=True))
    found = fit(small(seed=3, **sizes), data, out=tmp_path, resume=False, **USUAL | options)  # anew
    assert [line["step"] for line in found.log()] == list(range(1, found.steps + 1))


def test_another_tokenizer_is_refused(tmp_path):
    fit(small(), COUNTING, out=tmp_path, on_step=stop_after(5), **USUAL)
    model = small()
    model.tokenizer = Tokenizer.train(["a"], vocab_size=257)
    with pytest.raises(ValueError, match="tokenizer was nothing and is"):
        fit(model, COUNTING, out=tmp_path, **USUAL)


def test_how_often_things_are_written_may_change(tmp_path):
    fit(small(), COUNTING, out=tmp_path, on_step=stop_after(5), **USUAL)
    options = {"checkpoint_every": 2, "evaluate_every": 3, "log_every": 4, "keep": 1}
    assert fit(small(), COUNTING, out=tmp_path, **options, **USUAL).finished
    assert len(list(tmp_path.glob("checkpoint*"))) == 1


def test_two_runs_in_one_directory_are_refused(tmp_path):
    with locked(tmp_path), pytest.raises(ValueError, match="another run is at work in"):
        fit(small(), COUNTING, out=tmp_path, **USUAL)


def test_a_full_disk_while_saving_loses_nothing(tmp_path):
    options = USUAL | {"checkpoint_every": 3, "evaluate_every": 0}
    unbroken = fit(small(), COUNTING, out=tmp_path / "a", **options)
    size = (tmp_path / "a" / "checkpoint-00000012.safetensors").stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def fill_up(line):
        if line["step"] == 8:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, before[1]))

    try:
        with pytest.raises(OSError, match=r"checkpoint-00000009.safetensors could not be written: .* untouched"):
            fit(small(), COUNTING, out=tmp_path / "b", on_step=fill_up, **options)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert sorted(path.name for path in (tmp_path / "b").glob("*checkpoint*")) == [
        "checkpoint-00000003.safetensors",
        "checkpoint-00000006.safetensors",
    ]
    resumed = fit(small(), COUNTING, out=tmp_path / "b", **options)
    assert losses(resumed) == losses(unbroken)


@pytest.mark.parametrize(
    ("options", "data", "message"),
    [
        ({"context_length": 8}, COUNTING, r"context_length \(8\) must be at most the model's, 7"),
        ({"keep": 0}, COUNTING, r"keep \(0\) must be at least 1: the last checkpoint is what a run goes on from"),
        ({"evaluate_every": -1}, COUNTING, r"evaluate_every \(-1\) must be at least 0; 0 is never"),
        ({"evaluate_windows": -1}, COUNTING, r"evaluate_windows \(-1\) must be at least 0; 0 is none"),
        ({}, COUNTING + 1, r"the data has 32 tokens to tell apart, but the model knows 31"),
        ({}, COUNTING - 1, r"token ids must be at least 0, but one is -1"),
        ({}, COUNTING[:9], r"the data has 9 tokens, but context_length=7 needs"),
        ({}, "text.txt", r"text needs a tokenizer; set model.tokenizer"),
    ],
)
def test_what_cannot_work_is_said(tmp_path, options, data, message):
    with pytest.raises(ValueError, match=message):
        fit(small(), data, out=tmp_path, **USUAL | options)


def test_the_trainer_is_loaded_when_it_is_asked_for():
    code = (
        "import regard, sys; before = 'regard.gpt.train.fit' in sys.modules\n"
        "from regard.gpt import fit; print(before, 'regard.gpt.train.fit' in sys.modules, fit.__name__)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "True", "fit"]
    with pytest.raises(AttributeError, match="has no attribute 'fitt'"):
        _ = regard.gpt.fitt


@pytest.mark.gpu
@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inductor's own, on import
def test_on_a_gpu_it_learns_stops_and_goes_on(tmp_path):
    options = USUAL | {"device": "cuda", "dtype": "bf16", "steps": 60, "learning_rate": 3e-2}
    first = fit(small(), COUNTING, out=tmp_path, on_step=stop_after(30), **options)
    assert first.step == 30
    found = fit(small(), COUNTING, out=tmp_path, **options)
    assert found.val_loss < 2
    assert [line["step"] for line in found.log()] == list(range(1, 61))
