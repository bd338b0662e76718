"""Arguments in messages: in Python by their names, at the command line by their flags."""

import threading

import pytest

from regard.gpt.train.options import Recipe
from regard.support.argument_names import assigned, named, named_as_flags


def test_only_the_arguments_that_are_flags_are_written_as_flags():
    with named_as_flags("max_new_tokens", "dtype"):
        assert named("max_new_tokens", -1) == "--max-new-tokens -1"
        assert named("dtype", "fp16", repr) == "--dtype fp16"
        assert named("out", "a b") == "out (a b)"
        assert (assigned("dtype", "bf16"), assigned("steps", 70)) == ("--dtype bf16", "steps=70")
    assert (named("max_new_tokens", -1), named("dtype", "fp16", repr)) == ("max_new_tokens (-1)", "dtype ('fp16')")


def test_blocks_add_up_and_end():
    with named_as_flags("steps"):
        with named_as_flags("batch"):
            assert [named(name, 7) for name in ("steps", "batch")] == ["--steps 7", "--batch 7"]
        assert [named(name, 7) for name in ("steps", "batch")] == ["--steps 7", "batch (7)"]


def test_another_thread_is_not_affected():
    words = []
    with named_as_flags("steps"):
        thread = threading.Thread(target=lambda: words.append(named("steps", 7)))
        thread.start()
        thread.join()
    assert words == ["steps (7)"]


def test_one_check_speaks_both_languages():
    with pytest.raises(ValueError, match=r"^warmup \(9\) must be at least 0 and at most steps \(7\)$"):
        Recipe(steps=7, batch=2, learning_rate=1e-3, warmup=9)
    with (
        named_as_flags("warmup", "steps"),
        pytest.raises(ValueError, match=r"^--warmup 9 must be at least 0 and at most --steps 7$"),
    ):
        Recipe(steps=7, batch=2, learning_rate=1e-3, warmup=9)
