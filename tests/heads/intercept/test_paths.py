"""A new way to call attention is one new file, and one line that imports it; the mode, patches, our own computation."""

import importlib
import sys
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.overrides import _get_current_function_mode_stack

import regard
from helpers import Textbook
from regard.heads.intercept import paths
from regard.heads.intercept.paths import COMPILER, FunctionMode, OwnComputation, Patch, Patches

NEW_FILE = """
from regard.heads.calls.call import OwnWeights, WatchedCall
from regard.heads.intercept.paths import handles


@handles("cosine_similarity")
def report_cosine_attention(interceptor, function, args, kwargs):
    out = function(*args, **kwargs)  # (B, H, T, S)
    interceptor.report(WatchedCall(OwnWeights(out.softmax(-1).detach())))
    return out
"""


class Cosine(nn.Module):
    """An attention that nobody would recognise: its scores are angles, and its values are none."""

    def forward(self, x):
        q = x[:, None]
        return torch.cosine_similarity(q[..., :, None, :], q[..., None, :, :], dim=-1)


@pytest.fixture
def registered(tmp_path, monkeypatch):
    (tmp_path / "cosine_path.py").write_text(NEW_FILE)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("cosine_path")  # the one line
    yield
    del paths.HANDLERS["cosine_similarity"]
    paths.ATTENTION.remove("cosine_similarity")


@pytest.mark.usefixtures("registered")
def test_a_new_path_is_one_file_and_the_line_that_imports_it():
    x, model = torch.randn(2, 5, 7), Cosine()
    with regard.watch(model) as seen:
        out = model(x)
    torch.testing.assert_close(seen[0, 0].weights(), out[:, 0].softmax(-1))


def test_without_it_the_model_makes_no_attention_that_can_be_seen():
    model = Cosine()
    with pytest.raises(ValueError, match="made no attention that can be seen"), regard.watch(model):
        model(torch.randn(2, 5, 7))


def test_no_interceptor_is_active_outside_of_a_watched_forward():
    assert paths.active_interceptor() is None
    with regard.watch(layer := regard.MultiHeadAttention(8, 8, 16, 0.0, 2)):
        assert paths.active_interceptor() is None
        layer(torch.randn(1, 5, 8))


def one():
    return 1


def two():
    return 2


@pytest.fixture
def owner():
    return SimpleNamespace(one=one, two=two)


@pytest.fixture
def patches(owner):
    def negative(original):
        return lambda: -original()

    return Patches([Patch(owner, "one", negative), Patch(owner, "two", negative)])


def test_a_replacement_calls_the_original_inside_the_block_only(owner, patches):
    with patches.applied():
        assert (owner.one(), owner.two()) == (-1, -2)
    assert (owner.one, owner.two) == (one, two)


def test_patches_are_applied_once_and_removed_by_whoever_leaves_last(owner, patches):
    first, second = patches.applied(), patches.applied()
    first.__enter__()
    second.__enter__()
    assert owner.one() == -1
    first.__exit__(None, None, None)
    assert owner.one() == -1
    second.__exit__(None, None, None)
    assert owner.one is one


def test_patches_of_one_thread_are_there_in_another_and_survive_its_end(owner, patches):
    def elsewhere():
        results.append(owner.one())
        with patches.applied():
            results.append(owner.one())
        results.append(owner.one())

    results: list[int] = []
    with patches.applied():
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    assert results == [-1, -1, -1]
    assert owner.one is one


def test_an_error_in_the_block_removes_the_patches(owner, patches):
    with pytest.raises(KeyError, match="missing"), patches.applied():
        {}["missing"]
    assert (owner.one, owner.two) == (one, two)


def test_what_was_replaced_meanwhile_is_restored_to_what_it_was_before(owner, patches):
    with patches.applied():
        owner.one = two
    assert owner.one is one


def stance():
    import torch._dynamo

    return torch._dynamo.eval_frame._stance.stance


def test_compiled_code_runs_eagerly_inside_the_block(patches):
    assert stance() == "default"
    with patches.applied():
        assert stance() == "force_eager"
    assert stance() == "default"


def test_the_compiler_is_not_imported_only_to_be_switched_off(patches, monkeypatch):
    calls = []
    monkeypatch.setattr(torch.compiler, "set_stance", lambda name: calls.append(name))
    monkeypatch.delitem(sys.modules, COMPILER, raising=False)
    with patches.applied():
        pass
    assert calls == []


def test_what_is_compiled_inside_the_block_for_the_first_time_runs_eagerly_as_well(patches, monkeypatch):
    events = []

    @contextmanager
    def set_stance(name):
        events.append(name)
        yield
        events.append("default")

    monkeypatch.setattr(torch.compiler, "set_stance", set_stance)
    monkeypatch.setattr(torch, "compile", lambda function: events.append("compile") or function)
    monkeypatch.delitem(sys.modules, COMPILER, raising=False)
    original = torch.compile
    with patches.applied():
        assert torch.compile(one) is one
        later = torch.compile
        later(two)
    later(one)  # somebody kept the replacement
    assert events == ["force_eager", "compile", "compile", "default", "compile"]
    assert torch.compile is original


class Intercepting:
    in_callback = False


def test_own_computation_is_in_full_precision_and_not_intercepted():
    x, who = torch.randn(3, 5), Intercepting()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with OwnComputation(who, "cpu"):
            assert (x @ x.T).dtype is torch.float32
            assert who.in_callback
        assert (x @ x.T).dtype is torch.bfloat16
    assert not who.in_callback


def test_an_error_ends_the_computation():
    who = Intercepting()
    with pytest.raises(ValueError, match="no"), OwnComputation(who, "cpu"), OwnComputation(who, "cpu"):
        raise ValueError("no")
    assert not who.in_callback


class Asking(nn.Module):
    """Says which modes are on while it runs."""

    def __init__(self):
        super().__init__()
        self.attention, self.modes = Textbook(8, 8, 16, 0.0, 2), []

    def forward(self, x):
        self.modes = [type(mode) for mode in _get_current_function_mode_stack()]
        return self.attention(x)


def test_the_mode_is_on_inside_the_model_only():
    model = Asking()
    with regard.watch(model):
        model(torch.randn(1, 5, 8))
        assert _get_current_function_mode_stack() == []
    assert model.modes == [FunctionMode]


def test_an_error_of_the_model_is_raised():
    model = Asking()
    with pytest.raises(ValueError, match="x has width 9 but this linear layer takes 8"), regard.watch(model):
        model(torch.randn(1, 5, 9))


class Masked(nn.Module):
    """Attention whose weights are changed after their softmax."""

    def forward(self, x):
        scores = (2 * x).view(x.shape) @ x.mT
        return scores.softmax(-1).masked_fill(torch.eye(x.shape[-2]).bool(), 0.0).contiguous() @ x


def test_what_follows_a_softmax_is_seen_though_other_functions_pass_unseen():
    x, model = torch.randn(2, 5, 7), Masked()
    with regard.watch(model) as seen:
        model(x)
    weights = ((2 * x) @ x.mT).softmax(-1).masked_fill(torch.eye(5).bool(), 0.0)
    torch.testing.assert_close(seen[0, 0].weights(), weights)
