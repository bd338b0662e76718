"""`regard see … --against`: two texts, two models or two heads side by side, and what changed."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

from regard.commands.head_names import read_heads, read_to
from regard.support.tokens import printable_token

if TYPE_CHECKING:
    from regard.commands.models import ModelWithText
    from regard.heads.report.report import Seen

_FEW = 8  # heads in the table above the pictures
_TITLE = 32  # letters of a text that name it


class Against(NamedTuple):
    """What is compared with the run, as a person typed it."""

    flag: str  # --against, --against-model, --against-head or --cut
    value: str
    to: str = "0"  # what heads that are cut hand over

    def __str__(self) -> str:
        """As part of a command."""
        return f"{self.flag} {shlex.quote(self.value)}{'' if self.to == '0' else f' --to {self.to}'}"


class TitledRun(NamedTuple):
    """A model that has read a text, and what its heads did."""

    title: str
    model: str
    opened: ModelWithText
    seen: Seen
    is_cut: bool = False  # steps of its layers would be those without the cut


def read_against(
    text: str | None, model: str | None, head: str | None, cut: str | None = None, to: str = "0"
) -> Against | None:
    """The one comparison that was asked for.

    >>> str(read_against(None, "runs/first/model", None))
    '--against-model runs/first/model'
    """
    read_to(to)
    if cut is None and to != "0":
        raise ValueError(f"--to {to} is what heads that are cut hand over; add --cut 0.2")
    read_heads("--cut", cut)
    options = {"--against": text, "--against-model": model, "--against-head": head, "--cut": cut}
    typed = [Against(flag, value, to) for flag, value in options.items() if value is not None]
    if len(typed) > 1:
        raise ValueError(f"{typed[0]} and {typed[1]} are two comparisons; leave one of them out")
    if head is not None and re.fullmatch(r"\d+\.\d+", head) is None:
        raise ValueError(f"--against-head {head} must be a head, such as 4.3, head 3 of layer 4")
    return typed[0] if typed else None


def check_against(against: Against, text: str | None, options: Mapping[str, object], output: str | None) -> None:
    """Refuse what means nothing in a comparison. options: those that were typed, by their flags."""
    if (against.flag, against.value) == ("--against", "-") and text == "-":
        raise ValueError("only one of the two texts can be standard input, -; give the other as a file")
    refused = ["--token", "--step", "--save", "--layer"]
    refused += ["--all", "--json"] if against.flag == "--against-head" else []
    for flag in refused:
        if options.get(flag):
            raise ValueError(f"{flag} shows one run and {against.flag} compares two; leave one of them out")
    if output is not None and not output.lower().endswith((".html", ".htm")):
        better = shlex.quote(f"{PurePath(output).stem}.html")
        raise ValueError(f"-o {output} is a figure of one head; a comparison is a page: -o {better}")


def text_titles(names: Sequence[str | None], contents: Sequence[str]) -> list[str]:
    """Short names of texts: of a file its name, else its beginning; where that is the same, what differs.

    >>> text_titles([None, None], ["The cat sat", "Alice was beginning to get very tired"])
    ['“The cat sat”', '“Alice was beginning to get very…”']
    >>> text_titles([None, None], ["the cat " * 9 + "sat", "the cat " * 9 + "ran"])
    ['“… sat”', '“… ran”']
    """
    texts = [printable_token(" ".join(one.split())) for one in contents]
    shown = [_beginning(one) for one in texts]
    if len(set(shown)) < len(set(texts)):
        same = next(i for i in range(len(texts[0]) + 1) if len({one[: i + 1] for one in texts}) > 1)
        first = texts[0].rfind(" ", 0, same) + 1
        shown = [_beginning(f"… {one[first:]}") for one in texts]
    files = [
        printable_token(PurePath(name).name) if name is not None and os.path.isfile(name) else None for name in names
    ]
    titles = [f"“{text}”" if file is None else file for file, text in zip(files, shown, strict=True)]
    return titles if len(set(titles)) == len(titles) else [f"“{text}”" for text in shown]


def _beginning(text: str) -> str:
    """As many words as make a title."""
    if len(text) <= _TITLE:
        return text
    words, cut = text[:_TITLE].rpartition(" ")[0], text[: _TITLE - 1]
    return f"{words if len(words) > _TITLE // 2 else cut}…"


def cut_titles(cut: str, to: str) -> list[str]:
    """Names of the runs before and after a cut.

    >>> cut_titles("0.2,4.3", "mean")
    ['uncut', 'without 0.2, 4.3 (cut to their mean)']
    """
    heads = [f"{layer}.{head}" for layer, head in read_heads("--cut", cut) or ()]
    mean = "" if to == "0" else f" (cut to {'its' if len(heads) == 1 else 'their'} mean)"
    return ["uncut", f"without {', '.join(heads)}{mean}"]


def model_titles(names: Sequence[str]) -> list[str]:
    """Short names of two models: the last part of their paths, where these differ.

    >>> model_titles(["runs/first/step-100", "runs/first/step-200"]), model_titles(["a/model", "b/model"])
    (['step-100', 'step-200'], ['a/model', 'b/model'])
    """
    last = [PurePath(name).name or name for name in names]
    return last if len(set(last)) == len(last) > 1 else list(names)


class TwoRuns:
    """Two runs of the same heads: other texts, or other weights."""

    def __init__(self, runs: Sequence[TitledRun], against: Against, head: tuple[int, int] | None, same: str) -> None:
        before, after = runs
        if before.seen.portraits().keys() != after.seen.portraits().keys():
            raise ValueError(
                f"{against.flag} {against.value} has {_sizes(after.seen)} and {before.title} has {_sizes(before.seen)}; "
                "only models with the same layers and heads can be compared, such as two checkpoints of one training"
            )
        self.against = against
        self.runs = runs
        self.same = same  # what both have: the model, or the text
        self.changes = before.seen.compare(after.seen)
        self.head = (self.changes[0].layer, self.changes[0].head) if head is None else head
        self.drawn = head is not None or self.changes[0].size > 0  # heads that are the same are not worth a picture
        self.start = {"view": "compare", "layer": self.head[0], "head": self.head[1]}  # of a page

    def print(self, every: bool, again: str, picture: bool) -> None:
        """The heads that changed most, and one head in both runs."""
        from regard.show.terminal.heads import print_heads
        from regard.show.terminal.heat_map import head_picture
        from regard.show.terminal.table import terminal_width
        from regard.support.drawing import as_text

        width = terminal_width()
        named = list(zip(("before", "after"), self.runs, strict=True))
        print(f"\n  {self.same}")
        for word, run in named:
            print(f"  {word:6}  {run.title} · {run.opened.tokens} token{'' if run.opened.tokens == 1 else 's'}")
        print()
        shown = self.changes if every else self.changes.changed()
        print_heads(as_text(shown, width, all=every, more="--all", few=_FEW))
        for word, run in named if picture and self.drawn else ():
            print(f"\n  {word}: {run.title}\n{head_picture(run.seen[self.head], width)}")
        again = f"{again} {self.against}"
        others = [(one.layer, one.head) for one in self.changes if (one.layer, one.head) != self.head]
        if others:
            print(f"\n  {'Another head' if picture else 'One head'}: {again} --head {others[0][0]}.{others[0][1]}")
        print(f"  {'As a page:   ' if picture else 'As a page:'} {again} -o page.html")

    def as_json(self) -> list[dict[str, Any]]:
        """What changed in each head, the largest change first: after − before."""
        return [
            {
                "head": f"{one.layer}.{one.head}",
                "roles": [one.before.name, one.after.name],
                "change": one.size,
                "differences": dict(one.differences),
            }
            for one in self.changes
        ]


class TwoHeads:
    """Two heads of one run."""

    def __init__(self, runs: Sequence[TitledRun], against: Against, head: tuple[int, int]) -> None:
        layer, number = map(int, against.value.split("."))
        self.against = against
        self.run = runs[0]
        self.heads = [head, (layer, number)]
        try:
            _ = self.run.seen[self.heads[1]]
        except ValueError as error:
            raise ValueError(f"{against}: {error}") from None
        if self.heads[0] == self.heads[1]:
            raise ValueError(f"{against} is the head that is shown; choose another with --head")
        self.head = head
        self.start = {"view": "compare", "layer": head[0], "head": head[1], "against": against.value}  # of a page

    def print(self, every: bool, again: str, picture: bool) -> None:
        """The statistics of both, and both drawn."""
        from regard.show.terminal.heat_map import head_picture
        from regard.show.terminal.table import terminal_width
        from regard.show.terminal.two_heads import statistics_table

        width = terminal_width()
        print(f"\n  {self.run.title}\n\n{statistics_table(self.run.seen, self.heads, width)}")
        for head in self.heads if picture else ():
            print(f"\n{head_picture(self.run.seen[head], width)}")
        print(f"\n  As a page: {again} --head {self.head[0]}.{self.head[1]} {self.against} -o page.html")


def _sizes(seen: Seen) -> str:
    heads = [layer[0][1] for layer in seen.sizes()]
    return f"{len(heads)} layer{'' if len(heads) == 1 else 's'} × {'/'.join(map(str, dict.fromkeys(heads)))} heads"
