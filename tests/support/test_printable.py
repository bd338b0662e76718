"""What comes from outside is printable, short, and passes one place on its way to a terminal."""

import io
import json
import subprocess
import sys
import unicodedata

import pytest

from regard.support.printable import (
    MOST_CHARACTERS,
    UNPRINTABLE,
    PrintableStream,
    printable,
    printable_errors,
    printable_output,
    readable,
    styled,
)


def test_no_control_character_survives_but_line_breaks_and_tabs():
    every = "".join(map(chr, range(0x3100)))
    controls = [c for c in printable(every) if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")]
    assert sorted(set(controls)) == ["\t", "\n"]


@pytest.mark.parametrize("text", ["naïve 猫\n\tend", "می‌خواهم", "👩‍🔬 ❤️", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "a\r\nb", "\xa0"])
def test_texts_of_people_stay_as_they_are(text):
    assert printable(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\x9b31m", r"\u009b31m"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("10 %\r100 %", r"10 %\r100 %"),
        ("\udc80", r"\udc80"),
    ],
)
def test_what_a_terminal_would_obey_is_written_out(text, shown):
    assert printable(text) == shown


def test_what_is_printed_as_json_stays_json():
    value = {"a\x1b\x7f\x9b\u202e": "\u2028\r"}
    assert json.loads(printable(json.dumps(value, ensure_ascii=False))) == value


def test_a_name_from_a_file_is_one_short_line():
    assert readable("h.0.attn.bias") == "h.0.attn.bias"
    assert readable("\x1b[31mred\n") == r"\x1b[31mred\n"
    assert readable("a" * 81) == "a" * 79 + "…"
    assert readable("\x1b" * 10**6) == r"\x1b" * 19 + r"\x1" + "…"
    assert readable([1, 2]) == "[1, 2]"


def test_errors_of_a_reader_are_printable_and_bounded():
    @printable_errors()
    def read(text):
        raise ValueError(f"no key {text}")

    with pytest.raises(ValueError, match=r"^no key \\x1b\[2J$") as error:
        read("\x1b[2J")
    assert error.value.__cause__ is None
    with pytest.raises(ValueError, match=r"^no key x+ … x+$") as error:
        read("x" * 10**6)
    assert len(str(error.value)) == MOST_CHARACTERS + 3


def test_an_error_that_is_printable_stays_the_error_that_it_was():
    class NotFitting(ValueError):
        pass

    with pytest.raises(NotFitting, match=r"^plain$"), printable_errors():
        raise NotFitting("plain")


def test_a_stream_makes_printable_what_is_written_and_is_else_the_stream_it_was():
    under = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="")
    stream = PrintableStream(under)
    print("\x1b[2J猫", file=stream)
    stream.writelines(["a\x07", "b"])
    stream.flush()
    assert under.buffer.getvalue().decode() == "\\x1b[2J猫\na\\x07b"
    assert (stream.encoding, stream.isatty()) == ("utf-8", False)


def test_our_own_colours_pass_and_nothing_else_does():
    under = io.StringIO()
    own = "\r\x1b[2K\x1b[32m  ✓ right\x1b[0m\x1b[?25l\x1b[1A\x1b[2J\x1b[H"
    styled(PrintableStream(under)).write(own + "\x1b]0;title\x07\x1b[6n\x1bc")
    assert under.getvalue() == own + r"\x1b]0;title\x07\x1b[6n\x1bc"
    assert styled(under) is under  # a stream that nobody wrapped


def test_output_is_printable_inside_the_block_and_untouched_after_it(capsys):
    before = sys.stdout, sys.stderr
    with printable_output():
        print("\x1b[31m")
        print("\x1b[32m", file=sys.stderr)
    assert (sys.stdout, sys.stderr) == before
    print("\x1b[33m")
    assert capsys.readouterr() == ("\\x1b[31m\n\x1b[33m\n", "\\x1b[32m\n")


def test_the_traceback_of_an_error_that_ends_the_block_is_printable():
    code = (
        "from regard.support.printable import printable_output\nwith printable_output(): raise RuntimeError('\\x1b[2J')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback (most recent call last):\n")
    assert done.stderr.endswith("RuntimeError: \\x1b[2J\n")


def test_a_status_ends_the_block(monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    with pytest.raises(SystemExit, match="2"), printable_output():
        raise SystemExit(2)
    assert sys.stdout is out


def test_the_pattern_matches_one_character_at_a_time():
    assert UNPRINTABLE.findall("a\x1b\x1b\r\n\r") == ["\x1b", "\x1b", "\r"]
