"""`regard atlas MODEL --data FILES`: what every head of a model does over a corpus, kept in a file."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from regard.commands.shared import options
from regard.commands.shared.atlas_card import as_plain, card
from regard.commands.shared.atlas_changes import show_changes
from regard.commands.shared.atlas_runs import is_run, show_run
from regard.commands.shared.files import PAGES, check_output
from regard.commands.shared.options import HUB, TINY, argument, option, read_heads, refuse
from regard.commands.terminal.progress import progress_bar, said_after_a_second
from regard.show.terminal.table import terminal_width
from regard.support.argument_names import named_as_flags
from regard.support.drawing import as_text

if TYPE_CHECKING:
    from torch import nn

    from regard.commands.shared.corpus import RowForm
    from regard.heads.atlas.collect import AtlasBuilder, HeadScores
    from regard.heads.atlas.result import Atlas

SAVE_EVERY = 30.0  # seconds between two states of an unfinished atlas
_SAVED, _KINDS = ".safetensors", (".safetensors", *PAGES)
_FEW = 12  # heads in the table
_LENGTH = 512  # tokens of a row, unless the model reads fewer
_TOKENS_AT_ONCE = {"cpu": 4096, "cuda": 32_768}  # of a batch
_UNITS = {"k": 1000, "m": 1_000_000, "g": 1_000_000_000}


def atlas(
    model: Annotated[
        str,
        argument(
            f"{HUB}, tiny in the package; or what to show: an atlas, FILE.safetensors, or a run.", metavar="MODEL"
        ),
    ] = TINY,
    other: Annotated[
        str | None, argument("Another atlas, to compare the first with. [default: none]", metavar="ATLAS")
    ] = None,
    data: Annotated[
        list[str] | None,
        option("Text, .jsonl or token files, or a directory of them; may be repeated. [default: none]"),
    ] = None,
    output: Annotated[
        str | None,
        option(
            "Write the atlas to FILE.safetensors, or its page to FILE.html. [default: atlas.safetensors, if measured]",
            "--output",
            "-o",
        ),
    ] = None,
    tokens: Annotated[str | None, option("Read at most so many tokens: 5000, 200k, 1M. [default: all]")] = None,
    length: Annotated[
        int | None, option(f"Tokens of one text. [default: {_LENGTH}, or as many as the model reads]")
    ] = None,
    batch: Annotated[int | None, option("Texts at once. [default: by the length]")] = None,
    probe: Annotated[
        bool, option("Measure each head on repeated random tokens, too. [default: off]", "--probe")
    ] = False,
    effect: Annotated[
        int | None,
        option("Measure what the absence of each head costs in so many texts of the corpus. [default: off]"),
    ] = None,
    head: Annotated[str | None, option("Show this head with its examples: 4.3. [default: all heads]")] = None,
    every: options.All = False,
    as_json: options.Json = False,
    fresh: Annotated[bool, option("Begin anew where another run was interrupted. [default: off]", "--fresh")] = False,
    device: options.Device = "cpu",
) -> Any:
    """Measure what every head of a model does over a corpus.

    Interrupt it at any time: the same command resumes. `regard atlas atlas.safetensors` shows a finished one, and
    `regard atlas A.safetensors B.safetensors` what two say differently.
    """
    chosen = read_heads("--head", head) or []
    if as_json and (chosen or every):
        raise ValueError("--json prints all numbers of all heads, so --head and --all have no effect; leave them out")
    check_output(output, _KINDS, "an atlas is a safetensors file, and its page an HTML file", is_drawn=False)
    saved = _saved_file(model, bool(data))
    given = {"--data": data, "--tokens": tokens, "--length": length, "--batch": batch, "--probe": probe}
    given |= {"--effect": effect, "--fresh": fresh}
    if other is not None:
        refuse(given | {"-o": output, "--head": head}, "two atlases are compared", "leave them out")
        return show_changes(_measured(model), _measured(other), every, as_json)
    if saved is None and not data and is_run(model):
        refuse(given | {"--head": head, "--json": as_json}, f"{model} is a run", "leave them out")
        return show_run(model, every, output)
    if saved is not None:
        what = "this is the atlas in the package" if model == TINY else f"{model} is an atlas that was measured"
        refuse(given, what, "leave them out, or name a corpus: --data FILE")
        result, path = _load(saved), model
        _write_page(result, output, saved)
    else:
        if not data:
            raise ValueError(f"there is nothing to read; name a corpus: regard atlas {shlex.quote(model)} --data FILE")
        path = output = output or "atlas.safetensors"
        wanted = Wanted(data, read_count(tokens), length, batch, probe, effect, fresh)
        result = _measure(model, wanted, Path(path), device)
    _show(result, path, Shown(chosen, every, as_json), output)
    return result


def _saved_file(model: str, has_data: bool) -> Path | None:
    """The file of an atlas that is to be shown: that in the package where nothing else is named; else None."""
    if model == TINY and not has_data:
        from regard.heads.atlas.atlas_files import PACKAGED

        return PACKAGED
    return Path(model) if model.endswith(_SAVED) else None


def _measured(name: str) -> Path:
    """The file of an atlas that is compared."""
    path = _saved_file(name, False)
    if path is None:
        command = shlex.join(["regard", "atlas", name, "--data", "FILE", "-o", f"{Path(name).name}.safetensors"])
        raise ValueError(f"{name} is no atlas, which is a .safetensors file; measure it first: {command}")
    return path


def _load(path: Path) -> Atlas:
    from regard.heads.atlas.result import load_atlas

    return load_atlas(path)


def _write_page(result: Atlas, output: str | None, saved: Path) -> None:
    """The page of an atlas that is in a file."""
    if output is None:
        return
    if output.endswith(_SAVED):
        raise ValueError(f"-o {output}: the atlas is in {saved} already; to write its page: -o atlas.html")
    result.to_html(output)


class Wanted(NamedTuple):
    """What was asked for."""

    data: list[str]
    tokens: int | None
    length: int | None
    batch: int | None
    probe: bool
    effect: int | None
    fresh: bool


def read_count(text: str | None) -> int | None:
    """A number of tokens.

    >>> read_count("5000"), read_count("200k"), read_count("1.5M")
    (5000, 200000, 1500000)
    """
    if text is None:
        return None
    with suppress(ValueError, OverflowError):
        unit = _UNITS.get(text[-1:].lower(), 1)
        count = round(float(text[:-1] if unit > 1 else text) * unit)
        if count > 1:
            return count
    raise ValueError(f"--tokens {text} must be a number above 1, such as 5000, 200k or 1M")


def _measure(name: str, wanted: Wanted, output: Path, device: str) -> Atlas:
    """Read the corpus, from where an interrupted run of the same command stopped; and write the atlas."""
    from regard.commands.shared.corpus import find_files, fingerprints

    files = find_files(wanted.data)
    with said_after_a_second("loading the model"), named_as_flags("device"):
        opened = _open(name, wanted.length, device)
    batch = wanted.batch or max(1, _TOKENS_AT_ONCE.get(opened.device, _TOKENS_AT_ONCE["cpu"]) // opened.form.length)
    if batch < 1:
        raise ValueError(f"--batch {batch} must be at least 1")
    settings = {
        "model": name,
        "files": fingerprints(files),
        "tokens": wanted.tokens,
        "length": opened.form.length,
        "batch": batch,
    }
    run = _Run(output, settings, opened, wanted.fresh)
    beside = _scores(opened, wanted, files)  # first, because a model may be none that has them
    run.read(files, batch, wanted.tokens)
    result = run.finish(*beside)
    if not result.tokens:
        raise ValueError(f"{', '.join(wanted.data)} have no text of two tokens; give more text")
    return result


def _scores(opened: _Opened, wanted: Wanted, files: list[Path]) -> tuple[HeadScores | None, HeadScores | None]:
    """The scores of the probe, and the effects in the first texts of the corpus, where they are wanted."""
    import torch

    from regard.commands.shared.corpus import rows_of
    from regard.heads.atlas.collect import head_costs, probe_scores

    probed = probe_scores(opened.model, opened.tokenizer) if wanted.probe else None
    if wanted.effect is None:
        return probed, None
    if wanted.effect < 1:
        raise ValueError(f"--effect {wanted.effect} must be at least 1")
    texts = [torch.tensor(row) for row in islice(rows_of(files, opened.form), wanted.effect)]
    return probed, head_costs(opened.model, texts, opened.tokenizer) if texts else None


class _Opened(NamedTuple):
    """A model, and how texts become rows that it reads."""

    model: nn.Module
    tokenizer: Any
    reads: str  # the argument that takes the ids
    form: RowForm
    device: str


def _open(name: str, length: int | None, device: str) -> _Opened:
    from regard.commands.shared.corpus import RowForm
    from regard.commands.shared.models import load_reader

    model, inputs, tokenizer, _ = load_reader(name, device)("a", None)
    if "decoder_input_ids" in inputs:
        raise ValueError(
            f"{name} has an encoder and a decoder, which read two texts; in Python: regard.atlas(model, …)"
        )
    config = model.config
    longest = getattr(config, "context_length", None) or getattr(config, "max_position_embeddings", None)
    longest = longest if isinstance(longest, int) and longest > 0 else None
    chosen = min(_LENGTH, longest or _LENGTH) if length is None else length
    if chosen < 8 or (longest is not None and chosen > longest):
        raise ValueError(f"--length {chosen} must be 8 to {longest or 'the longest text that the model reads'}")
    known = getattr(config, "vocab_size", None)
    size = known if isinstance(known, int) else None
    kind = next(model.parameters()).device.type
    if hasattr(tokenizer, "encode_batch"):  # regard's
        between = [] if tokenizer.end is None else [tokenizer.end]
        return _Opened(model, tokenizer, "ids", RowForm(tokenizer.encode_batch, chosen, size, between), kind)

    def encode(texts: Any) -> list[list[int]]:
        return [list(one) for one in tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]]

    before, after = _around(tokenizer)
    return _Opened(model, tokenizer, "input_ids", RowForm(encode, chosen, size, (), before, after), kind)


def _around(tokenizer: Any) -> tuple[list[int], list[int]]:
    """The special tokens that a tokenizer of transformers puts before and after a text."""
    bare, full = (list(tokenizer("a", add_special_tokens=some)["input_ids"]) for some in (False, True))
    at = next((i for i in range(len(full)) if full[i : i + len(bare)] == bare), None)
    return ([], []) if at is None else (full[:at], full[at + len(bare) :])


class _Run:
    """A corpus that is read, with its state in a file beside the atlas: a killed run loses half a minute."""

    def __init__(self, output: Path, settings: Mapping[str, Any], opened: _Opened, fresh: bool) -> None:
        from regard.heads.atlas.collect import AtlasBuilder

        self.output, self.settings, self.opened = output, dict(settings), opened
        self.state = output.with_name(f"{output.name}.unfinished")
        start = None if fresh else self._resumed()
        self.done = int(start.extra["done"]) if start is not None else 0  # batches
        self.builder: AtlasBuilder = AtlasBuilder(opened.model, opened.tokenizer, start)
        if start is not None:
            print(f"  resuming after {start.tokens:,} tokens", file=sys.stderr)

    def _resumed(self) -> Atlas | None:
        """The state of an interrupted run; an error where that was of another command."""
        if not self.state.exists():
            return None
        from regard.heads.atlas.collect import weights_fingerprint
        from regard.heads.atlas.result import load_atlas

        remedy = "give the command of that run, another -o, or --fresh to begin anew"
        found = load_atlas(self.state)
        before, done = found.extra.get("run"), found.extra.get("done")
        if not isinstance(before, dict) or not isinstance(done, int) or done < 0:
            raise ValueError(f"{self.state} is no state of an interrupted run; {remedy}")
        now = json.loads(json.dumps(self.settings))
        different = [name for name in now if before.get(name) != now[name]]
        different += ["weights"] * (found.weights != weights_fingerprint(self.opened.model))
        if different:
            raise ValueError(f"{self.state} is of an interrupted run with other {', '.join(different)}; {remedy}")
        return found

    def read(self, files: list[Path], batch: int, tokens: int | None) -> None:
        """Read all batches that were not read before; whatever stops this, the state is kept."""
        from regard.commands.shared.corpus import batches_of, rows_of

        batches = batches_of(rows_of(files, self.opened.form), batch, tokens)
        skipped = sum(1 for _ in islice(batches, self.done))
        if skipped < self.done:
            raise ValueError(f"{self.state} has read more than the corpus holds; add --fresh to begin anew")
        try:
            self._read(batches, tokens)
        except KeyboardInterrupt:
            self._save()
            print(f"\n  Stopped after {self.builder.tokens:,} tokens. The same command resumes.", file=sys.stderr)
            raise
        except ValueError as error:
            if not self.builder.tokens:
                raise
            self._save()
            kept = f"{self.builder.tokens:,} tokens were measured before that and are kept in {self.state}"
            raise ValueError(f"{error}. {kept}") from None

    def _read(self, batches: Iterator[list[list[int]]], tokens: int | None) -> None:
        import torch

        builder, saved = self.builder, time.monotonic()
        with progress_bar("reading") as advance:
            for rows in batches:
                builder.add({self.opened.reads: torch.tensor(rows)})
                self.done += 1
                advance(builder.tokens, tokens)
                if time.monotonic() - saved >= SAVE_EVERY:
                    self._save()
                    saved = time.monotonic()
                    if not sys.stderr.isatty():
                        print(f"  {builder.tokens:,} tokens", file=sys.stderr, flush=True)

    def _save(self) -> None:
        if self.done:
            self.builder.atlas(run=self.settings, done=self.done).save(self.state)

    def finish(self, probed: HeadScores | None, costs: HeadScores | None) -> Atlas:
        """Write the atlas; the state is removed once that is on the disk."""
        from dataclasses import replace

        from regard.commands.shared.texts import model_titles
        from regard.heads.atlas.collect import with_scores

        self._save()  # before a disk that may be full
        title = model_titles([str(self.settings["model"])])[0]
        result = replace(with_scores(self.builder.atlas(), probed, costs), model=title)
        if result.tokens:
            (result.save if self.output.suffix == _SAVED else result.to_html)(self.output)
            self.state.unlink(missing_ok=True)
        return result


class Shown(NamedTuple):
    """What of an atlas is printed."""

    heads: list[tuple[int, int]]
    every: bool
    as_json: bool


def _show(result: Atlas, path: str, shown: Shown, written: str | None) -> None:
    """Print an atlas. path: what names it in a command. written: the file that this command wrote."""
    from regard.show.terminal.heads import print_heads

    if shown.as_json:
        print(json.dumps(as_plain(result), ensure_ascii=False))
    elif shown.heads:
        print("\n\n".join(card(result, *one) for one in shown.heads))
    else:
        print()
        print_heads(as_text(result, terminal_width(), all=shown.every, few=_FEW, more="--all"))
        first = result.heads()[0]
        command = shlex.join(["regard", "atlas", *([path] if path != TINY else []), "--head"])
        if not path.endswith(PAGES):
            print(f"\n  One head, with examples: {command} {first.layer}.{first.head}")
        if written is None:
            print("  All heads as a page, with distributions and examples: -o atlas.html")
    if written is not None:
        said = f"\n  Wrote {written}" if written.endswith(PAGES) else f"\n  Saved: regard.load_atlas({written!r})"
        print(said, file=sys.stderr if shown.as_json else sys.stdout)
