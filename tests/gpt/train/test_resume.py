"""Where a run resumes: fallbacks, best/ and model/, runs without hashes, longer runs."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from gpt.train.small_runs import COUNTING, OPTIONS, as_earlier_version, small
from regard.gpt import GPT
from regard.gpt.train import state
from regard.gpt.train.fit import fit
from regard.gpt.train.hashes import FileHashes
from regard.gpt.train.loop import TrainingLoop

EVERY = {"checkpoint_every": 3, "evaluate_every": 4}


@pytest.fixture(autouse=True)
def _fast(monkeypatch):
    monkeypatch.setattr("os.fsync", lambda file: None)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Stop(Exception):
    """Ends a run as kill -9 does."""


def train(out, stop=None, model=None, **options):
    def on_step(line):
        if line["step"] == stop:
            raise Stop

    model = small() if model is None else model
    return fit(model, COUNTING, out=out, **OPTIONS | EVERY | options, on_step=on_step)


def killed(out, stop, **options):
    with pytest.raises(Stop):
        train(out, stop, **options)


def losses(result):
    return [(line["step"], line["loss"], line["grad_norm"], line["lr"], line.get("val_loss")) for line in result.log()]


def flip(path, at=-1):
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield train(tmp_path_factory.mktemp("unbroken"))
    torch.set_num_threads(threads)


def test_a_flipped_bit_in_the_last_checkpoint_falls_back_says_so_and_keeps_the_file(tmp_path, unbroken):
    out = tmp_path / "run"
    killed(out, stop=11)
    flip(out / "checkpoint-00000009.safetensors")
    damaged = (out / "checkpoint-00000009.safetensors").read_bytes()
    with pytest.warns(UserWarning, match="Resuming from checkpoint-00000006"):
        resumed = train(out)
    assert resumed.notes == (
        "checkpoint-00000009.safetensors is damaged: its content does not have the hash that is stored in it. Resuming "
        "from checkpoint-00000006.safetensors; the other is now checkpoint-00000009.safetensors.damaged",
    )
    assert (out / "checkpoint-00000009.safetensors.damaged").read_bytes() == damaged
    assert losses(resumed) == losses(unbroken)
    assert resumed.best == unbroken.best
    assert train(out).notes == ()


def test_a_damaged_checkpoint_never_counts_among_those_that_are_kept(tmp_path):
    killed(tmp_path, stop=11)
    flip(tmp_path / "checkpoint-00000009.safetensors")
    with pytest.warns(UserWarning, match="Resuming from checkpoint-00000006"), pytest.raises(Stop):
        train(tmp_path, stop=9, checkpoint_every=2, keep=1)
    assert [path.name for path in state.checkpoints(tmp_path)] == ["checkpoint-00000008.safetensors"]


def test_a_checkpoint_of_a_twin_with_other_weights_is_not_taken_for_ours(tmp_path, unbroken):
    """All settings are the same: only the log tells the two runs apart."""
    killed(tmp_path / "run", stop=11)
    killed(tmp_path / "twin", stop=11, model=small(seed=2))
    shutil.copy(tmp_path / "twin" / "checkpoint-00000009.safetensors", tmp_path / "run")
    with pytest.warns(UserWarning, match=r"log.jsonl has other lines than it had when checkpoint-00000009.safetensors"):
        assert losses(train(tmp_path / "run")) == losses(unbroken)


def test_without_its_log_a_run_resumes_with_a_new_one_also_when_it_is_killed_again(tmp_path, unbroken):
    killed(tmp_path, stop=11)
    (tmp_path / "log.jsonl").unlink()
    with pytest.warns(
        UserWarning, match=r"log.jsonl has no lines up to step 9, as if it had been removed; it begins aft"
    ):
        killed(tmp_path, stop=11)
    with pytest.warns(UserWarning, match=r"log.jsonl has no lines up to step 9"):
        resumed = train(tmp_path)
    assert losses(resumed) == losses(unbroken)[9:]
    again = train(tmp_path)
    assert losses(again) == losses(unbroken)[9:]
    (tmp_path / "log.jsonl").unlink()
    for _ in range(2):
        with pytest.warns(UserWarning, match=r"log.jsonl has no lines up to step 12"):
            assert train(tmp_path).log() == []


def test_a_damaged_best_model_of_the_checkpoints_step_is_written_again(tmp_path, unbroken):
    out = tmp_path / "run"
    train(out)
    flip(out / "best" / "model.safetensors")
    with pytest.warns(
        UserWarning, match=r"best/model.safetensors is damaged; it is written again from checkpoint-00000012"
    ):
        resumed = train(out)
    assert resumed.best == unbroken.best
    assert (out / "best" / "model.safetensors").read_bytes() == (unbroken.best_model / "model.safetensors").read_bytes()


def test_a_damaged_best_model_of_an_older_step_is_refused_and_the_remedy_works(tmp_path, unbroken):
    out = tmp_path / "run"
    killed(out, stop=7)  # best is of step 4, the checkpoint of step 6
    flip(out / "best" / "model.safetensors")
    with pytest.raises(
        ValueError,
        match=r"best/model.safetensors is damaged: it does not have the hash in hashes.json. Restore it from",
    ):
        train(out)
    shutil.rmtree(out / "best")
    with pytest.warns(UserWarning, match="best is missing; the next evaluation writes it again"):
        resumed = train(out)
    assert (losses(resumed), resumed.best) == (losses(unbroken), unbroken.best)


def test_a_best_model_newer_than_the_checkpoint_is_the_best(tmp_path, monkeypatch):
    values = iter([3.0, 1.0, 2.0])
    monkeypatch.setattr(TrainingLoop, "_evaluate", lambda self: next(values))
    killed(tmp_path, stop=9, checkpoint_every=5)  # best of step 8, checkpoint of step 5
    resumed = train(tmp_path, checkpoint_every=5, evaluate_every=12)  # step 8 is not evaluated again
    assert (resumed.val_loss, resumed.best) == (2.0, {"val_loss": 1.0, "step": 8})


def test_a_damaged_best_model_newer_than_the_checkpoint_is_reached_again(tmp_path, unbroken):
    killed(tmp_path / "run", stop=9, checkpoint_every=5)
    flip(tmp_path / "run" / "best" / "model.safetensors")
    with pytest.warns(UserWarning, match=r"best/model.safetensors is damaged; the next evaluation writes it again"):
        assert train(tmp_path / "run", checkpoint_every=5).best == unbroken.best


def test_the_best_model_of_an_earlier_run_is_not_taken_for_that_of_a_new_one(tmp_path, unbroken):
    train(tmp_path, model=small(seed=2))
    for path in state.checkpoints(tmp_path):
        path.unlink()
    state.clear(tmp_path)  # as resume=False does
    killed(tmp_path, stop=4, evaluate_every=6)  # before its first evaluation
    with pytest.warns(UserWarning, match="best and model in .* cannot be checked: hashes.json has no hashes of them"):
        assert train(tmp_path).best == unbroken.best


def test_a_finished_run_without_its_checkpoints_is_not_replaced(tmp_path):
    train(tmp_path)
    for path in state.checkpoints(tmp_path):
        path.unlink()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match=r"model and .*best and .*log\.jsonl are of a run whose checkpoints are gone"):
        train(tmp_path, model=small(seed=2))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_an_unfinished_run_without_its_checkpoints_is_not_replaced(tmp_path):
    killed(tmp_path, stop=9, checkpoint_every=4)
    for path in state.checkpoints(tmp_path):
        path.unlink()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match=r"best and .*log\.jsonl are of a run whose checkpoints are gone"):
        train(tmp_path, checkpoint_every=4)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert train(tmp_path, checkpoint_every=4, resume=False).finished


def test_the_same_command_begins_again_where_no_checkpoint_was_written(tmp_path, unbroken):
    killed(tmp_path, stop=7, checkpoint_every=7)
    for path in state.checkpoints(tmp_path):  # as if it had been killed before it was written
        path.unlink()
    with pytest.warns(UserWarning, match="ended before its first checkpoint; .* with a new log and another best model"):
        assert train(tmp_path, checkpoint_every=7).best == unbroken.best


def test_the_log_of_a_run_that_ended_before_its_first_checkpoint_is_said_to_be_replaced(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"step": 1, "loss": 3.0}\n')
    with pytest.warns(
        UserWarning, match="has the log of a run that ended before its first checkpoint; this run begins"
    ):
        assert train(tmp_path).log()[0]["loss"] != 3.0


def test_other_windows_would_make_another_best_loss(tmp_path):
    train(tmp_path)
    with pytest.raises(ValueError, match="evaluate_windows was 64 and is 3"):
        train(tmp_path, evaluate_windows=3)


def test_another_number_of_threads_is_said(tmp_path, monkeypatch):
    train(tmp_path)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 97)
    with pytest.warns(UserWarning, match=r"torch had \d+ threads and has 97: the last digits of losses may differ"):
        train(tmp_path)


def test_what_safetensors_left_when_a_run_was_killed_is_removed(tmp_path):
    train(tmp_path)
    for left in (tmp_path / ".tmpAb3dE9", tmp_path / "model" / ".tmpZ00000"):
        left.write_bytes(b"half of a checkpoint")
    train(tmp_path)
    assert not list(tmp_path.rglob(".tmp*"))


def test_a_changed_file_of_the_model_is_written_again(tmp_path):
    first = train(tmp_path)
    right = (first.model / "config.json").read_bytes()
    flip(first.model / "config.json", 5)
    with pytest.warns(
        UserWarning, match=r"model/config.json is damaged, or was changed; it is written again with the mo"
    ):
        train(tmp_path)
    assert (first.model / "config.json").read_bytes() == right


def test_a_file_in_place_of_a_directory_is_refused(tmp_path):
    train(tmp_path)
    shutil.rmtree(tmp_path / "best")
    (tmp_path / "best").write_text("")
    with pytest.raises(ValueError, match="best must be a directory of this run, but is a file; move it away"):
        train(tmp_path)


def test_a_run_without_hashes_resumes_says_so_and_has_them_from_then_on(tmp_path, unbroken):
    out = tmp_path / "run"
    killed(out, stop=7)
    as_earlier_version(out)
    with pytest.warns(UserWarning, match="earlier version") as warned:
        resumed = train(out)
    assert [str(warning.message) for warning in warned] == [
        "checkpoint-00000006.safetensors is of an earlier version of regard, without hashes: its content, log.jsonl, "
        "best "
        "are not checked; the next checkpoint has hashes"
    ]
    assert (losses(resumed), resumed.best) == (losses(unbroken), unbroken.best)
    flip(out / "checkpoint-00000012.safetensors")
    with pytest.warns(UserWarning, match="Resuming from checkpoint-00000009"):
        assert losses(train(out)) == losses(unbroken)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda t: t[:1],
            r"model.token_embedding.weight is \(1, 8\) of float32; this model needs \(31, 8\) of float32",
        ),
        (lambda t: t.double(), r"is \(31, 8\) of float64; this model needs \(31, 8\) of float32"),
        (lambda t: None, r"model.token_embedding.weight is nothing; this model needs \(31, 8\) of float32"),
    ],
)
def test_a_tensor_of_another_shape_is_neither_broadcast_nor_converted(tmp_path, change, message):
    killed(tmp_path, stop=7)
    as_earlier_version(tmp_path)
    path = tmp_path / "checkpoint-00000006.safetensors"
    tensors, metadata = load_file(path), state.read_checkpoint(path)[0]
    name = "model.token_embedding.weight"
    changed = {key: change(value) if key == name else value for key, value in tensors.items()}
    told = {"form": "1", "step": "6", "told": json.dumps(metadata.settings), "best": json.dumps(metadata.best)}
    save_file({key: value.contiguous() for key, value in changed.items() if value is not None}, path, told)
    model = small(seed=3)
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(ValueError, match=rf"checkpoint-00000006.safetensors: .*{message}. Nothing was loaded"):
        train(tmp_path, model=model)
    assert all(p.equal(b) for p, b in zip(model.parameters(), before, strict=True))


def test_frozen_parameters_have_no_state_and_resume(tmp_path):
    def frozen():
        model = small()
        model.token_embedding.weight.requires_grad = False
        return model

    unbroken = train(tmp_path / "a", model=frozen())
    killed(tmp_path / "b", stop=7, model=frozen())
    assert losses(train(tmp_path / "b", model=frozen())) == losses(unbroken)


def test_a_finished_run_goes_on_with_more_steps_on_the_longer_schedule(tmp_path):
    train(tmp_path / "run", warmup=1)
    begun = (tmp_path / "run" / "log.jsonl").read_bytes()
    with pytest.warns(UserWarning, match="lengthened") as warned:
        longer = train(tmp_path / "run", steps=24, warmup=2)
    assert [str(warning.message) for warning in warned] == [
        "lengthened from 12 to 24 steps: step 13 has a learning rate of 0.00584, that of a run of 24 steps, which then "
        "falls to 0.001"
    ]
    assert (longer.taken, longer.step, longer.finished) == (12, 24, True)
    assert (tmp_path / "run" / "log.jsonl").read_bytes().startswith(begun)
    rates = [line["lr"] for line in longer.log()]
    assert rates[11] == pytest.approx(1e-3)
    whole = train(tmp_path / "whole", steps=24, warmup=2)
    assert rates[12:] == [line["lr"] for line in whole.log()][12:]
    assert GPT.from_pretrained(longer.model).token_embedding.weight.shape == (31, 8)


def test_a_lengthened_run_resumes_as_if_it_was_never_stopped(tmp_path):
    for name in ("a", "b"):
        train(tmp_path / name)
    with pytest.warns(UserWarning, match="lengthened from 12 to 20 steps"):
        unbroken = train(tmp_path / "a", steps=20)
    with pytest.warns(UserWarning, match="lengthened from 12 to 20 steps"):
        killed(tmp_path / "b", stop=17, steps=20)
    resumed = train(tmp_path / "b", steps=20)
    assert resumed.notes == ()
    assert losses(resumed) == losses(unbroken)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 11}, "steps was 12 and is 11"),
        ({"steps": 24, "batch": 2}, "batch was 4 and is 2"),
        ({"steps": 24, "warmup": 13}, "warmup was 0 and is 13"),
    ],
)
def test_a_run_gets_no_shorter_and_nothing_else_may_change(tmp_path, options, message):
    train(tmp_path)
    with pytest.raises(ValueError, match=f"is of another run: {message}. Use the same options"):
        train(tmp_path, **options)


@pytest.mark.parametrize("written", [1, 2])
def test_a_kill_between_a_file_and_its_hash_is_not_taken_for_damage(tmp_path, unbroken, monkeypatch, written):
    record, names = FileHashes.record, []

    def kill(self, name):
        names.append(name)
        if len(names) == written:
            raise Stop
        record(self, name)

    with monkeypatch.context() as patch:
        patch.setattr(FileHashes, "record", kill)
        with pytest.raises(Stop):
            train(tmp_path)
    with pytest.warns(UserWarning, match=r"best in .* cannot be checked: hashes.json has no hashes of it"):
        resumed = train(tmp_path)
    assert (losses(resumed), resumed.best) == (losses(unbroken), unbroken.best)
    assert train(tmp_path).notes == ()
