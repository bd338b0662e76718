"""The command as a person types it."""

import os
import re
import subprocess
import sys
from importlib import metadata

import pytest
from typer.testing import CliRunner

from regard.cli import app, main
from terminal import in_terminal

run = CliRunner()


def test_the_version_is_that_of_the_package():
    result = run.invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"regard {metadata.version('regard')}\n")


def test_the_version_is_in_the_package_and_needs_no_torch():
    code = "import regard, sys; print(regard.__version__, 'torch' in sys.modules, '__version__' in dir(regard))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{metadata.version('regard')} False True\n"


def test_the_package_imports_nothing_before_ctrl_c_is_handled():
    code = "import sys; before = set(sys.modules); import regard; print(sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['regard']\n"


def test_the_package_is_a_command_too():
    done = subprocess.run([sys.executable, "-m", "regard", "--help"], capture_output=True, text=True, check=True)
    assert done.stdout == run.invoke(app, ["--help"], prog_name="regard").output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["see", "--head", "x"], "--head x must be a number, such as 3; or 4.3, head 3 of layer 4"),
        (["see", "  "], "the text '  ' is empty; give it at least a word"),
        (["trace", "The", "cat"], 'a text of several words needs quotes: regard trace "The cat"'),
        (["tarce"], "No such command 'tarce'"),
        (["see", "--txt", "hello"], "No such option: --txt"),
        (["see", "--max-tokens", "few"], "--max-tokens few must be a whole number; see regard see --help"),
        (["trace", "--tokens", "0"], "--tokens 0 must be at least 1; see regard trace --help"),
        (["trace", "--step"], "--step needs a value; see regard trace --help"),
        (["generate", "--temperature=hot"], "--temperature hot must be a number; see regard generate --help"),
        (["see", "tiny", "gpt2"], 'tiny is a model, not a text: regard see --model tiny "gpt2"'),
        (["see", "tiny"], "tiny is a model, not a text; give it with --model tiny"),
        (["see", "--device", "abacus"], "--device abacus is none that torch knows; try cpu or cuda"),
        (["see", "caf\udce9"], "caf? is not UTF-8 text; type it where the locale is UTF-8, or give a file"),
        (["train"], "Missing option '--out'; see regard train --help"),
        (["train", "--out", "x"], "there is nothing to train on; name text files: regard train FILE --out runs/first"),
        (["train", "no.txt", "--out", "x"], "data file no.txt is not there; check the path"),
        (["grade", "nowhere"], "nowhere is no folder; give the folder that holds the submissions"),
        (
            ["trace", "--tokens", "3", "--d-model", "770"],
            "--d-model 770 is not divisible by --heads 12; try --heads 11, 14 or 22",
        ),
        (["trace", "  "], "the sentence is empty"),
        (["trace", "hello", "--tokens", "3"], "give a sentence or --tokens, not both"),
    ],
)
def test_a_mistake_is_one_line_and_no_traceback(arguments, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["regard", *arguments])
    with pytest.raises(SystemExit, match="2"):
        main()
    told = capsys.readouterr()
    assert told.err.startswith(f"regard: {message}")
    assert (told.out, len(told.err.splitlines())) == ("", 1)


def test_without_a_command_the_help_is_shown(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["regard"])
    with pytest.raises(SystemExit) as exiting:
        main()
    assert exiting.value.code == 0
    assert "Commands:\n" in capsys.readouterr().out


def test_what_installs_the_completion_writes_no_escape_codes(tmp_path):
    # The shell is named here; left to itself, typer looks at what started the tests, which is make's sh at times.
    shown = in_terminal(
        "--install-completion", "bash", HOME=str(tmp_path), _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1"
    )
    assert "completion installed in" in shown.out
    assert "x1b" not in shown.out


@pytest.mark.parametrize("name", ["trace", "see", "page", "compare", "atlas", "generate", "train"])
def test_help_has_one_style(name):
    text = run.invoke(app, [name, "--help"]).output
    assert not re.search(r"default:\s+\(|<list|range>|x>=|\S  \[(default|required)", text)


def run_in_the_c_locale(*arguments):
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    environment.pop("PYTHONIOENCODING", None)
    return subprocess.run([sys.executable, "-m", "regard", *arguments], env=environment, capture_output=True)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="the C locale is of POSIX")
def test_words_outside_ascii_arrive_in_the_c_locale(tmp_path):
    done = run_in_the_c_locale("see", "ich höre", "--json")
    assert done.returncode == 0, done.stderr
    file = tmp_path / "höre.txt"
    file.write_text("ich", encoding="utf-8")
    assert run_in_the_c_locale("see", str(file), "--json").returncode == 0
    refused = run_in_the_c_locale("page", "ich", "-o", str(tmp_path / "höre.html"))
    assert refused.returncode == 2
    assert b"cannot be in a file name here: the locale of this terminal is not UTF-8; set one:" in refused.stderr


def test_an_error_that_is_a_bug_keeps_its_traceback(monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("a bug")

    monkeypatch.setattr("regard.cli.app", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        main()


def test_ctrl_c_is_status_130(monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("regard.cli.app", interrupted)
    with pytest.raises(SystemExit, match="130"):
        main()
    assert capsys.readouterr() == ("", "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_output_that_cannot_be_written_is_one_line():
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "regard", "--version"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert re.fullmatch("regard: .*No space left on device\n", done.stderr)


def test_whoever_reads_may_stop_reading():
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "regard", "train", "--help"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("shell", "line"),
    [
        ("bash", {"COMP_WORDS": "regard tr", "COMP_CWORD": "1"}),
        ("zsh", {"_TYPER_COMPLETE_ARGS": "regard tr"}),
        ("fish", {"_TYPER_COMPLETE_ARGS": "regard tr", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}),
    ],
)
def test_a_shell_completes_commands_without_torch(shell, line):
    command = [sys.executable, "-X", "importtime", "-m", "regard"]
    environment = os.environ | line | {"_REGARD_COMPLETE": f"complete_{shell}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert re.findall(r"\b(trace|train|see|generate)\b", done.stdout) == ["trace", "train"]
    assert not re.search(r"\btorch\b", done.stderr)


# typer asks for the parent process's shell, which may be none that it knows; so it takes the name that is given.
NAMED_SHELL = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}


def test_the_script_of_a_shell_can_be_shown():
    done = subprocess.run(
        [sys.executable, "-m", "regard", "--show-completion", "bash"],
        env=os.environ | NAMED_SHELL,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "complete -o default -F _regard_completion regard" in done.stdout


NO_DEFAULT = {"--version", "--install-completion", "--show-completion", "--help", "--data", "--out"}


@pytest.mark.parametrize("name", ["see", "page", "compare", "effect", "atlas", "serve", "generate", "train"])
def test_every_option_shows_its_default(name):
    text = run.invoke(app, [name, "--help"]).output
    options = re.split(r"\n  (?=-)", text.partition("Options:")[2].strip("\n "))
    assert len(options) > 5
    for option in options:
        if not NO_DEFAULT & set(re.findall(r"--[\w-]+", option.splitlines()[0])):
            assert re.search(r"\[default:", option), option


@pytest.mark.parametrize(
    "name", ["trace", "see", "page", "compare", "effect", "atlas", "serve", "check", "grade", "generate"]
)
def test_a_command_has_one_job_and_at_most_14_options(name):
    options = run.invoke(app, [name, "--help"]).output.partition("Options:")[2]
    assert len(re.findall(r"^  -", options, re.MULTILINE)) - 1 <= 14  # without --help


def test_the_installed_command_answers():
    command = [sys.executable, "-c", "from regard.cli import main; main()", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "Attention you can read, see, check and ship." in done.stdout


COMMANDS = ["trace", "see", "page", "compare", "effect", "atlas", "serve", "check", "grade", "generate", "train"]


@pytest.mark.parametrize("arguments", [[], *([name] for name in COMMANDS)], ids=" ".join)
def test_the_short_flag_shows_the_same_help(arguments):
    short, long = (run.invoke(app, [*arguments, flag]) for flag in ("-h", "--help"))
    assert (short.exit_code, long.exit_code) == (0, 0)
    assert short.output == long.output
    assert "Usage: " in short.output


@pytest.mark.parametrize("name", COMMANDS)
def test_help_lists_every_command_with_a_sentence(name):
    assert re.search(rf"^  {name} +[A-Z].*\.$", run.invoke(app, ["--help"]).output, re.MULTILINE)


LAZY = [["--version"], ["--help"], *([name, "--help"] for name in COMMANDS)]


def test_help_and_version_do_not_import_torch():
    # One process for all: what one of them imports is seen after it, and none may import any of these.
    code = (
        "import sys; from regard.cli import app\n"
        f"for arguments in {LAZY}:\n"
        "    sys.argv = ['regard', *arguments]\n"
        "    try: app()\n"
        "    except SystemExit: pass\n"
        "    heavy = sorted({'torch', 'rich', 'transformers', 'jaxtyping'} & set(sys.modules))\n"
        "    print('IMPORTED', arguments, heavy)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = [line for line in done.stdout.splitlines() if line.startswith("IMPORTED")]
    assert imported == [f"IMPORTED {arguments} []" for arguments in LAZY]


@pytest.mark.parametrize(("arguments", "status"), [(["--version"], 0), (["see", "--head", "x"], 2)])
def test_under_torchrun_a_process_is_left_at_once_with_all_that_was_said(arguments, status, monkeypatch, capfd):
    def left(code):
        raise RuntimeError(f"left with {code}")

    monkeypatch.setattr(sys, "argv", ["regard", *arguments])
    with pytest.raises(SystemExit, match=str(status)):
        main()
    said = capfd.readouterr()
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setattr("regard.cli.os._exit", left)
    with pytest.raises(RuntimeError, match=f"left with {status}"):
        main()
    assert capfd.readouterr() == said
    assert said.out or said.err
