"""`regard watch MODEL --text FILE`: what the heads of a model do with a text, as a table."""

from __future__ import annotations

import inspect
import os
import shlex
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit
from urllib.request import getproxies

import torch
from torch import Tensor, nn

from regard.heads.report import Seen
from regard.heads.views import Head
from regard.show.heads import print_heads
from regard.show.table import terminal_width

# Said twice, so that heads that copy have something to do. (Lewis Carroll)
TWICE = (
    "Alice was beginning to get very tired of sitting by her sister on the bank,\n"
    "and Alice was beginning to get very tired of sitting by her sister on the bank.\n"
)
_SHOWN = 20  # tokens whose strongest keys are listed for one head
_KEYS = 4
_TOKENIZERS = ("tokenizer*", "vocab*", "*.model", "*.tiktoken", "merges.txt")


class Opened(NamedTuple):
    """A model that is ready to read a text, and the text as it takes it."""

    model: nn.Module
    inputs: dict[str, Tensor]
    tokens: list[str]  # in words
    layers: int | None


Opener: TypeAlias = Callable[[str, str, int | None, str], Opened]


def run(
    model: str,
    text: str | None = None,
    *,
    opener: Opener | None = None,
    layer: int | str | None = None,
    head: int | str | None = None,
    save: str | Path | None = None,
    max_tokens: int | None = None,
    device: str = "cpu",
    all: bool = False,
) -> Seen:
    """Watch a model read a text; print its heads.

    text: a sentence, a file, or - for standard input; without one, a sentence that says the same thing twice.
    opener: what makes a model ready, of its name, the text, --max-tokens and the device. Unless given, the model is one of
        transformers, from a local directory or the hub: read from safetensors, and no code that comes with it is run.
    """
    layer, head = _chosen(layer, head)
    if max_tokens is not None and max_tokens < 1:
        raise ValueError(f"--max-tokens ({max_tokens}) must be at least 1")
    found = (opener or by_transformers)(model, _words(text), max_tokens, device)
    seen = _watched(found, keep=None if head is not None or save is not None else False)
    if layer is not None and head is not None:
        page = _head_page(seen[layer, head], found.tokens)
    else:
        page = seen.table(terminal_width(), all=all or layer is not None, layer=layer, more="--all")
    print(f"\n  {model}")
    print_heads(page)
    if save is not None:
        seen.save(save)
        print(f"\n  Saved: regard.load_seen({str(save)!r})")
    again = f"regard watch {shlex.quote(model)}" + ("" if text is None else f" --text {shlex.quote(text)}")
    first = seen.order(layer)[0]
    one = f"\n  One head: {again} --layer {first[0]} --head {first[1]}"
    print(one if head is None else f"\n  All heads: {again}")
    return seen


def _chosen(layer: int | str | None, head: int | str | None) -> tuple[int | str | None, int | None]:
    """A layer by number or name, and a head of it; 4.3, as the table has it, is both.

    >>> _chosen(None, "4.3"), _chosen("4", "3"), _chosen("h.4.attn", None)
    ((4, 3), (4, 3), ('h.4.attn', None))
    """
    if isinstance(layer, str) and layer.lstrip("-").isdigit():
        layer = int(layer)
    if isinstance(head, str):
        first, dot, last = head.rpartition(".")
        if not (last.isdigit() and (first.isdigit() or not dot)):
            raise ValueError(f"--head {head} must be a number, such as 3; or 4.3, head 3 of layer 4")
        if dot and layer not in (None, int(first)):
            raise ValueError(f"--head {head} is of layer {first}, but --layer is {layer}; leave one of them out")
        layer, head = int(first) if dot else layer, int(last)
    if head is not None and layer is None:
        raise ValueError(f"--head {head} needs a layer to be in; add --layer 0")
    return layer, head


def _words(text: str | None) -> str:
    if text is None:
        return TWICE
    if text == "-":
        words = sys.stdin.read()
    elif not os.path.isfile(text):
        if len(text.split()) < 2:
            raise ValueError(f"--text {text} is not a file; give a sentence in quotes, a file, or - for standard input")
        words = text
    else:
        try:
            words = Path(text).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"--text {text} is not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    if not words.strip():
        raise ValueError(f"--text {text} is empty; give it at least a word")
    return words


def by_transformers(name: str, words: str, max_tokens: int | None, device: str) -> Opened:
    """A model and its tokenizer, as transformers finds and loads them."""
    with _quiet_transformers() as transformers:
        config, loaded, tokenizer = _load(transformers, name, device)
        inputs, tokens = _tokens(tokenizer, words, config, max_tokens)
    return Opened(loaded, inputs, tokens, _layers(config))


def check_size(size: int, most: int | None) -> None:
    """A text has at least one token, and no more than a model can read."""
    if not size:
        raise ValueError("the tokenizer makes no token of this text; give it another")
    if most is not None and 0 < most < size:
        raise ValueError(f"the text has {size} tokens and the model reads at most {most}; add --max-tokens {most}")


@contextmanager
def _quiet_transformers() -> Iterator[Any]:
    """The transformers package, its own bars and notes silenced: ours is the only one."""
    try:
        import transformers
        from transformers.utils import logging
    except ImportError:
        raise ValueError(
            "regard watch loads models with transformers, which is missing; pip install transformers"
        ) from None
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield transformers
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _load(transformers: Any, name: str, device: str) -> tuple[Any, torch.nn.Module, Any]:
    """Config, model and tokenizer; every failure is one line with a remedy."""
    path = Path(name)
    if path.exists() and not (path / "config.json").is_file():
        raise ValueError(f"{name} has no config.json; give a directory that model.save_pretrained() wrote")
    if not path.exists() and (path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1):
        raise ValueError(f"there is no directory {name}; give one that model.save_pretrained() wrote, or a hub name")
    if not path.exists():
        _check_hub(name)
    if path.exists() and not any(file for form in _TOKENIZERS for file in path.glob(form)):
        # transformers would make an empty one, which reads nothing.
        raise ValueError(f"{name} has no tokenizer; tokenizer.save_pretrained({name!r}) adds one")
    safe = {"trust_remote_code": False}
    try:
        target = torch.device(device)
        config = transformers.AutoConfig.from_pretrained(name, **safe)
        # Attention is all that is looked at, but a language model as a whole has the names that people know.
        speaks = any(kind.endswith(("ForCausalLM", "LMHeadModel")) for kind in config.architectures or ())
        maker = transformers.AutoModelForCausalLM if speaks else transformers.AutoModel
        model = maker.from_pretrained(name, config=config, use_safetensors=True, **safe).eval().to(target)
    except (OSError, ValueError, RuntimeError, AssertionError) as error:
        here = "" if path.exists() else f"; {name} is no directory here, so it was looked for on the hub"
        raise ValueError(f"{name} could not be loaded: {_first_line(error)}{here}") from None
    reads = getattr(model, "main_input_name", "input_ids")
    if reads != "input_ids":
        raise ValueError(
            f"{name} reads {reads}, not text; watch it in Python: with regard.watch(model) as seen: model({reads}=…)"
        )
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, **safe)
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(
            f"{name} has no tokenizer that can be read: {_first_line(error)}; tokenizer.save_pretrained({name!r}) adds one"
        ) from None
    return config, model, tokenizer


def _check_hub(name: str) -> None:
    """Refuse at once what is neither here nor to be had: transformers would ask a hub it cannot reach for half a minute."""
    from huggingface_hub import constants, try_to_load_from_cache

    try:
        known = isinstance(try_to_load_from_cache(name, "config.json"), str)
    except ValueError:
        raise ValueError(f"there is no directory {name}, and no model on the hub can be called so") from None
    if known or constants.HF_HUB_OFFLINE or getproxies().keys() - {"no"}:
        return
    host = urlsplit(constants.ENDPOINT).hostname
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        raise ValueError(
            f"there is no directory {name}, and the hub ({host}) cannot be reached; "
            "give a directory that model.save_pretrained() wrote"
        ) from None


def _tokens(tokenizer: Any, words: str, config: Any, max_tokens: int | None) -> tuple[dict[str, Tensor], list[str]]:
    cut = {} if max_tokens is None else {"truncation": True, "max_length": max_tokens}
    found = tokenizer(words, return_tensors="pt", verbose=False, **cut)
    inputs = {name: found[name] for name in ("input_ids", "attention_mask") if name in found}
    ids = inputs["input_ids"][0].tolist()
    most = getattr(config, "max_position_embeddings", None)
    check_size(len(ids), most if isinstance(most, int) else None)
    if getattr(config, "is_encoder_decoder", False):
        inputs["decoder_input_ids"] = inputs["input_ids"]  # the text on both sides
    return inputs, [tokenizer.decode([one]) for one in ids]


@torch.no_grad()
def _watched(found: Opened, keep: bool | None) -> Seen:
    from regard.heads.watch import watch

    model, inputs = found.model, found.inputs
    device = next(model.parameters()).device
    takes = inspect.signature(model.forward).parameters
    # Neither logits for every token nor a cache is needed, and both may be larger than all that is seen.
    spared: dict[str, Any] = {"use_cache": False, "logits_to_keep": 1}
    options = {name: value for name, value in spared.items() if name in takes}
    with _progress(found.layers) as advance, watch(model, keep=keep) as seen:
        seen.on_call = lambda forward, layer: advance()
        try:
            model(**{name: value.to(device) for name, value in inputs.items()}, **options)
        except IndexError as error:
            size = next(iter(inputs.values())).shape[1]
            raise ValueError(
                f"the model cannot read {size} tokens ({error}); fewer: --max-tokens {size // 2}"
            ) from None
    seen.on_call = None
    return seen


def _layers(config: Any) -> int | None:
    count = getattr(config, "num_hidden_layers", None)
    return count if isinstance(count, int) and not getattr(config, "is_encoder_decoder", False) else None


@contextmanager
def _progress(total: int | None) -> Iterator[Any]:
    """A bar on stderr that moves by one attention and leaves nothing behind; none where nobody looks."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("  watching"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("", total=total)
        yield lambda: bar.advance(task)


def _head_page(head: Head, tokens: list[str]) -> str:
    """One head: its role, its means, and where its tokens look."""
    means = "  ".join(f"{name}\xa0{value:.2f}" for name, value in head.summary.items() if value == value)
    lines = [f"  {head.name} · {len(tokens)} token{'s' * (len(tokens) != 1)}", "", *_wrapped(str(head.role))]
    lines += [*_wrapped(means), ""]
    keys, weights = (one[0].tolist() for one in head.top(min(_KEYS, len(tokens))))
    first = max(0, len(keys) - _SHOWN)
    names = [_named(token) for token in tokens]
    # Queries and keys of cross-attention are not the same tokens; then places stand for them.
    rows = names if len(names) == len(keys) else [str(i) for i in range(len(keys))]
    wide = max(len(name) for name in rows[first:])
    for row, where, how_much in list(zip(rows, keys, weights, strict=True))[first:]:
        looks = " · ".join(
            f"{names[key] if key < len(names) else key} {weight:.2f}"
            for key, weight in zip(where, how_much, strict=True)
            if key >= 0 and weight >= 0.005
        )
        lines.append(f"  {row.ljust(wide)}  {looks}"[: terminal_width()].rstrip())
    if first:
        lines.append(f"  (the last {_SHOWN} of {len(keys)} tokens)")
    return "\n".join(lines)


def _wrapped(text: str) -> list[str]:
    import textwrap

    lines = textwrap.wrap(text, terminal_width(), initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
    return [line.replace("\xa0", " ") for line in lines]  # what belongs together stayed on one line


def _named(token: str) -> str:
    """A token on one line: spaces around it do not show, a line break does."""
    plain = token.strip() or token.replace("\n", "⏎").replace("\t", "⇥").replace(" ", "␣")
    return "".join(c if c.isprintable() else "�" for c in plain)[:12]


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
