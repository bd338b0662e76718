"""Runs what pages show, as a reader would type it. Needs regard and the standard library, nothing else.

    python tests/readme.py README.md docs/homework.md

Examples run as a script, and line by line at a prompt. Commands and examples run in the current folder, write files
there, and find examples/ and docs/ in it.
"""

from __future__ import annotations

import code
import contextlib
import doctest
import io
import re
import subprocess
import sys
import time
from pathlib import Path

# A line of an example that needs more than the base install is left out there, with the reason.
NEEDS_AN_EXTRA = {"to_pandas": "pandas is not in the base install"}
FEW_STEPS = "--steps 3 --batch 1 --evaluate-windows 1"
FEW_TOKENS = "--max-new-tokens 20"
TWO_PROCESSES = "docs/*.md --parallel fsdp=2 --preset tiny --out runs/parallel --steps 2 --batch 2 --evaluate-windows 1"
MISTAKE_FOUND = 1  # the exit status of `regard check`
NEEDS_MORE = {
    "python -m benchmarks": "the benchmarks are in a clone, with their peers",
    "regard learn": "waits for a file to be saved",
    "regard --install-completion": "changes the files of the shell",
}
WITHOUT_ITS_EXTRA = 2  # the exit status of what the base install cannot do: it says what to install
EXTRA_COMMANDS = ("regard poster", "regard serve --open")
LONGEST_OUTPUT = 130  # lines of a command or of an example at a prompt: a person reads it; pages have a pager


def blocks(text: str, language: str) -> list[str]:
    """The README's code blocks in this language, in order; "" for those without one, which hold commands."""
    matches = re.findall(r"^```(\w*)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    return [block for name, block in matches if name == language]


def inline_commands(text: str) -> list[str]:
    """The commands in a page's sentences and tables, each once; those with a word like FILE are patterns, and left out.

    >>> inline_commands("| `regard trace` | `layer` |\\n`regard trace` or `regard see`, `regard see FILE`")
    ['regard trace', 'regard see']
    """
    outside = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    named = dict.fromkeys(re.findall(r"`((?:regard|python -m) [^`]*)`", outside))
    return [one for one in named if not re.search(r"\b[A-Z]{3,}\b", one)]


def commands(text: str) -> list[str]:
    """The README's commands, in order: the lines that start with `regard` or `torchrun`, without comments.

    >>> commands("```\\nmake demo\\nregard trace    # four rungs\\n$ regard see\\n```\\nregard is a library")
    ['regard trace', 'regard see']
    """
    lines = [line.removeprefix("$ ").split(" #")[0].strip() for b in blocks(text, "") for line in b.splitlines()]
    return [line for line in lines if line.startswith(("regard ", "torchrun "))]


def shortened(command: str) -> str:
    """The same command, brief enough for a test.

    >>> shortened("regard train docs/*.md --out runs/first")
    'regard train docs/*.md --out runs/first --steps 3 --batch 1 --evaluate-windows 1'
    """
    if command.startswith("torchrun "):
        start = re.sub(r"--nproc-per-node \d+", "--nproc-per-node 2", command.split(" …")[0])
        return f"{start} {TWO_PROCESSES}"
    if command.startswith("regard train "):
        return f"{command} {FEW_STEPS}"
    return f"{command} {FEW_TOKENS}" if command.startswith("regard generate ") else command


def run_python(
    examples: list[str],
    leave_out: dict[str, str],
    names: dict[str, object] | None = None,
    page: str = "README.md",
) -> dict[str, object]:
    """Run the examples one after the other in one namespace, which is returned; `names` is what it holds at first."""
    names = {} if names is None else names
    for block in examples:
        for word, reason in leave_out.items():
            for line in [line for line in block.splitlines() if word in line]:
                print(f"  skipped  {line.strip()}: {reason}")
                block = block.replace(line, "")
        if ">>>" in block:
            test = doctest.DocTestParser().get_doctest(block, names, page, page, 0)
            if doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS).run(test, clear_globs=False).failed:
                raise SystemExit(f"this example of {page} fails:\n\n{block}")
            names = test.globs
        else:
            try:
                exec(compile(block, page, "exec"), names)
            except Exception:
                print(f"this example of {page} fails:\n\n{block}", file=sys.stderr)
                raise
    return names


class _Prompt(code.InteractiveConsole):
    """A Python prompt at which an error ends the run, instead of being shown."""

    def showtraceback(self) -> None:
        raise SystemExit("an example of the page fails at a prompt") from sys.exc_info()[1]

    def showsyntaxerror(self, *arguments: object, **options: object) -> None:
        raise SystemExit("an example of the page cannot be pasted into a prompt") from sys.exc_info()[1]


def run_at_a_prompt(examples: list[str]) -> dict[str, object]:
    """Type the examples line by line, as when they are pasted; what each prints is of a length that a person reads."""
    names: dict[str, object] = {"__name__": "__main__"}
    prompt, plain = _Prompt(names), re.compile(r"^(>>> |\.\.\. ?)")
    for block in examples:
        lines = block.splitlines()
        if ">>>" in block:
            lines = [plain.sub("", line) for line in lines if plain.match(line)]
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            waits = [prompt.push(line) for line in lines]
            if waits and waits[-1]:
                prompt.push("")
        if (count := len(printed.getvalue().splitlines())) > LONGEST_OUTPUT:
            raise SystemExit(f"this example prints {count} lines at a prompt:\n\n{block}")
    return names


def run_command(command: str) -> None:
    """Run one command in a shell; stop with its output if it fails."""
    start = time.monotonic()
    result = subprocess.run(["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    status = WITHOUT_ITS_EXTRA if command in EXTRA_COMMANDS else MISTAKE_FOUND * command.startswith("regard check ")
    if result.returncode != status or (command in EXTRA_COMMANDS and "pip install " not in result.stdout):
        raise SystemExit(
            f"this command of README.md fails with exit code {result.returncode}:\n\n  {command}\n\n{result.stdout}"
        )
    if not result.stdout.strip():
        raise SystemExit(f"this command of README.md prints nothing:\n\n  {command}")
    if (count := len(result.stdout.splitlines())) > LONGEST_OUTPUT and not command.startswith("regard docs "):
        raise SystemExit(f"this command prints {count} lines:\n\n  {command}")
    print(f"  {time.monotonic() - start:5.1f} s  {command}", flush=True)


def main(*pages: str) -> None:
    done: set[str] = set()
    for page in pages:
        text, name = Path(page).read_text(), Path(page).name
        examples = blocks(text, "python")
        run_python(examples, NEEDS_AN_EXTRA)
        run_at_a_prompt(examples)
        print(f"base: {len(examples)} examples of {name} ran as a script and at a prompt")
        for command in [*commands(text), *inline_commands(text)]:
            if reason := NEEDS_MORE.get(re.sub(r"(?<=benchmarks) .*", "", command)):
                print(f"  skipped  {command}: {reason}")
            elif command not in done:
                run_command(shortened(command))
            done.add(command)
        print(f"base: every command of {name} ran")


if __name__ == "__main__":
    main(*sys.argv[1:])
