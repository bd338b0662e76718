"""fit: what a run learns, writes and refuses."""

import os
import resource
import signal
import subprocess
import sys
import threading

import pytest
import torch

import regard.gpt
from gpt.train.small_runs import COUNTING, OPTIONS, small
from regard.gpt import GPT
from regard.gpt.tokenizer.tokenizer import Tokenizer
from regard.gpt.train.fit import fit
from regard.gpt.train.state import locked


@pytest.fixture(autouse=True)
def _fast():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def losses(found):
    return [(line["step"], line["loss"], line["grad_norm"], line.get("val_loss")) for line in found.log()]


def same_weights(one, other):
    theirs = dict(other.named_parameters())
    return all(p.equal(theirs[name]) for name, p in one.named_parameters())


def stop_after(step):
    """What Ctrl-C does, at a step."""
    return lambda line: os.kill(os.getpid(), signal.SIGINT) if line["step"] == step else None


def test_it_learns_to_count(tmp_path):
    found = fit(small(), COUNTING, out=tmp_path, **OPTIONS | {"steps": 60, "learning_rate": 3e-2})
    assert found.finished
    assert found.val_loss < 2 < 3 < found.log()[0]["loss"]
    assert regard.gpt.fit is fit


@pytest.mark.parametrize("stop", [1, 3, 7])
def test_stopped_and_resumed_it_equals_an_unbroken_run_bit_for_bit(tmp_path, stop):
    options = OPTIONS | {"checkpoint_every": 3, "evaluate_every": 4, "accumulate": 2}
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
    dry = fit(small(), COUNTING, out=tmp_path / "a", **OPTIONS)
    wet = fit(small(dropout=0.2), COUNTING, out=tmp_path / "b", **OPTIONS)
    assert losses(dry)[0] != losses(wet)[0]


def test_a_finished_run_started_again_has_nothing_to_do(tmp_path):
    first = fit(small(), COUNTING, out=tmp_path, **OPTIONS)
    again = fit(small(seed=2), COUNTING, out=tmp_path, **OPTIONS, on_step=lambda line: pytest.fail("a step was taken"))
    assert (again.loss, again.val_loss, again.step) == (first.loss, first.val_loss, 12)


def test_the_model_is_there_at_the_end_and_the_best_one_too(tmp_path):
    model = small()
    found = fit(model, COUNTING, out=tmp_path, **OPTIONS)
    assert found.best == {"val_loss": found.val_loss, "step": 12}
    assert same_weights(GPT.from_pretrained(found.model), model)
    assert same_weights(GPT.from_pretrained(tmp_path / "best"), model)


def test_bfloat16_learns_and_weights_stay_float32(tmp_path):
    model = small()
    found = fit(model, COUNTING, out=tmp_path, **OPTIONS | {"dtype": "bf16", "steps": 30, "learning_rate": 3e-2})
    assert found.loss < found.log()[0]["loss"] - 1
    assert {p.dtype for p in model.parameters()} == {torch.float32}


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inductor's own, on import
def test_a_compiled_model_learns_the_same(tmp_path):
    plain = fit(small(), COUNTING, out=tmp_path / "a", **OPTIONS | {"steps": 3})
    compiled = fit(small(), COUNTING, out=tmp_path / "b", compile=True, **OPTIONS | {"steps": 3})
    torch.testing.assert_close([x[1] for x in losses(plain)], [x[1] for x in losses(compiled)], rtol=1e-4, atol=1e-4)


def test_text_files_are_read_and_samples_come_on_the_way(tmp_path):
    (tmp_path / "text.txt").write_text("the cat sat on the mat\n" * 40)
    model = small(vocab_size=270, context_length=16)
    model.tokenizer = Tokenizer.train(["the cat sat on the mat"], vocab_size=270)
    found = fit(model, tmp_path / "text.txt", out=tmp_path / "run", sample_every=6, sample_prompt="the", **OPTIONS)
    samples = [line["sample"] for line in found.log() if "sample" in line]
    assert len(samples) == 2
    assert all(sample.startswith("the") for sample in samples)
    assert GPT.from_pretrained(found.model).tokenizer == model.tokenizer
    without = fit(model, tmp_path / "text.txt", out=tmp_path / "b", **OPTIONS)
    assert not any("sample" in line for line in without.log())


def test_the_callers_chance_and_signals_stay_as_they_were(tmp_path):
    before = torch.get_rng_state(), signal.getsignal(signal.SIGINT)
    model = small()
    torch.set_rng_state(before[0])
    fit(model, COUNTING, out=tmp_path, **OPTIONS)
    assert torch.get_rng_state().equal(before[0])
    assert signal.getsignal(signal.SIGINT) is before[1]


def test_it_runs_in_a_thread_where_signals_are_not_ours(tmp_path):
    found = []
    thread = threading.Thread(target=lambda: found.append(fit(small(), COUNTING, out=tmp_path, **OPTIONS)))
    thread.start()
    thread.join()
    assert found[0].finished


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
    fit(small(), COUNTING, out=tmp_path, on_step=stop_after(5), **OPTIONS)
    model = small(seed=3, **sizes)
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(
        ValueError, match=rf"checkpoint-00000005.safetensors is of another run: {message}. Use the same options"
    ):
        fit(model, data, out=tmp_path, **OPTIONS | options)
    assert all(p.equal(b) for p, b in zip(model.parameters(), before, strict=True))
    found = fit(small(seed=3, **sizes), data, out=tmp_path, resume=False, **OPTIONS | options)  # anew
    assert [line["step"] for line in found.log()] == list(range(1, found.steps + 1))


def test_another_tokenizer_is_refused(tmp_path):
    fit(small(), COUNTING, out=tmp_path, on_step=stop_after(5), **OPTIONS)
    model = small()
    model.tokenizer = Tokenizer.train(["a"], vocab_size=257)
    with pytest.raises(ValueError, match="tokenizer was nothing and is"):
        fit(model, COUNTING, out=tmp_path, **OPTIONS)


def test_two_runs_in_one_directory_are_refused(tmp_path):
    with locked(tmp_path), pytest.raises(ValueError, match="another run is at work in"):
        fit(small(), COUNTING, out=tmp_path, **OPTIONS)


def test_a_full_disk_while_saving_loses_nothing(tmp_path):
    options = OPTIONS | {"checkpoint_every": 3, "evaluate_every": 0}
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
        ({"keep": 0}, COUNTING, r"keep \(0\) must be at least 1: a run resumes from its last checkpoint"),
        ({"evaluate_every": -1}, COUNTING, r"evaluate_every \(-1\) must be at least 0; 0 is never"),
        ({"evaluate_windows": -1}, COUNTING, r"evaluate_windows \(-1\) must be at least 0; 0 is none"),
        ({}, COUNTING + 1, r"the data has a vocabulary of 32 tokens, but the model has vocab_size=31"),
        ({}, COUNTING - 1, r"token ids must be at least 0, but one is -1"),
        ({}, COUNTING[:9], r"the data has 9 tokens, but context_length=7 needs"),
        ({}, "text.txt", r"text needs a tokenizer; set model.tokenizer"),
    ],
)
def test_what_cannot_work_is_said(tmp_path, options, data, message):
    with pytest.raises(ValueError, match=message):
        fit(small(), data, out=tmp_path, **OPTIONS | options)


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
    options = OPTIONS | {"device": "cuda", "dtype": "bf16", "steps": 60, "learning_rate": 3e-2}
    first = fit(small(), COUNTING, out=tmp_path, on_step=stop_after(30), **options)
    assert first.step == 30
    found = fit(small(), COUNTING, out=tmp_path, **options)
    assert found.val_loss < 2
    assert [line["step"] for line in found.log()] == list(range(1, 61))
