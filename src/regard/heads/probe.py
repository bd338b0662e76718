"""Probe: the test that finds induction and previous-token heads in any causal language model.

The model reads random tokens, and then the same tokens again. Their order means nothing, so a head that finds what came
after a token the first time can only have looked it up: that is induction. (arXiv:2209.11895)
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from regard.heads.inputs.pieces import TextReader, reader_of
from regard.heads.report.listings import HeadList, HeadSummary, ShownAsTable
from regard.heads.report.report import Seen
from regard.heads.watch import watch
from regard.support.arguments import check_whole
from regard.support.super_init import check_initialised

SCORES = ("induction", "previous", "duplicate")  # statistics of heads/measure/registry.py
ROLES = ("induction", "previous token", "duplicate")
LENGTH, TEXTS = 50, 4


class ProbeReport(ShownAsTable):
    """What the heads of a model did with repeated random tokens; prints as a table, the highest score first.

    ids: (texts, tokens), what the model read. seen: the report of a watch, for everything else. what: what was run, in
    words. scores: (layers × heads, 3), the means of induction, previous and duplicate, in the order of `heads()`.
    """

    def __init__(self, seen: Seen, ids: Tensor, what: str) -> None:
        self.seen, self.ids, self.what = seen, ids, what
        self.scores = torch.tensor([_scores(one) for one in self.heads().summaries])

    def heads(
        self,
        role: str | Iterable[str] | None = None,
        layer: int | str | Sequence[int | str] | None = None,
        by: str | None = None,
        descending: bool | None = None,
    ) -> HeadList:
        """The heads with this role, in this layer, chosen as by `seen.heads`; prints as a table.

        by: a statistic, such as "entropy", or "score", that of the role. [default: the highest of the probe's scores]
        """
        chosen = self.seen.heads(role, layer, by, descending)
        if by is not None:
            return chosen
        order = sorted(range(len(chosen)), key=lambda i: -max(_scores(chosen.summaries[i])))
        return HeadList([chosen[i] for i in order], [chosen.summaries[i] for i in order], chosen.what)


def probe(
    model: nn.Module,
    *,
    tokenizer: Any = None,
    vocab_size: int | None = None,
    length: int | None = None,
    texts: int = TEXTS,
    seed: int = 0,
    among: Iterable[int] | None = None,
) -> ProbeReport:
    """Find the induction and previous-token heads of a causal language model: it reads random tokens twice.

    >>> import regard
    >>> report = regard.probe(regard.GPT.from_pretrained("tiny"))
    >>> [(head.layer, head.head) for head in report.heads(role="induction")][0]
    (4, 3)

    The induction score of a head is the mean weight from a token of the second copy to the token after its first
    occurrence; previous and duplicate are those to the token before, and to the first occurrence.

    tokenizer: its special tokens are not drawn, and its beginning-of-text token is put in front.
        [default: model.tokenizer, if there is one]
    vocab_size: ids below it are drawn. [default: the size of the Embedding that reads the ids]
    length: tokens in one copy, all different. [default: 50, or as many as the model can read twice]
    texts: how many such texts are read.
    seed: of the random tokens.
    among: ids that are drawn, such as those of a corpus: a model knows nothing of tokens that it never read.
        [default: all]

    The model runs in eval mode, without gradients, on its own device; its training mode is restored.
    Raises ValueError where the model is not causal, or cannot be called with token ids alone.
    """
    if not isinstance(model, nn.Module):
        raise ValueError(f"probe() takes a torch.nn.Module and this is a {type(model).__name__}; load the model first")
    check_initialised(model)
    given = {"texts": texts, "length": length, "vocab_size": vocab_size}
    check_whole(**{name: n for name, n in given.items() if n is not None})
    reader = reader_of(model, tokenizer)
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    with evaluating(model), torch.no_grad():
        size, source = _vocabulary(model, device, vocab_size)
        beginning = None if reader is None or reader.beginning is None or reader.beginning >= size else reader.beginning
        allowed = range(size) if among is None else {one for one in among if 0 <= one < size}
        drawn = sorted(set(allowed) - _special_ids(model, reader))
        length = _length(length, len(drawn), model, beginning is not None)
        ids = _repeated(drawn, length, texts, seed, beginning).to(device)
        with watch(model, tokenizer=tokenizer, tokens=ids, keep=False, collect=("default", *SCORES)) as seen:
            model(ids, **frugal_options(model))
    if (where := look_ahead(seen)) is not None:
        raise ValueError(
            f"{type(model).__name__} is not causal: {where}. The probe tells what a head looks up only in a model that "
            "sees none of the following tokens; watch it on a text of your own: with regard.watch(model) as seen: "
            "model(ids)"
        )
    front = "" if reader is None or beginning is None else f", after {reader.read([beginning], [False])[0]}"
    some = "" if among is None else f", of which {len(drawn)} are drawn"
    what = f"{texts} × 2 × {length} random tokens{front}; vocabulary: {size} ids, {source}{some}; seed {seed}"
    return ProbeReport(seen, ids, what)


def _scores(summary: HeadSummary) -> list[float]:
    return [summary.means[name] for name in SCORES]


def frugal_options(model: nn.Module) -> dict[str, Any]:
    """Options of a model's forward without which it would keep a cache, and logits of every token."""
    savings = {"use_cache": False, "logits_to_keep": 1}
    parameters = inspect.signature(model.forward).parameters
    return {name: value for name, value in savings.items() if name in parameters}


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode; afterwards every module is in the mode it was in."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _refusal(model: nn.Module, error: Exception, reads_ids: bool) -> ValueError:
    """Why a model that failed on three token ids cannot be probed."""
    name = type(model).__name__
    needs = "probe() needs a causal language model, which is called with token ids alone, model(ids)"
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        return ValueError(f"{needs}; {name} has an encoder and a decoder, which read two texts; watch it on your own")
    if reads_ids:
        return ValueError(f"{needs}; {name} was, and raised {type(error).__name__}: {str(error).strip()}")
    return ValueError(
        f"{needs}, and {name} does not read them; pass the model that it is part of, or watch it: "
        "with regard.watch(layer) as seen: layer(x)"
    )


def _vocabulary(model: nn.Module, device: torch.device, vocab_size: int | None) -> tuple[int, str]:
    """How many ids the model knows, and how that is known: which Embedding reads them is seen on three tokens."""
    ids = torch.tensor([[1, 0, 1]], device=device)
    sizes: dict[str, int] = {}

    def note(name: str, module: nn.Module, args: tuple[Any, ...]) -> None:
        if args and isinstance(args[0], Tensor) and args[0].shape == ids.shape and bool((args[0] == ids).all()):
            sizes[name] = cast(nn.Embedding, module).num_embeddings

    embeddings = [(name, one) for name, one in model.named_modules() if isinstance(one, nn.Embedding)]
    hooks = [one.register_forward_pre_hook(partial(note, name)) for name, one in embeddings]
    try:
        model(ids, **frugal_options(model))
    except Exception as error:
        raise _refusal(model, error, bool(sizes)) from error
    finally:
        for hook in hooks:
            hook.remove()
    if vocab_size is not None:
        return vocab_size, "as given"
    if len(set(sizes.values())) != 1:
        there = "none of its Embeddings reads them" if not sizes else f"several do: {', '.join(sizes)}"
        raise ValueError(f"how many token ids {type(model).__name__} knows is unknown, {there}; give vocab_size")
    name, size = next(iter(sizes.items()))
    return size, f"from {name or 'the model'}"


def _special_ids(model: nn.Module, reader: TextReader | None) -> set[int]:
    """Ids that no text consists of, by the tokenizer and by the config of transformers."""
    special = set() if reader is None else set(reader.special)
    config = getattr(model, "config", None)
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        ids = getattr(config, name, None)
        special |= {ids} if isinstance(ids, int) else set(ids) if isinstance(ids, (list, tuple)) else set()
    return special


def _length(length: int | None, drawn: int, model: nn.Module, with_beginning: bool) -> int:
    """The length of one copy. How many tokens the model reads at most is known where its config says so."""
    limits = [getattr(getattr(model, "config", None), n, 0) for n in ("context_length", "max_position_embeddings")]
    longest = next((n for n in limits if isinstance(n, int) and n > 0), None)
    most = min(drawn, drawn if longest is None else (longest - with_beginning) // 2)
    if length is not None and length > most:
        why = f"{drawn} different ids can be drawn" if most == drawn else f"the model reads at most {longest} tokens"
        raise ValueError(f"length ({length}) must be at most {most}: {why}")
    if most < 2:
        raise ValueError(f"a probe needs two copies of at least 2 different tokens, and here {max(most, 0)} fit")
    return min(LENGTH, most) if length is None else length


def _repeated(drawn: list[int], length: int, texts: int, seed: int, beginning: int | None) -> Tensor:
    """(texts, tokens): different random ids, twice."""
    generator = torch.Generator().manual_seed(seed)
    vocabulary = torch.tensor(drawn)
    once = torch.stack([vocabulary[torch.randperm(len(drawn), generator=generator)[:length]] for _ in range(texts)])
    front = [] if beginning is None else [torch.full((texts, 1), beginning)]
    return torch.cat([*front, once, once], dim=1)


def look_ahead(seen: Seen) -> str | None:
    """Where some query sees a later key, in words; None in a causal model."""
    for layer in (layer for forward in seen.forwards for layer in forward):
        if layer.record.across:
            continue
        visible, _ = layer.record.visible()
        sees_later = visible.cpu() > layer.record.positions() + 1  # NaN is not greater
        if sees_later.any():
            row = int(sees_later.any(0).any(0).nonzero()[0])
            return f"in {layer.name}, token {row} sees {int(visible[..., row].nan_to_num().max())} tokens"
    return None
