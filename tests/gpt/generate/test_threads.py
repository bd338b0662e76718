"""One thread for small work, and afterwards as many as before."""

import pytest
import torch

from regard.gpt import GPT, GPTConfig
from regard.gpt.generate import generate
from regard.gpt.generate.cpu_step import threads_for

pytestmark = pytest.mark.usefixtures("three_threads")


def test_small_work_gets_one_thread_and_large_work_all():
    with threads_for(work=6, small=7):
        assert torch.get_num_threads() == 1
        with threads_for(work=5, small=7):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 3
    with threads_for(work=7, small=7):
        assert torch.get_num_threads() == 3


def threads_while_generating(model, prompt, count=3):
    """The numbers of threads that each forward of the model runs with, by a hook."""
    seen = []
    handle = model.register_forward_hook(lambda *_: seen.append(torch.get_num_threads()))
    model.generate(prompt, count, temperature=0)
    stream = model.stream(prompt, count, temperature=0)
    for _ in stream:
        assert torch.get_num_threads() == 3  # between two tokens the program has its own
    handle.remove()
    assert torch.get_num_threads() == 3
    return seen


def test_generation_chooses_by_the_size_of_the_work(monkeypatch):
    model = GPT(GPTConfig(vocab_size=31, context_length=13, num_layers=1, d_model=8, num_heads=2)).eval()
    weights = sum(p.numel() for p in model.parameters())
    assert threads_while_generating(model, [5] * 7) == [1, 1, 1] * 2
    monkeypatch.setattr(generate, "SMALL_PROMPT", 7 * weights)
    assert threads_while_generating(model, [5] * 7) == [3, 1, 1] * 2
    monkeypatch.setattr(generate, "SMALL_STEP", weights)
    assert threads_while_generating(model, [5] * 6) == [1, 3, 3] * 2
