"""The commands in a real terminal: at several widths, piped, without colour, without Unicode, without a home."""

import pytest

pytest.importorskip("pty")

from sampled import quick_only
from terminal import C_LOCALE, ESCAPE, NO_HOME, as_nobody, in_terminal, piped

FEW_TOKENS = ["generate", "Once upon a time", "--max-new-tokens", "7", "--seed", "3", "--device", "cpu"]
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_help_keeps_to_the_terminal_and_to_80_columns(columns):
    for arguments in ([], ["trace"], ["see"], ["page"], ["compare"], ["generate"], ["train"]):
        ended = in_terminal(*arguments, "--help", columns=columns)
        assert (ended.status, ended.width <= min(columns, 80)) == (0, True), ended.out
        assert not ESCAPE.search(ended.out)
        assert "Usage: regard" in ended.out


@pytest.mark.parametrize(("columns", "widest", "left_out"), [(60, 60, "self, induction"), (200, 120, None)])
def test_a_table_keeps_to_the_terminal_and_names_what_is_left_out(columns, widest, left_out):
    ended = in_terminal("see", columns=columns)
    assert (ended.status, ended.width <= widest) == (0, True), ended.out
    assert "6 layers × 8 heads · 37 tokens" in ended.out
    assert "\x1b[35minduction\x1b[0m" in ended.out
    assert (f"not shown at this width: {left_out}" in ended.out) == bool(left_out)
    assert ended.out.rfind(SHOW_CURSOR) >= ended.out.rfind(HIDE_CURSOR)


SENTENCE = "The cat sat on the mat"
TRACES = {
    (): "2  self-attention: + learned queries, keys,",
    ("--step", "scores"): "scores of head 1: queries @ keys.mT",
    ("--tokens", "100", "--d-model", "768", "--heads", "12", "--batch", "4"): "2,360,064 parameters.",
    (SENTENCE,): "weights of head 0.2: softmax(scaled)",
    (SENTENCE, "--head", "4.3", "--step", "queries"): "queries of head 4.3: W_query(x)",
}


@pytest.mark.parametrize(("columns", "widest"), quick_only([(80, 80)], [(60, 60), (80, 80), (200, 120)]))
@pytest.mark.parametrize("arguments", TRACES, ids=" ".join)
def test_a_trace_keeps_to_the_terminal_and_cuts_no_text(arguments, columns, widest):
    ended = in_terminal("trace", *arguments, columns=columns)
    assert (ended.status, ended.width <= widest) == (0, True), ended.out
    assert TRACES[arguments] in ended.out
    lines = ended._replace(out=ended.kept).lines
    assert not [line for line in lines if "…" in line and " × …" not in line and "more channels" not in line]


@pytest.mark.parametrize(
    "arguments",
    [pytest.param(one, marks=() if one == (SENTENCE,) else pytest.mark.slow, id=" ".join(one)) for one in TRACES],
)
def test_a_trace_without_unicode_is_ascii_that_means_the_same(arguments):
    ended = in_terminal("trace", *arguments, columns=60, **C_LOCALE)
    assert (ended.status, ended.width <= 60) == (0, True), ended.out
    assert ended.out.isascii()
    assert "?" not in ended.out


def test_a_trace_without_unicode_keeps_its_columns():
    lines = piped("trace", "--tokens", "100", **C_LOCALE).lines
    steps = [line for line in lines if line.startswith(("  step ", "  mask ", "  scaled ", "  weights "))]
    head, mask, scaled, weights = steps
    assert "-inf unless causal" in mask
    assert "scores / sqrt(64)" in scaled
    for column, cells in (
        ("shape", ("1 x 12 x 100 x 100",) * 3),
        ("why", ("hidden keys", "no longer grows", "each row")),
    ):
        assert {line.index(cell) for line, cell in zip((mask, scaled, weights), cells, strict=True)} == {
            head.index(column)
        }


@pytest.fixture(scope="module")
def table():
    """`regard see`, piped, without a home."""
    return piped("see", **NO_HOME)


def test_piped_and_without_a_home_the_same_is_plain(table):
    assert (table.status, table.err) == (0, "")
    assert table.width <= 80
    assert "4.3   induction          0.30" in table.out
    assert not ESCAPE.search(table.out)


def test_another_user_who_owns_nothing_sees_the_same(table):
    ended = as_nobody("see")
    if ended is None:
        pytest.skip("needs root, and a Python that others may run")
    assert (ended.status, ended.err) == (0, "")
    assert ended.out == table.out


def test_without_unicode_everything_is_ascii_and_stays_aligned(table):
    plain, help_text = piped("see", **C_LOCALE), piped("see", "--help", **C_LOCALE)
    assert (plain.status, plain.err, help_text.status) == (0, "", 0)
    assert [len(line) for line in plain.lines] == [len(line) for line in table.lines]
    assert "6 layers x 8 heads . 37 tokens" in plain.out
    for text in (plain.out, help_text.out):
        assert text.isascii()
        assert "?" not in text


def test_without_colour_only_the_cursor_is_moved():
    ended = in_terminal("see", NO_COLOR="1")
    assert ended.status == 0
    assert ended.width <= 80
    assert not [found for found in ESCAPE.findall(ended.out) if found.endswith("m")], ended.out


def test_text_streams_on_stdout_alone():
    ended = piped(*FEW_TOKENS)
    assert ended.status == 0
    assert ended.out.startswith("Once upon a time")
    assert "7 tokens · " in ended.err


def test_in_a_terminal_the_prompt_is_dim_unless_it_is_a_dumb_one():
    ended = in_terminal(*FEW_TOKENS)
    assert ended.status == 0
    assert ended.kept.startswith("\x1b[2mOnce upon a time\x1b[0m")
    dumb = in_terminal(*FEW_TOKENS, TERM="dumb")
    assert dumb.status == 0
    assert dumb.kept.startswith("Once upon a time")
    assert not ESCAPE.search(dumb.out), dumb.out


def test_ctrl_c_while_a_text_streams_keeps_what_was_written():
    ended = in_terminal("generate", "Once", "--max-new-tokens", "400", "--device", "cpu", ctrl_c_after="Once")
    assert ended.status == 130, ended.out
    assert "interrupted" in ended.out
    assert "Traceback" not in ended.out


def test_training_stops_at_ctrl_c_with_a_checkpoint(tmp_path):
    (tmp_path / "text.txt").write_text("The cat sat on the mat, and the dog on the log.\n" * 200)
    small = ["--context-length", "16", "--batch", "1", "--device", "cpu", "--steps", "50000"]
    arguments = ["train", "--data", str(tmp_path / "text.txt"), "--out", str(tmp_path / "run"), *small]
    ended = in_terminal(*arguments, ctrl_c_after="loss", **NO_HOME)
    assert ended.status == 130, ended.out
    assert "Traceback" not in ended.out
    assert "Resume: the same command again" in ended.out
    assert (tmp_path / "run" / "model" / "config.json").is_file()


@pytest.mark.parametrize(
    "arguments",
    [["trace"], ["see"], ["generate"], ["train", "--data", __file__, "--out", "/dev/null/out"]],
    ids=lambda arguments: arguments[0],
)
def test_ctrl_c_while_torch_is_imported_ends_any_command_quietly(arguments, tmp_path):
    # As packages with C extensions do, this torch makes another error of KeyboardInterrupt.
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(
        "import time; print('importing', flush=True)\n"
        "try: time.sleep(60)\nexcept BaseException: raise ImportError('no numpy') from None\n"
    )
    ended = in_terminal(*arguments, ctrl_c_after="importing", FIRST_PATH=str(tmp_path))
    assert ended.status == 130, ended.out
    assert ESCAPE.sub("", ended.out).replace("^C", "").split() == ["importing"]
    assert ended.out.rstrip().endswith(SHOW_CURSOR)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tarce"], "No such command 'tarce'"),
        (["see", "today.txt"], "there is no file today.txt; give a file"),
        (["generate", "--seed", "x"], "--seed x must be a whole number; see regard generate --help"),
        (
            ["bench", "layer"],
            "No such command 'bench'; the benchmarks are in the repository: in a clone of it, python -m",
        ),
        (["--install-completion", "bash"], "/dev/null/home"),
    ],
    ids=" ".join,
)
def test_an_error_is_one_line_with_status_2(arguments, message):
    # typer would ask for the parent process's shell, which may be none that it knows.
    ended = piped(*arguments, **NO_HOME, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith(f"regard: {message}")
    assert len(ended.err.splitlines()) == 1
