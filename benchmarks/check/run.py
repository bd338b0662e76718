"""Known mistakes put into right layers, and how many of them `regard check` names.

python -m benchmarks check --table docs/check/table.md
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.check.cases import WrongLayer, pairs, right_layers, wrong_layers
from benchmarks.check.published import PUBLISHED
from benchmarks.check.tables import HEAD, CheckTally, below_the_bar, markdown, rows
from benchmarks.harness import say, stage, table_lines, wrap
from regard.school.check.check import check_subject
from regard.school.check.compare.constructor_arguments import (
    GROUPED,
    OTHER_GROUPED,
    OTHERS,
    PROBES,
    ProbeSizes,
    shares_key_heads,
)
from regard.school.check.learner_code.loading import load_file
from regard.school.check.request import Request
from regard.school.check.verdict import Verdict
from regard.support.files import atomically

# Right layers are checked at five sizes with three seeds.
SIZES = (*PROBES[:2], OTHERS[0], ProbeSizes(29, 2, 11, 17, 3, 7), ProbeSizes(11, 7, 5, 19, 2, 13))
GROUPED_SIZES = (
    *(GROUPED, OTHER_GROUPED, ProbeSizes(29, 4, 3, 17, 3, 7, kv_heads=2), ProbeSizes(19, 10, 3, 17, 2, 7, kv_heads=5)),
    ProbeSizes(11, 6, 5, 19, 2, 13, kv_heads=2),
)
SEEDS = (0, 1, 2)
PUBLISHED_HEAD = ("check", "wrong layers", "it accepts", "regard accepts", "regard names")
WIDEST = 36  # characters of a name, for a table of 80 columns
Row = list[str]


def check_source(source: str, folder: Path, request: Request | None = None) -> tuple[Verdict, float]:
    """Check a layer that is given as text, and how long that took."""
    subject = load_file(_write(source, folder)).subjects()[0]
    start = time.perf_counter()
    verdict = check_subject(subject, request or Request())
    return verdict, time.perf_counter() - start


def _write(source: str, folder: Path) -> Path:
    path = folder / f"layer_{abs(hash(source))}.py"
    path.write_text(source, encoding="utf-8")
    return path


def refused(layer: str, source: str, folder: Path) -> list[str]:
    """The sizes and seeds at which a right layer does not pass."""
    subject = load_file(_write(source, folder)).subjects()[0]
    is_grouped = "build" in subject.described and shares_key_heads(subject.described, subject.source)
    found = []
    for sizes in GROUPED_SIZES if is_grouped else SIZES:
        for seed in SEEDS:
            verdict = check_subject(subject, Request(probes=(sizes,), seed=seed))
            if not verdict.is_right:
                why = ", ".join(one.name or one.says for one in verdict.mistakes) or verdict.problem
                found.append(f"{layer} at {sizes} with seed {seed}: {why}")
    return found


def published_row(layer: str, cases: Sequence[WrongLayer], folder: Path) -> Row:
    """How many wrong layers a published check accepts, and ours."""
    accepted = [case for case in cases if _accepts(layer, case.source, folder)]
    verdicts = [check_source(case.source, folder)[0] for case in cases]
    ours = sum(not one.mistakes for one in verdicts)
    named = sum(
        any(one.name.startswith(case.names) for one in verdict.mistakes)
        for case, verdict in zip(cases, verdicts, strict=True)
    )
    return [layer, str(len(cases)), str(len(accepted)), str(ours), str(named)]


def _accepts(layer: str, source: str, folder: Path) -> bool:
    subject = load_file(_write(source, folder)).subjects()[0]
    return PUBLISHED[layer](getattr(subject, "target", None)) == ""


def main(argv: Sequence[str]) -> int:
    """Print the tables; the exit status is 1 where something is below its bar."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks check")
    parser.add_argument("--pairs", type=int, default=150, help="pairs of mistakes to try [default: %(default)s]")
    parser.add_argument("--seed", type=int, default=0, help="which pairs are tried [default: %(default)s]")
    parser.add_argument("--table", metavar="FILE", help="write the tables to this Markdown file")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as name:
        folder, kept = Path(name), []
        stage("right layers")
        layers = right_layers()
        problems = [one for layer, source in layers.items() for one in refused(layer, source, folder)]
        checks = f"{len(layers)} right layers at {len(SIZES)} sizes with {len(SEEDS)} seeds: {len(problems)} refused"
        say(f"  {checks}\n")

        stage("known mistakes")
        known: dict[str, CheckTally] = {}
        for case in wrong_layers():
            known.setdefault(case.names[0], CheckTally()).add(case, *check_source(case.source, folder))
        kept.append(_print(known))

        stage("pairs")
        chosen, both, unknown = pairs(), CheckTally(), CheckTally()
        random.Random(options.seed).shuffle(chosen)
        for case in chosen[: options.pairs]:
            both.add(case, *check_source(case.source, folder))
        stage("mistakes without a name")
        for case in wrong_layers("unknown.txt"):
            unknown.add_unknown(case, *check_source(case.source, folder))
        kept.append(_print({f"pairs, of {len(chosen)}": both}))
        kept.append(_print({"without a name (named: the step)": unknown}))

        stage("published checks")
        edits = wrong_layers("published.txt")
        table = [published_row(one, [case for case in edits if case.layer == one], folder) for one in PUBLISHED]
        say("\n".join(table_lines(PUBLISHED_HEAD, list(zip(*table, strict=True)))))
        kept.append(markdown(PUBLISHED_HEAD, table))

    problems += below_the_bar(known, both, unknown)
    problems += [f"regard accepts {row[3]} wrong layers of {row[0]}" for row in table if row[3] != "0"]
    for line in (line for one in (*known.values(), both, unknown) for missed in one.missed for line in wrap(missed)):
        say(line)
    if options.table:
        _keep(Path(options.table), checks, kept)
    if problems:
        say("\n  Below the bar:")
        say("\n".join(line for one in problems for line in wrap(one)))
    return int(bool(problems))


def _print(tallies: dict[str, CheckTally]) -> str:
    """Print a table; return it as Markdown."""
    lines = rows(tallies)
    say("\n".join(table_lines(HEAD, list(zip(*([_short(name), *cells] for name, *cells in lines), strict=True)))))
    seconds = [one for tally in tallies.values() for one in tally.seconds]
    say(f"  {sum(seconds) / max(1, len(seconds)):.2f} s each, {max(seconds, default=0.0):.2f} s at most\n")
    return markdown(HEAD, lines)


def _short(name: str) -> str:
    return name if len(name) <= WIDEST else f"{name[: WIDEST - 1]}…"


def _keep(path: Path, checks: str, tables: Sequence[str]) -> None:
    """Write the tables as Markdown."""
    text = (
        "# Check, measured\n\nWritten by `python -m benchmarks check --table docs/check/table.md`; what the columns "
        f"mean is in [check](../check.md#how-well-it-does).\n\n{checks}.\n\n" + "\n\n".join(tables) + "\n"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomically(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
