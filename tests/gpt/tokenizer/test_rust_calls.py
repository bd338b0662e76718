"""A panic of the Rust library is a ValueError, and nothing that it prints reaches stderr."""

import os

import pytest
from tokenizers import Tokenizer, decoders, models

from regard.gpt.tokenizer.rust_calls import is_panic, panics_refused


def panic():
    inner = Tokenizer(models.BPE(vocab={"a": 0}, merges=[]))
    inner.decoder = decoders.Strip("a", 0, 5)
    inner.decode([0])


def test_a_panic_becomes_an_error_and_what_it_prints_is_dropped(capfd):
    with (
        pytest.raises(ValueError, match=r"^the tokenizer cannot encode this text: index out of bounds"),
        panics_refused("the tokenizer cannot encode this text", hold_stderr=True),
    ):
        panic()
    assert capfd.readouterr().err == ""


def test_a_panic_is_no_exception_without_it(capfd):
    with pytest.raises(BaseException, match="index out of bounds") as error:
        panic()
    assert is_panic(error.value)
    assert not isinstance(error.value, Exception)
    assert "panicked at" in capfd.readouterr().err


def test_what_others_write_meanwhile_is_written_afterwards(capfd):
    with panics_refused("nothing fails", hold_stderr=True):
        os.write(2, b"a warning\n")
        assert capfd.readouterr().err == ""
    assert capfd.readouterr().err == "a warning\n"


@pytest.mark.parametrize("error", [KeyError("x"), ValueError("x"), KeyboardInterrupt("x")])
def test_other_errors_pass(error, capfd):
    def fail():
        os.write(2, b"before\n")
        raise error

    with pytest.raises(type(error), match="x"), panics_refused("?", hold_stderr=True):
        fail()
    assert capfd.readouterr().err == "before\n"
    assert not is_panic(error)


def test_a_message_of_the_library_is_printable():
    with pytest.raises(ValueError, match=r"^it failed: no token \\x1b\[2J$"), panics_refused("it failed"):
        raise Exception("no token \x1b[2J")


def test_a_process_without_stderr_is_served_too(monkeypatch):
    def closed(_):
        raise OSError(9, "Bad file descriptor")

    monkeypatch.setattr(os, "dup", closed)
    with pytest.raises(ValueError, match=r"^it failed: x$"), panics_refused("it failed", hold_stderr=True):
        raise Exception("x")
