"""The loop: a step, and what happens between steps."""

import json
import os
import signal
import threading

import pytest
import torch

from gpt.train.small_runs import COUNTING, OPTIONS, SIZES, as_earlier_version, small
from regard.gpt import GPT, GPTConfig
from regard.gpt.loss import next_token_loss
from regard.gpt.tokenizer.tokenizer import Tokenizer
from regard.gpt.train import state
from regard.gpt.train.batches import Batches
from regard.gpt.train.fit import fit
from regard.gpt.train.loop import Diverged, Intervals, TrainingLoop, adamw, run_settings, stop_requested
from regard.gpt.train.options import FitOptions, Recipe
from regard.gpt.train.tokens import Tokens


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def losses(result):
    return [(line["step"], line["loss"], line["grad_norm"], line.get("val_loss")) for line in result.log()]


def stop_after(step):
    """What Ctrl-C does, at a step."""
    return lambda line: os.kill(os.getpid(), signal.SIGINT) if line["step"] == step else None


def test_a_step_is_what_the_formula_says(tmp_path):
    """The first step by hand: the loss of its windows, and AdamW on clipped gradients."""
    model, twin = small(), small()
    options = {"steps": 1, "clip": 0.1, "weight_decay": 0.2, "min_learning_rate": 1e-2}
    result = fit(model, COUNTING, out=tmp_path, **OPTIONS | options)
    ids, targets = Batches(COUNTING[:540], 4, 7, 0)(0)
    loss = torch.nn.functional.cross_entropy(twin(ids).flatten(0, 1), targets.flatten())
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(twin.parameters(), 0.1)
    for p in twin.parameters():
        decay = 0.2 if p.dim() == 2 else 0.0
        torch.optim.AdamW([p], lr=1e-2, betas=(0.9, 0.95), weight_decay=decay).step()
    torch.testing.assert_close(result.loss, loss.item(), rtol=1e-5, atol=0)
    torch.testing.assert_close(result.log()[0]["grad_norm"], norm.item(), rtol=1e-5, atol=0)
    for mine, right in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(mine, right)


def test_the_log_has_a_line_a_step_with_everything(tmp_path):
    told = []
    fit(small(), COUNTING, out=tmp_path, evaluate_every=5, on_step=told.append, **OPTIONS)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert lines == told
    assert [line["step"] for line in lines] == list(range(1, 13))
    assert [line["tokens"] for line in lines] == [28 * n for n in range(1, 13)]
    assert [line["step"] for line in lines if "val_loss" in line] == [5, 10, 12]
    assert all({"loss", "lr", "grad_norm", "tokens_per_second", "time"} <= line.keys() for line in lines)
    assert lines[-1]["lr"] == pytest.approx(1e-3)


def test_losses_are_the_same_however_seldom_they_are_fetched(tmp_path):
    once = fit(small(), COUNTING, out=tmp_path / "a", log_every=1, **OPTIONS)
    seldom = fit(small(), COUNTING, out=tmp_path / "b", log_every=5, **OPTIONS)
    assert losses(once) == losses(seldom)


def test_the_best_model_is_kept_where_the_last_is_worse(tmp_path, monkeypatch):
    values = iter([3.0, 1.0, 2.0])
    monkeypatch.setattr(TrainingLoop, "_evaluate", lambda self: next(values))
    model, seen = small(), {}
    keep = {"on_step": lambda line: seen.update({line["step"]: [p.detach().clone() for p in model.parameters()]})}
    result = fit(model, COUNTING, out=tmp_path, evaluate_every=4, **keep, **OPTIONS)
    assert (result.val_loss, result.best) == (2.0, {"val_loss": 1.0, "step": 8})
    best = GPT.from_pretrained(tmp_path / "best")
    assert all(p.equal(right) for p, right in zip(best.parameters(), seen[8], strict=True))


def test_accumulating_equals_a_bigger_batch(tmp_path):
    one, other = small().double(), small().double()
    big = fit(one, COUNTING, out=tmp_path / "a", **OPTIONS | {"batch": 6})
    parts = fit(other, COUNTING, out=tmp_path / "b", **OPTIONS | {"batch": 2, "accumulate": 3})
    torch.testing.assert_close([x[1] for x in losses(big)], [x[1] for x in losses(parts)], rtol=1e-6, atol=0)
    for mine, right in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, right)


def test_validation_is_the_mean_over_windows_of_the_last_part(tmp_path):
    model = small()
    result = fit(model, COUNTING, out=tmp_path, **OPTIONS, evaluate_windows=100)
    held = COUNTING[540:]
    rows = torch.stack([held[at : at + 8] for at in range(0, 56, 7)])
    right = model.loss(rows[:, :-1], rows[:, 1:])
    torch.testing.assert_close(result.val_loss, right.item(), rtol=1e-5, atol=0)
    fewer = fit(small(), COUNTING, out=tmp_path / "b", **OPTIONS, evaluate_windows=3)
    assert fewer.val_loss != result.val_loss


def test_without_a_validation_part_there_is_no_validation(tmp_path):
    result = fit(small(), COUNTING, out=tmp_path, **OPTIONS | {"val_fraction": 0.0})
    assert result.val_loss is None
    assert not (tmp_path / "best").exists()
    assert result.model.is_dir()


def test_samples_do_not_change_what_is_learnt(tmp_path):
    def model():
        result = small(vocab_size=270, context_length=16, dropout=0.1)
        result.tokenizer = Tokenizer.train(["the cat sat on the mat"], vocab_size=270)
        return result

    with_samples = fit(model(), COUNTING, out=tmp_path / "a", sample_every=5, evaluate_every=1, **OPTIONS)
    without = fit(model(), COUNTING, out=tmp_path / "b", evaluate_every=0, **OPTIONS)
    assert [x[:3] for x in losses(with_samples)] == [x[:3] for x in losses(without)]


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
    number = "the loss is nan" if what == "loss" else "the gradient norm (nan|inf)"
    options = OPTIONS | {"checkpoint_every": 3, "evaluate_every": 0, "warmup": 12}
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


def test_how_often_things_are_written_may_change(tmp_path):
    fit(small(), COUNTING, out=tmp_path, on_step=stop_after(5), **OPTIONS)
    options = {"checkpoint_every": 2, "evaluate_every": 3, "log_every": 4, "keep": 1}
    assert fit(small(), COUNTING, out=tmp_path, **options, **OPTIONS).finished
    assert len(list(tmp_path.glob("checkpoint*"))) == 1


@pytest.mark.parametrize(("steps", "tenth"), [(7, 7), (500, 100), (3000, 300), (70_000, 1000)])
def test_by_default_a_run_evaluates_and_saves_ten_times(steps, tenth):
    options = FitOptions(out="run", steps=steps, batch=1, learning_rate=1e-3)
    assert Intervals.of(options, torch.device("cpu")) == Intervals(
        evaluate=tenth, checkpoint=tenth, sample=0, atlas=0, log=1
    )
    assert Intervals.of(options, torch.device("cuda")).log == 10


def test_intervals_that_are_given_are_kept_and_0_is_never():
    options = FitOptions(
        out="run",
        steps=700,
        batch=1,
        learning_rate=1e-3,
        evaluate_every=0,
        checkpoint_every=13,
        sample_every=5,
        atlas_every=7,
        log_every=3,
    )
    assert Intervals.of(options, torch.device("cuda")) == Intervals(evaluate=0, checkpoint=13, sample=5, atlas=7, log=3)


def test_the_settings_of_a_run_are_recipe_model_data_and_tokenizer_as_json():
    options = FitOptions(out="run", steps=5, batch=3, learning_rate=1e-3, context_length=7, keep=1)
    settings = run_settings(options, small(), Tokens.of(COUNTING))
    assert settings == json.loads(json.dumps(settings))
    assert settings.keys() == options.recipe().keys() | {"config", "data", "tokenizer", "threads"}
    assert settings["data"]["tokens"] == 600
    assert settings["config"]["d_model"] == 8
    assert settings["betas"] == [0.9, 0.95]


def test_a_checkpoint_from_before_an_option_existed_resumes_with_its_default(tmp_path):
    def train(**options):
        torch.manual_seed(1)
        return fit(GPT(GPTConfig(**SIZES)), COUNTING, out=tmp_path, checkpoint_every=5, **OPTIONS, **options)

    train()
    as_earlier_version(tmp_path, without=["repeat"])
    with pytest.warns(UserWarning, match="is of an earlier version of regard, without hashes"):
        assert train().finished
    assert "repeat" not in state.newest(tmp_path).checkpoint.settings
    with pytest.raises(ValueError, match=r"is of another run: repeat was 0\.0 and is 0\.5"):
        train(repeat=0.5)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_a_request_and_handlers_are_restored(number):
    before = signal.getsignal(number)
    with stop_requested() as stopped:
        assert not stopped()
        os.kill(os.getpid(), number)
        assert stopped()
    assert signal.getsignal(number) is before


def test_the_second_signal_interrupts_at_once():
    before = signal.getsignal(signal.SIGINT)  # ignored, where the tests run in the background
    with stop_requested():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_in_another_thread_handlers_stay_as_they_are():
    handlers = []

    def enter():
        with stop_requested() as stopped:
            handlers.extend([signal.getsignal(signal.SIGINT), stopped()])

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert handlers == [before, False]


def test_only_2d_parameters_decay():
    model = GPT(GPTConfig(vocab_size=31, context_length=7, num_layers=1, d_model=8, num_heads=2))
    decays, stays = adamw(model, Recipe(steps=100, batch=3, learning_rate=1e-3, weight_decay=0.3)).param_groups
    assert (decays["weight_decay"], stays["weight_decay"]) == (0.3, 0.0)
    assert {p.dim() for p in decays["params"]} == {2}
    assert {p.dim() for p in stays["params"]} == {1}
    assert len(decays["params"]) + len(stays["params"]) == len(list(model.parameters()))


def test_ctrl_c_says_at_once_that_the_run_stops_after_this_step(capfd):
    with stop_requested(shown=True) as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop()
        assert "stopping after this step, with a checkpoint; once more stops at once" in capfd.readouterr().err
    with stop_requested() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop()
    assert capfd.readouterr().err == ""
