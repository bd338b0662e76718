"""Output for terminals without Unicode."""

import io
import re
import sys
import unicodedata
from pathlib import Path

import pytest

import regard
from regard.commands.terminal.ascii import SUPERSCRIPTS, SYMBOLS, use_ascii_where_needed
from regard.school.check.learner_code import text_hints
from regard.support import vocabulary

# In comments, docstrings and tests of what a model may read; printed by no command.
NOT_PRINTED = set("猫黑が座った👩öß🐈ïéĠÿ®¬¡ᵢⱼ₂⁻½Φ＝＋－＠")
# Letters of the words that are sought in the names and comments of learners' files.
SOUGHT = "".join(Path(words.__file__).read_text() for words in (vocabulary, text_hints))
NOT_PRINTED |= {c for c in SOUGHT if unicodedata.category(c)[0] in "LM"} | set("µê")


def stream(encoding):
    return io.TextIOWrapper(io.BytesIO(), encoding=encoding)


def test_every_symbol_becomes_ascii():
    assert {len(symbol) for symbol in SYMBOLS} == {1}
    assert "".join(SYMBOLS.values()).isascii()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mask: −∞ unless causal", "mask: -inf unless causal"),
        ("scores / √64", "scores / sqrt(64)"),
        ("it is √7.", "it is sqrt(7)."),
        ("√2.5", "sqrt(2.5)"),
        ("/ √head_dim (√5)", "/ sqrt(head_dim) (sqrt(5))"),
        ("√(2 × 7)", "sqrt(2 x 7)"),
        ("below 2³², ×10⁷", "below 2^32, x10^7"),
        ("×√7 ≥ 1", "xsqrt(7) >= 1"),
    ],
)
def test_mathematics_keeps_its_meaning(text, expected):
    assert text.encode("ascii", "regard.ascii").decode() == expected


def test_every_symbol_in_the_source_is_known():
    files = [path for kind in ("*.py", "*.md") for path in Path(regard.__file__).parent.rglob(kind)]
    text = "".join(path.read_text() for path in files)
    unknown = set(re.findall(r"[^\x00-\x7f]", text)) - NOT_PRINTED - SYMBOLS.keys() - {*map(chr, SUPERSCRIPTS)}
    assert unknown <= {"�"}  # which becomes ?


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [
        ("ascii", b"2 x 7 > sqrt(64) ? ?"),
        ("latin-1", b"2 \xd7 7 > sqrt(64) ? \xe9"),
        ("utf-8", "2 × 7 → √64 猫 é".encode()),
    ],
)
def test_only_what_the_encoding_does_not_have_is_replaced(encoding, expected, monkeypatch):
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, stream(encoding))
    use_ascii_where_needed()
    for written in (sys.stdout, sys.stderr):
        written.write("2 × 7 → √64 猫 é")
        written.flush()
        assert written.buffer.getvalue() == expected


def test_typer_writes_to_an_ascii_stream_as_print_does(monkeypatch):
    import typer

    monkeypatch.setattr(sys, "stdout", stream("ascii"))
    use_ascii_where_needed()
    typer.echo("2 × 7")
    sys.stdout.flush()
    assert sys.stdout.buffer.getvalue() == b"2 x 7\n"


def test_a_stream_that_is_no_file_is_left_alone(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    use_ascii_where_needed()
    print("2 × 7", end="")
    assert sys.stdout.getvalue() == "2 × 7"
