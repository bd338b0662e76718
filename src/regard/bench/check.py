"""Known mistakes put into right layers, and how many of them `regard check` names.

python -m regard.bench.check
python -m regard.bench.check --pairs 300
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from regard.bench.check_cases import WrongLayer, pairs, right_layers, wrong_layers
from regard.bench.options import check_parser
from regard.bench.report import say, table_lines
from regard.checking.check import check_subject
from regard.checking.source import load
from regard.checking.values import Request
from regard.checking.verdict import Verdict


@dataclass
class CheckTally:
    """How the check did on some wrong layers.

    wrong_names: layers with a mistake that is not theirs. lines: mistakes with a line; located: with the right one.
    """

    cases: int = 0
    caught: int = 0
    named: int = 0
    lines: int = 0
    located: int = 0
    wrong_names: int = 0
    seconds: list[float] = field(default_factory=list)

    def add(self, case: WrongLayer, verdict: Verdict, seconds: float) -> None:
        """Count one case."""
        self.cases += 1
        self.seconds.append(seconds)
        by_name = {one.name: one for one in verdict.findings}
        matches = [next((f for n, f in by_name.items() if n.startswith(name)), None) for name in case.names]
        self.caught += bool(verdict.findings)
        self.named += all(match is not None for match in matches)
        for match in matches:
            if match is not None and match.line:
                self.lines += 1
                self.located += match.line in case.lines
        known = [n for n in by_name if n and not by_name[n].is_warning]
        self.wrong_names += any(not n.startswith(case.names) for n in known)


def check_source(source: str, folder: Path) -> tuple[Verdict, float]:
    """Check a layer that is given as text, and how long that took."""
    path = folder / f"layer_{abs(hash(source))}.py"
    path.write_text(source, encoding="utf-8")
    subject = load(path).subjects()[0]
    start = time.perf_counter()
    verdict = check_subject(subject, Request())
    return verdict, time.perf_counter() - start


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    options = check_parser().parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for layer, source in right_layers().items():
            verdict, _ = check_source(source, folder)
            say(f"  right as it stands: {layer}: {verdict.status}")
        tallies: dict[str, CheckTally] = {}
        for case in wrong_layers():
            tallies.setdefault(case.names[0], CheckTally()).add(case, *check_source(case.source, folder))
        say("")
        _print(tallies)
        chosen = pairs()
        random.Random(options.seed).shuffle(chosen)
        tally = CheckTally()
        for case in chosen[: options.pairs]:
            tally.add(case, *check_source(case.source, folder))
        say("")
        _print({f"pairs ({len(chosen)} possible)": tally})
        tally = CheckTally()
        for case in wrong_layers("unknown.txt"):
            step = case.names[0].rpartition(": ")[2]
            verdict, seconds = check_source(case.source, folder)
            tally.cases += 1
            tally.seconds.append(seconds)
            tally.caught += bool(verdict.mistakes)
            tally.wrong_names += any(one.name for one in verdict.mistakes)
            tally.named += any(one.step == step for one in verdict.mistakes)
            tally.lines += 1
            tally.located += any(one.line in case.lines for one in verdict.mistakes)
        say("")
        _print({"without a name (named: the step)": tally})


def _print(tallies: dict[str, CheckTally]) -> None:
    total = CheckTally()
    for one in tallies.values():
        for name in ("cases", "caught", "named", "lines", "located", "wrong_names"):
            setattr(total, name, getattr(total, name) + getattr(one, name))
        total.seconds += one.seconds
    shown = {**tallies, "all": total} if len(tallies) > 1 else tallies
    columns = [
        list(shown),
        [str(one.cases) for one in shown.values()],
        [str(one.caught) for one in shown.values()],
        [str(one.named) for one in shown.values()],
        [str(one.wrong_names) for one in shown.values()],
        [f"{one.located}/{one.lines}" for one in shown.values()],
    ]
    say("\n".join(table_lines(["mistake", "n", "caught", "named", "wrong", "line"], columns)))
    slowest = max(total.seconds, default=0.0)
    say(f"  {sum(total.seconds) / max(1, total.cases):.2f} s each, {slowest:.2f} s at most")


if __name__ == "__main__":
    main()
