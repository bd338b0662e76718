"""Single keys from a terminal."""

import sys
import textwrap

import pexpect
import pytest

from terminal import hear_interrupts, surroundings


def spawned(code):
    head = "import os, signal, sys\nfrom regard.commands.terminal.keyboard import END, Keyboard\n"
    return pexpect.spawn(
        sys.executable,
        ["-c", head + textwrap.dedent(code)],
        encoding="utf-8",
        timeout=30,
        env=surroundings({}),
        preexec_fn=hear_interrupts,
    )


ECHO = """
with Keyboard() as keyboard:
    print("ready", flush=True)
    while END not in (keys := keyboard.read(0.05)):
        if keys:
            print(f"[{keys}]", flush=True)
        if keyboard.is_redrawn:
            keyboard.is_redrawn = False
            print("redrawn", flush=True)
print("put back", flush=True)
sys.stdin.readline()
"""


def test_keys_come_without_enter_and_are_not_echoed_and_only_two_arrows_are_read():
    process = spawned(ECHO)
    process.expect_exact("ready")
    process.send("h")
    process.expect_exact("[h]")
    assert process.before.strip() == ""
    process.send("\x1b[A")
    process.expect_exact("[\x10]")
    process.send("\x1b[C\x1b[15~ä\x1bOB")
    process.expect_exact("[ä\x0e]")
    assert process.before.strip() == ""
    process.setwinsize(17, 43)
    process.expect_exact("redrawn")
    process.send("\x04")
    process.expect_exact("put back")
    assert process.getecho()
    process.sendline("")
    process.expect(pexpect.EOF)


def test_a_process_that_was_stopped_takes_the_terminal_again():
    process = spawned(
        ECHO.replace('"ready"', '"ready"').replace("while END", "os.kill(os.getpid(), signal.SIGCONT)\n    while END")
    )
    process.expect_exact("redrawn")
    assert not process.getecho()
    process.send("\x04")
    process.expect_exact("put back")
    process.close()


@pytest.mark.parametrize(("number", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_puts_the_terminal_back(number, status):
    process = spawned(f"""
        from regard.commands.terminal.interrupt import leave
        signal.signal(signal.SIGINT, leave)
        with Keyboard() as keyboard:
            print("ready", flush=True)
            os.kill(os.getpid(), signal.{number})
            keyboard.read(30)
    """)
    process.expect_exact("ready")
    process.expect(pexpect.EOF)
    assert process.getecho()
    process.close()
    assert process.exitstatus == status


def test_ctrl_c_without_a_handler_is_an_exception():
    process = spawned("""
        try:
            with Keyboard() as keyboard:
                os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:
            print("interrupted")
    """)
    process.expect_exact("interrupted")
    process.expect(pexpect.EOF)
