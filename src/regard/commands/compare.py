"""`regard compare TEXT OTHER`: two texts, two models, two heads, or a model with a cut; and what changed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from regard.commands.shared import options
from regard.commands.shared.files import PAGES, announce, check_output, read_contents, write_runs
from regard.commands.shared.options import (
    HUB,
    TINY,
    argument,
    check_max_tokens,
    check_model,
    command_line,
    option,
    read_heads,
    read_to,
    refuse,
)
from regard.commands.shared.runs import LONGEST_KEPT, TitledRun, measure_effects, open_texts, watch_text
from regard.commands.shared.texts import model_titles, read_text, text_titles
from regard.show.terminal.table import terminal_width
from regard.support.drawing import as_text

if TYPE_CHECKING:
    from regard.heads.report.report import Seen

Typed = Mapping[str, object]  # options by their flags
_FEW = 8  # heads in the table above the pictures


def compare(
    text: options.Text = None,
    other: Annotated[
        str | None, argument("A second text to compare with the first. [default: the same text]", metavar="OTHER")
    ] = None,
    model: Annotated[
        list[str] | None, option(f"{HUB}. Give two to compare them. [default: tiny, in the package]")
    ] = None,
    head: Annotated[
        list[str] | None, option("Draw this head: 4.3. Give two to compare them. [default: the head that changes most]")
    ] = None,
    cut: Annotated[
        str | None, option("Compare with a run in which these heads are cut: 0.2,4.3. [default: off]")
    ] = None,
    to: options.To = "0",
    every: options.All = False,
    as_json: options.Json = False,
    output: Annotated[str | None, option("Write a page (.html) instead. [default: off]", "--output", "-o")] = None,
    opens: options.Open = False,
    steps: options.Steps = None,
    exact: options.Exact = None,
    effect: options.Effect = False,
    max_tokens: options.MaxTokens = None,
    device: options.Device = "cpu",
) -> None:
    """Compare two texts, models or heads, or a model with heads cut.

    Give what differs twice: two texts, --model twice or --head twice; or cut heads with --cut.
    """
    models = list(map(check_model, model or [TINY]))
    heads = read_heads("--head", ",".join(head)) or [] if head else []
    cuts = read_heads("--cut", cut) or []
    kind = _check_kinds(text, other, models, heads, cut, to)
    check_max_tokens(max_tokens)
    in_page = {"--open": opens, "--steps": steps, "--exact": exact, "--effect": effect}
    _check_options(kind, output, in_page, {"--all": every, "--json": as_json})
    contents = read_contents(steps, exact)
    names = [text] if other is None else [text, other]
    texts = [read_text(one) for one in names]
    opened = open_texts(models, texts, max_tokens, device, steps and f"--steps {steps}")
    pictures = bool(heads) or output is not None or max(one.tokens for one in opened) <= LONGEST_KEPT
    titles = model_titles(models) if other is None else text_titles(names, texts)
    keep = None if pictures else False
    runs = [
        TitledRun(title, name, one, watch_text(one, keep))
        for title, name, one in zip(titles, [*models] * len(names), opened, strict=True)
    ]
    shared = models[0] if other is not None else text_titles(names, texts)[0]
    if cuts:
        shared = f"{models[0]} · {shared}"
        runs = [runs[0]._replace(title="uncut"), _cut_run(runs[0], cuts, to, keep)]
    contents.check(runs[0].seen)
    pair = _TwoHeads(runs[0], heads) if kind == "two heads" else _TwoRuns(shared, runs, *heads[:1])
    if output is not None:
        write_runs(output, runs, contents, pair.start, measure_effects(opened[:1]) if effect else None)
        announce(output, opens)
    elif as_json and isinstance(pair, _TwoRuns):
        print(json.dumps(pair.as_json(), ensure_ascii=False))
    else:
        pair.print(_again(text, other, model, cut, to, max_tokens), every, pictures)


def _check_options(kind: str, output: str | None, in_page: Typed, in_terminal: Typed) -> None:
    """Refuse options of a page where none is written, and those of the terminal where nothing is printed."""
    if output is None:
        refuse(in_page, "that is about a page", "add -o page.html")
    else:
        check_output(output, PAGES, "a comparison is a page, FILE.html")
        refuse(in_terminal, "with -o, a page is written instead", "leave one of them out")
    if kind == "two heads":
        refuse(in_terminal, "two heads are compared, not all of them", "leave it out")


def _again(
    text: str | None, other: str | None, model: Sequence[str] | None, cut: str | None, to: str, max_tokens: int | None
) -> str:
    """The command that makes the same comparison, without a head."""
    models = "".join(f" --model {shlex.quote(one)}" for one in model or ())
    cuts = "" if cut is None else f" --cut {shlex.quote(cut)}{'' if to == '0' else f' --to {to}'}"
    return command_line("compare", text, other, max_tokens=max_tokens) + models + cuts


def _check_kinds(
    text: str | None,
    other: str | None,
    models: Sequence[str],
    heads: Sequence[tuple[int, int]],
    cut: str | None,
    to: str,
) -> str:
    """The one thing that differs: two texts, two models, two heads or a cut."""
    read_to(to)
    if cut is None and to != "0":
        raise ValueError(f"--to {to} is what heads that are cut hand over; add --cut 0.2")
    if len(models) > 2 or len(heads) > 2:
        raise ValueError(f"two are compared, and {'--model' if len(models) > 2 else '--head'} was given more often")
    if len(heads) == 2 and heads[0] == heads[1]:
        raise ValueError(f"--head {heads[0][0]}.{heads[0][1]} was given twice; give another head")
    typed = {
        "two texts": other is not None,
        "two models": len(models) == 2,
        "two heads": len(heads) == 2,
        f"--cut {cut}": cut is not None,
    }
    kinds = [kind for kind, is_typed in typed.items() if is_typed]
    if not kinds:
        raise ValueError("there is nothing to compare; give two texts, --model twice, --head twice, or --cut 0.2")
    if len(kinds) > 1:
        raise ValueError(f"{kinds[0]} and {kinds[1]} are two comparisons; leave one of them out")
    if text == other == "-":
        raise ValueError("only one of the two texts can be standard input, -; give the other as a file")
    return kinds[0]


def _cut_run(uncut: TitledRun, heads: Sequence[tuple[int, int]], to: str, keep: bool | None) -> TitledRun:
    """The same model and text with heads cut, all of which exist."""
    from regard.heads.change.cut import cut

    names = uncut.name_heads("--cut", heads)
    mean = "" if to == "0" else f" (cut to {'its' if len(heads) == 1 else 'their'} mean)"
    with cut(uncut.opened.model, list(heads), to=read_to(to)):
        seen = watch_text(uncut.opened, keep)
    return uncut._replace(title=f"without {', '.join(names)}{mean}", seen=seen, is_cut=True)


class _TwoRuns:
    """Two runs of the same heads: other texts, other weights, or heads cut. shared: what both have."""

    def __init__(self, shared: str, runs: Sequence[TitledRun], head: tuple[int, int] | None = None) -> None:
        before, after = (run.seen for run in runs)
        if before.portraits().keys() != after.portraits().keys():
            raise ValueError(
                f"--model {runs[1].model} has {_sizes(after)} and {runs[0].title} has {_sizes(before)}; "
                "only models with the same layers and heads can be compared, such as two checkpoints of one training"
            )
        self.shared, self.runs, self.changes = shared, runs, before.compare(after)
        most = self.changes[0]
        self.head = head or (most.layer, most.head)
        _ = before[self.head]  # refuses a head that does not exist
        self.is_drawn = head is not None or most.size > 0  # heads that are the same are not worth a picture
        self.start: dict[str, int | str] = {"view": "compare", "layer": self.head[0], "head": self.head[1]}  # of a page

    def print(self, again: str, every: bool, pictures: bool) -> None:
        """The heads that changed most, and one head in both runs."""
        from regard.show.terminal.heads import print_heads
        from regard.show.terminal.heat_map import head_picture

        width = terminal_width()
        named = list(zip(("before", "after"), self.runs, strict=True))
        print(f"\n  {self.shared}")
        for word, run in named:
            print(f"  {word:6}  {run.title} · {run.opened.tokens} token{'' if run.opened.tokens == 1 else 's'}")
        print()
        shown = self.changes if every else self.changes.changed()
        print_heads(as_text(shown, width, all=every, more="--all", few=_FEW))
        for word, run in named if pictures and self.is_drawn else ():
            print(f"\n  {word}: {run.title}\n{head_picture(run.seen[self.head], width)}")
        others = [(one.layer, one.head) for one in self.changes if (one.layer, one.head) != self.head]
        if others:
            print(f"\n  {'Another head' if pictures else 'One head'}: {again} --head {others[0][0]}.{others[0][1]}")
        print(f"  {'As a page:   ' if pictures else 'As a page:'} {again} -o page.html")

    def as_json(self) -> dict[str, object]:
        """Both reports, and what changed in each head, the largest change first: after − before."""
        changes: list[dict[str, object]] = []
        for one in self.changes:
            name, roles = f"{one.layer}.{one.head}", [one.before.name, one.after.name]
            changes.append({"head": name, "roles": roles, "change": one.size, "differences": dict(one.differences)})
        return {"before": self.runs[0].as_json(), "after": self.runs[1].as_json(), "changes": changes}


class _TwoHeads:
    """Two heads of one run."""

    def __init__(self, run: TitledRun, heads: Sequence[tuple[int, int]]) -> None:
        self.run, self.heads, self.names = run, heads, run.name_heads("--head", heads)
        layer, head = heads[0]
        self.start: dict[str, int | str] = {"view": "compare", "layer": layer, "head": head, "against": self.names[1]}

    def print(self, again: str, every: bool, pictures: bool) -> None:
        """The statistics of both, and both drawn."""
        from regard.show.terminal.heads import statistics_table
        from regard.show.terminal.heat_map import head_picture

        width = terminal_width()
        print(f"\n  {self.run.title}\n\n{statistics_table(self.run.seen, self.heads, width)}")
        for head in self.heads:
            print(f"\n{head_picture(self.run.seen[head], width)}")
        print(f"\n  As a page: {again}{''.join(f' --head {name}' for name in self.names)} -o page.html")


def _sizes(seen: Seen) -> str:
    heads = [layer[0][1] for layer in seen.sizes()]
    return f"{len(heads)} layer{'' if len(heads) == 1 else 's'} × {'/'.join(map(str, dict.fromkeys(heads)))} heads"
