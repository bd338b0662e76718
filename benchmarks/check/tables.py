"""The tables of `python -m benchmarks check`: what was counted, and the bars that it must not fall below."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from benchmarks.check.cases import WrongLayer
from regard.school.check.verdict import Verdict

LAYERS = 5  # every mistake is put into so many layers at least
NAMED, PAIRS, STEPS, LINES = 0.95, 0.9, 0.9, 0.9  # shares that must be reached
HEAD = ("mistake", "layers", "caught", "named", "wrong", "line")


@dataclass
class CheckTally:
    """How the check did on some wrong layers.

    wrong_names: cases with a mistake that is not theirs. lines: mistakes with a line; located: with the right one.
    missed: what was not caught, not named or named wrongly, in words.
    """

    cases: int = 0
    caught: int = 0
    named: int = 0
    lines: int = 0
    located: int = 0
    wrong_names: int = 0
    layers: set[str] = field(default_factory=set)
    seconds: list[float] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)

    def add(self, case: WrongLayer, verdict: Verdict, seconds: float) -> None:
        """Count a layer with known mistakes."""
        by_name = {one.name: one for one in verdict.findings}
        matches = [next((f for n, f in by_name.items() if n.startswith(name)), None) for name in case.names]
        known = [n for n in by_name if n and not by_name[n].is_warning]
        is_wrong = any(not n.startswith(case.names) for n in known)
        self._count(case, verdict, seconds, all(match is not None for match in matches), is_wrong)
        for match in matches:
            if match is not None and match.line:
                self.lines += 1
                self.located += match.line in case.lines

    def add_unknown(self, case: WrongLayer, verdict: Verdict, seconds: float) -> None:
        """Count a layer with a mistake that has no name: the first step that differs is what must be right."""
        step = case.names[0].rpartition(": ")[2]
        is_wrong = any(one.name for one in verdict.mistakes)
        self._count(case, verdict, seconds, any(one.step == step for one in verdict.mistakes), is_wrong)
        self.lines += 1
        self.located += any(one.line in case.lines for one in verdict.mistakes)

    def _count(self, case: WrongLayer, verdict: Verdict, seconds: float, named: bool, is_wrong: bool) -> None:
        self.cases += 1
        self.layers.add(case.layer)
        self.seconds.append(seconds)
        self.caught += bool(verdict.findings)
        self.named += named
        self.wrong_names += is_wrong
        if not named or is_wrong:
            seen = ", ".join(one.name or f"without a name: {one.step}" for one in verdict.findings) or "nothing"
            self.missed.append(f"{' + '.join(case.names)} in {case.layer}: {seen}")

    def row(self, name: str) -> list[str]:
        """The cells of a table."""
        caught, line = f"{self.caught}/{self.cases}", f"{self.located}/{self.lines}"
        return [name, str(len(self.layers)), caught, str(self.named), str(self.wrong_names), line]


def total(tallies: Mapping[str, CheckTally]) -> CheckTally:
    """All of them together."""
    result = CheckTally()
    for one in tallies.values():
        for name in ("cases", "caught", "named", "lines", "located", "wrong_names"):
            setattr(result, name, getattr(result, name) + getattr(one, name))
        result.layers |= one.layers
        result.seconds += one.seconds
        result.missed += one.missed
    return result


def rows(tallies: Mapping[str, CheckTally]) -> list[list[str]]:
    """The rows of a table, the last for all together where there are several."""
    several = {"all": total(tallies)} if len(tallies) > 1 else {}
    return [one.row(name) for name, one in {**tallies, **several}.items()]


def markdown(head: tuple[str, ...], lines: list[list[str]]) -> str:
    """A table in Markdown.

    >>> print(markdown(("who", "n"), [["we", "3"]]))
    | who | n |
    | --- | --- |
    | we | 3 |
    """
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *lines))


def below_the_bar(known: Mapping[str, CheckTally], pairs: CheckTally, unknown: CheckTally) -> Iterator[str]:
    """What is worse than it must be, in words."""
    for name, one in known.items():
        if len(one.layers) < LAYERS:
            yield f"{name}: in {len(one.layers)} layers; it must be in {LAYERS}"
    everything = total(known)
    for one, words, share in (
        (everything, "known mistakes", NAMED),
        (pairs, "pairs", PAIRS),
        (unknown, "steps", STEPS),
    ):
        if one.caught < one.cases:
            yield f"{words}: {one.caught} of {one.cases} caught; it must be all"
        if one.named < share * one.cases:
            yield f"{words}: {one.named} of {one.cases} named; it must be {share:.0%}"
    if unknown.wrong_names:
        yield f"a mistake without a name got a name {unknown.wrong_names} times"
    for one, words in ((everything, "known mistakes"), (unknown, "mistakes without a name")):
        if one.located < LINES * one.lines:
            yield f"lines of {words}: {one.located} of {one.lines} right; it must be {LINES:.0%}"
