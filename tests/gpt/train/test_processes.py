"""The interface of processes, and a single one."""

from pathlib import Path

import pytest
import torch

from regard.gpt import GPT, GPTConfig
from regard.gpt.train.loop import adamw
from regard.gpt.train.options import Recipe
from regard.gpt.train.parallel import ParallelProcesses
from regard.gpt.train.processes import Processes, check_full_state, find_device

CONFIG = GPTConfig(vocab_size=31, context_length=7, num_layers=1, d_model=8, num_heads=2)
RECIPE = Recipe(steps=9, batch=3, learning_rate=1e-2)


def stepped(model, optimizer, times=1):
    ids = torch.arange(14).view(2, 7)
    for _ in range(times):
        model.loss(ids, ids + 1).backward()
        optimizer.step()
        optimizer.zero_grad()


def test_a_single_process_has_the_interface_of_many():
    assert issubclass(ParallelProcesses, Processes)
    assert (Processes.is_single, ParallelProcesses.is_single) == (True, False)
    alone = Processes()
    assert (alone.is_main, alone.data_rank, alone.data_ranks) == (True, 0, 1)


def test_a_device_that_cannot_compute_here_is_refused():
    assert find_device("cpu") == torch.device("cpu")
    assert find_device() == torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with pytest.raises(ValueError, match=r"device \(nowhere\) is none that torch knows; try cpu or cuda"):
        find_device("nowhere")
    with pytest.raises(ValueError, match=r"nothing can be computed on device \(meta\) here; try cpu"):
        find_device("meta")


def test_a_gpu_beyond_the_last_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    assert find_device("cuda:2") == torch.device("cuda", 2)
    with pytest.raises(ValueError, match=r"device \(cuda:3\) is not here: there are 3 GPUs, from cuda:0 to cuda:2"):
        find_device("cuda:3")


def test_a_full_state_given_back_goes_on_bit_for_bit():
    alone, model = Processes("cpu"), GPT(CONFIG)
    alone.prepare(model)
    optimizer = adamw(model, RECIPE)
    stepped(model, optimizer, 2)
    state = alone.full_state(model, optimizer)
    names = [name for name, _ in model.named_parameters()]
    kinds = ("optimizer.exp_avg.", "optimizer.exp_avg_sq.", "optimizer.step.")
    assert set(state) == {prefix + name for prefix in ("model.", *kinds) for name in names}
    twin = GPT(CONFIG)
    theirs = adamw(twin, RECIPE)
    alone.load_full_state(twin, theirs, state)
    stepped(model, optimizer)
    stepped(twin, theirs)
    assert all(p.equal(q) for p, q in zip(model.parameters(), twin.parameters(), strict=True))
    again = alone.full_state(twin, theirs)
    assert all(again[name].equal(t) for name, t in alone.full_state(model, optimizer).items())
    assert not any(again[name].equal(state[name]) for name in names if name in state)  # the copy did not move along


def test_before_the_first_step_there_are_weights_alone():
    model = GPT(CONFIG)
    optimizer = adamw(model, RECIPE)
    state = Processes().full_state(model, optimizer)
    assert all(name.startswith("model.") for name in state)
    Processes().load_full_state(GPT(CONFIG), adamw(model, RECIPE), state)


def test_gradients_are_clipped_by_their_length_together():
    one, other = (torch.zeros(3, requires_grad=True) for _ in range(2))
    one.grad, other.grad = torch.full((3,), 3.0), torch.full((3,), 4.0)
    length = Processes().clip_gradients([one, other], 1.0)
    torch.testing.assert_close(length, torch.tensor(75.0).sqrt())
    torch.testing.assert_close(torch.cat([one.grad, other.grad]).norm(), torch.tensor(1.0))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("optimizer.step.final_norm.weight", torch.ones(1), r"is \(1,\) of float32; this model needs \(\) of float32"),
        ("optimizer.exp_avg.final_norm.weight", torch.ones(1), r"is \(1,\) of float32; this model needs \(8,\) of fl"),
        ("optimizer.exp_avg_sq.final_norm.weight", None, r"is nothing; this model needs \(8,\) of float32"),
        ("model.final_norm.wEight", torch.ones(8), r"is \(8,\) of float32; this model needs nothing"),
        ("optimizer.third.final_norm.weight", torch.ones(8), r"is \(8,\) of float32; this model needs nothing"),
    ],
)
def test_a_full_state_has_the_models_names_shapes_and_dtypes_and_no_others(name, value, message):
    alone, model = Processes(), GPT(CONFIG)
    optimizer = adamw(model, RECIPE)
    check_full_state(model, alone.full_state(model, optimizer), Path("x"))  # before the first step: weights alone
    stepped(model, optimizer)
    tensors = alone.full_state(model, optimizer)
    check_full_state(model, tensors, Path("x"))
    tensors = {key: tensor for key, tensor in (tensors | {name: value}).items() if tensor is not None}
    with pytest.raises(ValueError, match=rf"x: {name} {message}.*\. Nothing was loaded; resume with the model"):
        check_full_state(model, tensors, Path("x"))
