"""Patches of torch: applied by the first user, removed by the last one, also after errors and in other threads."""

import sys
import threading
from types import SimpleNamespace

import pytest
import torch

from regard.heads.torch_patches import COMPILERS, Patch, Patches


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
    return sys.modules["torch._dynamo"].eval_frame._stance.stance


def test_compiled_code_runs_eagerly_inside_the_block(patches):

    assert stance() == "default"
    with patches.applied():
        assert stance() == "force_eager"
    assert stance() == "default"


def test_the_compiler_is_not_imported_only_to_be_switched_off(patches, monkeypatch):
    calls = []
    monkeypatch.setattr(torch.compiler, "set_stance", lambda name: calls.append(name))
    for name in COMPILERS:
        monkeypatch.delitem(sys.modules, name, raising=False)
    with patches.applied():
        pass
    assert calls == []
