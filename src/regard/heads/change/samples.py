"""The texts of an effect: what the model is called with, what it is to predict, and the tokens that were chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import index
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.heads.inputs.pieces import TextReader
from regard.heads.report.texts import span_of
from regard.support.tokens import TextTokens

Text = str | Tensor | Sequence[int] | Mapping[str, Any]
_IDS = ("input_ids", "ids")  # what models call their token ids
_NO_TARGETS = torch.empty(0, dtype=torch.long)


class Sample(NamedTuple):
    """One text, as the model is called with it."""

    args: tuple[Tensor, ...]  # each (1, …)
    kwargs: Mapping[str, Any]
    ids: Tensor | None  # (T,), on the CPU
    real: Tensor | None = None  # (T,) bool, on the CPU; False is padding
    targets: Tensor = _NO_TARGETS  # (T,), the id that is to be predicted for each position; negative where none is
    ahead: int = 0  # 1: the logits of a position are about the next one; 0: about its own

    @property
    def length(self) -> int:
        """The number of positions."""
        return len(self.targets)


def read_samples(
    text: Text | Sequence[Text], encode: Callable[[str], list[int]], targets: Any, device: torch.device
) -> list[Sample]:
    """The texts, one by one, on the device. targets: one for each text, or None: the next token is the target."""
    samples = [one for some in _listed(text) for one in _samples(some, encode, device)]
    if not samples:
        raise ValueError("there is no text to measure an effect on; give at least one")
    if targets is None:
        return [_with_next_tokens(number, one) for number, one in enumerate(samples)]
    texts = len(samples)
    wanted = [targets] if texts == 1 and (isinstance(targets, int) or torch.as_tensor(targets).dim() == 1) else targets
    count = 1 if isinstance(wanted, int) else len(wanted)
    if count != texts or isinstance(wanted, int):
        raise ValueError(f"there are {texts} texts and targets for {count}; give one for each text")
    flat = [torch.as_tensor(one).reshape(-1).cpu() for one in wanted]
    if none := [number for number, one in enumerate(flat) if not bool((one >= 0).any())]:
        raise ValueError(f"the targets of text {none[0]} are all negative, so nothing counts; give token ids")
    return [one._replace(targets=own) for one, own in zip(samples, flat, strict=True)]


def read_tokens(samples: Sequence[Sample], reader: TextReader | None) -> list[TextTokens] | None:
    """The tokens of each text; None where a text has no ids, or not one for each position."""
    texts = []
    for sample in samples:
        if reader is None or sample.ids is None or len(sample.ids) != sample.length:
            return None
        padding = [False] * sample.length if sample.real is None else (~sample.real).tolist()
        texts.append(reader.read(sample.ids.tolist(), padding))
    return texts


def encoder_of(model: nn.Module, tokenizer: Any) -> Callable[[str], list[int]]:
    """Strings as token ids, by the tokenizer or the model's own."""
    tokenizer = getattr(model, "tokenizer", None) if tokenizer is None else tokenizer

    def encode(text: str) -> list[int]:
        if tokenizer is None:
            raise ValueError("the text is a string and no tokenizer is known; give tokenizer=…, or token ids")
        encoded = tokenizer.encode(text)
        return list(getattr(encoded, "ids", encoded))

    return encode


def choose_tokens(
    tokens: int | str | Sequence[int | str], samples: Sequence[Sample], texts: Sequence[TextTokens] | None
) -> list[list[int]]:
    """The positions of these words or positions in each text; each must be predicted there."""
    wanted = [tokens] if isinstance(tokens, (int, str)) else list(tokens)
    if not wanted:
        raise ValueError("tokens is empty; name at least one, or leave it out")
    chosen = []
    for number, sample in enumerate(samples):
        which = f"text {number}: " if len(samples) > 1 else ""
        places = {at for token in wanted for at in _places(token, number, sample.length, texts, which)}
        for at in sorted(places):
            if sample.targets[at] < 0:
                name = f"token {at}" if texts is None else repr(texts[number].labels[at])
                why = "nothing stands before it" if sample.ahead else "it has no target"
                raise ValueError(f"{which}{name} is not predicted, {why}; choose others")
        chosen.append(sorted(places))
    return chosen


def _places(
    token: int | str, number: int, length: int, texts: Sequence[TextTokens] | None, which: str
) -> Sequence[int]:
    if not isinstance(token, str):
        if not -length <= index(token) < length:
            raise ValueError(f"{which}there is no token {token}; the text has tokens 0 to {length - 1}")
        return [index(token) % length]
    if texts is None:
        raise ValueError(f"{token!r} cannot be looked up: no tokenizer is known; give tokenizer=…, or positions")
    return span_of(token, texts, number)


def _listed(text: Any) -> list[Any]:
    """One text, or the texts of a list."""
    if not isinstance(text, Sequence) or isinstance(text, str):
        return [text]
    is_ids = bool(text) and all(isinstance(one, int) or (isinstance(one, Tensor) and not one.dim()) for one in text)
    return [text] if is_ids else list(text)


def _samples(text: Any, encode: Callable[[str], list[int]], device: torch.device) -> list[Sample]:
    if isinstance(text, Mapping):
        return _rows_of(text, device)
    ids = torch.tensor(encode(text)) if isinstance(text, str) else torch.as_tensor(text)
    if ids.is_floating_point() or ids.dim() not in (1, 2):
        raise ValueError(
            f"a text is a string, token ids (T,), or what the model is called with; "
            f"this is {ids.dtype} {tuple(ids.shape)}"
        )
    return [Sample((row[None].to(device),), {}, row.cpu()) for row in torch.atleast_2d(ids)]


def _rows_of(inputs: Mapping[str, Any], device: torch.device) -> list[Sample]:
    """The texts of a batch, as keyword arguments of the model's forward."""
    tensors = {name: value.to(device) for name, value in inputs.items() if isinstance(value, Tensor) and value.dim()}
    if not tensors:
        raise ValueError(f"the inputs {', '.join(map(str, inputs)) or '{}'} have no tensors; give token ids")
    others = {name: value for name, value in inputs.items() if name not in tensors}
    name = next((name for name in _IDS if name in tensors), None)
    B = tensors[name or next(iter(tensors))].shape[0]
    mask = tensors.get("attention_mask")
    rows = []
    for i in range(B):
        kwargs = others | {key: one[i : i + 1] if one.shape[0] == B else one for key, one in tensors.items()}
        real = None if mask is None or mask.dim() != 2 else mask[i].bool().cpu()
        rows.append(Sample((), kwargs, None if name is None else tensors[name][i].cpu(), real))
    return rows


def _with_next_tokens(number: int, sample: Sample) -> Sample:
    ids, real = sample.ids, sample.real
    if ids is None:
        raise ValueError(f"the model is called with {', '.join(sample.kwargs)} and no input_ids; give targets=…")
    targets = ids.long().clone()
    targets[:1] = -1
    if real is not None:
        targets[~real] = -1
        targets[1:][~real[:-1]] = -1
    if not bool((targets >= 0).any()):
        raise ValueError(
            f"text {number} has {len(ids)} token{'' if len(ids) == 1 else 's'}; a prediction needs 2 or more"
        )
    return sample._replace(targets=targets, ahead=1)
