"""Runs what README.md shows, as a reader would type it. Needs regard and the standard library, nothing else.

    python tests/readme.py README.md

Commands and examples run in the current folder and write files there.
"""

from __future__ import annotations

import doctest
import random
import re
import subprocess
import sys
import time
from pathlib import Path

# A line of an example that needs more than the base install is left out there, with the reason.
NEEDS_AN_EXTRA = {"to_pandas": "pandas is not in the base install"}
FEW_STEPS = "--steps 3 --batch 1 --evaluate-windows 1"
FEW_TOKENS = "--max-new-tokens 20"
TWO_PROCESSES = (
    "--parallel fsdp=2 --data books/*.txt --preset tiny --out runs/parallel --steps 2 --batch 2 --evaluate-windows 1"
)


def blocks(text: str, language: str) -> list[str]:
    """The README's code blocks in this language, in order; "" for those without one, which hold commands."""
    matches = re.findall(r"^```(\w*)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    return [block for name, block in matches if name == language]


def commands(text: str) -> list[str]:
    """The README's commands, in order: the lines that start with `regard` or `torchrun`, without comments.

    >>> commands("```\\nmake demo\\nregard trace    # four rungs\\n$ regard see\\n```\\nregard is a library")
    ['regard trace', 'regard see']
    """
    lines = [line.removeprefix("$ ").split(" #")[0].strip() for b in blocks(text, "") for line in b.splitlines()]
    return [line for line in lines if line.startswith(("regard ", "torchrun "))]


def shortened(command: str) -> str:
    """The same command, brief enough for a test.

    >>> shortened("regard train --data books/*.txt --out runs/first")
    'regard train --data books/*.txt --out runs/first --steps 3 --batch 1 --evaluate-windows 1'
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


def run_command(command: str) -> None:
    """Run one command in a shell; stop with its output if it fails."""
    start = time.monotonic()
    result = subprocess.run(["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode:
        raise SystemExit(
            f"this command of README.md fails with exit code {result.returncode}:\n\n  {command}\n\n{result.stdout}"
        )
    if not result.stdout.strip():
        raise SystemExit(f"this command of README.md prints nothing:\n\n  {command}")
    print(f"  {time.monotonic() - start:5.1f} s  {command}", flush=True)


def write_books() -> None:
    """A text of invented words in books/, for `regard train`."""
    numbers = random.Random(7)
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    words = ["".join(numbers.choices(syllables, k=numbers.randint(1, 4))) for _ in range(5000)]
    Path("books").mkdir(exist_ok=True)
    Path("books/words.txt").write_text(" ".join(numbers.choices(words, k=30_000)))


def main(readme: str) -> None:
    text = Path(readme).read_text()
    examples = blocks(text, "python")
    run_python(examples, NEEDS_AN_EXTRA)
    print(f"base: {len(examples)} examples of README.md ran")
    write_books()
    for command in commands(text):
        run_command(shortened(command))
    print("base: every command of README.md ran")


if __name__ == "__main__":
    main(*sys.argv[1:])
