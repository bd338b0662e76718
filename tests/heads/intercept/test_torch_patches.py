"""Patches of torch: applied by the first user, removed by the last one, also after errors and in other threads."""

import sys
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from regard.heads.intercept.torch_patches import COMPILER, Patch, Patches


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
