"""What the absence of heads costs: one effect for each cut, in a table, by number, as a file."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.heads.report import file_checks as checks
from regard.heads.report.file_checks import Unfit, require, whole_number
from regard.heads.report.listings import ShownAsTable
from regard.support.drawing import as_figure, as_text
from regard.support.files import atomically
from regard.support.printable import printable_errors, readable
from regard.support.tokens import TextTokens
from regard.support.untrusted_json import MOST, parse_json

HeadNumber = tuple[int, int]
FORMAT, VERSION = "regard.effects", 2
LARGEST_LOSS = 1e9  # of a token, unless it is infinite
NOISE = 2.0  # standard errors: an effect that is not larger may be chance


@dataclass(frozen=True)
class Measured:
    """The loss at every token, uncut and by how much it grows with each cut. N cuts, texts of T tokens each."""

    cuts: Sequence[tuple[HeadNumber, ...]]  # the heads of each cut, (layer, head), in order
    losses: Sequence[Tensor]  # (T,) float64 for each text, NaN where a token has no prediction
    changes: Sequence[Tensor]  # (N, T) float64 for each text
    chosen: Sequence[Sequence[int]] | None  # the chosen tokens of each text
    heads: Sequence[int]  # the number of heads of each layer
    roles: Mapping[HeadNumber, str]
    texts: Sequence[TextTokens] | None  # the tokens of each text, where they are known
    to: str  # what cut heads handed over, in words
    totals: Sequence[Tensor] | None = None  # (N, 2) for each text, where only the mean loss and that of chosen tokens
    # were estimated; the changes are NaN then


@dataclass(frozen=True)
class Effect:
    """What changes when these heads are cut.

    loss: by how much the loss per token grows, in nats; the mean over the texts. noise: its standard error over the
    texts, NaN for one text. logprob: how the log-probability of the chosen tokens changes, their mean; −2.3 is a tenth
    of the probability. NaN where no tokens were chosen. logprob_noise: its standard error.
    per_token: for each text, (T,): by how much the loss grows at each token; NaN where a token has no prediction.
    """

    name: str  # 4.3, layer 4, 0.2+4.3
    heads: tuple[HeadNumber, ...]
    role: str  # of a single head; "" for several
    loss: float
    noise: float
    logprob: float
    logprob_noise: float
    per_token: Sequence[Tensor]

    @property
    def cost(self) -> float:
        """What heads are ordered by: the drop in the log-probability of chosen tokens, or else the loss."""
        return self.loss if math.isnan(self.logprob) else -self.logprob

    @property
    def is_noise(self) -> bool:
        """Is the cost within two standard errors of 0? False where one text was read: then nothing is known of it."""
        return abs(self.cost) <= NOISE * (self.noise if math.isnan(self.logprob) else self.logprob_noise)

    def worst(self, text: int | None = None) -> tuple[int, int, float] | None:
        """(text, token, growth of its loss): the token that the cut costs most; None where none is predicted."""
        worst = []
        for number, values in enumerate(self.per_token):
            if text in (None, number) and not bool(values.isnan().all()):
                at = int(values.nan_to_num(-math.inf).argmax())
                worst.append((number, at, float(values[at])))
        return max(worst, key=lambda one: one[2], default=None)


class Effects(ShownAsTable):
    """What each cut costs; prints as a table, the largest cost first.

    `effects[4, 3]` is head 3 of layer 4, `effects[4]` the whole layer 4 and `effects[(0, 2), (4, 3)]` two heads at
    once, where they were measured. Iterating, and len(), go over all of them in the order in which they were measured.
    """

    def __init__(self, measured: Measured) -> None:
        self.measured = measured

    @cached_property
    def _effects(self) -> dict[tuple[HeadNumber, ...], Effect]:
        measured, result = self.measured, {}
        for place, heads in enumerate(measured.cuts):
            per_token = [changes[place] for changes in measured.changes]
            chosen = [] if measured.chosen is None else zip(per_token, measured.chosen, strict=True)
            if measured.totals is None:
                losses = [float(one[~one.isnan()].mean()) for one in per_token]
                drops = [-float(one[list(places)].mean()) for one, places in chosen]
            else:
                losses = [float(one[place, 0]) for one in measured.totals]
                drops = [-float(one[place, 1]) for one in measured.totals] if measured.chosen is not None else []
            loss, logprob = _mean_and_noise(losses), _mean_and_noise(drops)
            role = measured.roles.get(heads[0], "") if len(heads) == 1 else ""
            result[heads] = Effect(self._name(heads), heads, role, *loss, *logprob, per_token)
        return result

    def _name(self, heads: Sequence[HeadNumber]) -> str:
        layers = sorted({layer for layer, _ in heads})
        whole = len(layers) == 1 and len(heads) == self.measured.heads[layers[0]] and len(heads) > 1
        return f"layer {layers[0]}" if whole else "+".join(f"{layer}.{head}" for layer, head in heads)

    def __len__(self) -> int:
        return len(self.measured.cuts)

    def __iter__(self) -> Iterator[Effect]:
        return iter(self._effects.values())

    def __getitem__(self, key: int | HeadNumber | tuple[HeadNumber, ...]) -> Effect:
        """The effect of cutting a head, (layer, head); a whole layer; or several heads, a tuple of them."""
        heads: tuple[Any, ...]
        if isinstance(key, int):
            count = len(self.measured.heads)
            if not 0 <= key < count:
                raise KeyError(f"there is no layer {key}; the model has layers 0 to {count - 1}")
            heads = tuple((key, head) for head in range(self.measured.heads[key]))
        else:
            heads = (key,) if isinstance(key[0], int) else tuple(sorted(key))
        if heads not in self._effects:
            names = [one.name for one in self]
            few = ", ".join(names[:8]) + (" …" if len(names) > 8 else "")
            raise KeyError(f"the effect of cutting {self._name(heads) or key} was not measured; measured are {few}")
        return self._effects[heads]

    def order(self) -> list[Effect]:
        """The effects, the largest cost first: by the log-probability of chosen tokens, or else by the loss."""
        return sorted(self, key=lambda one: (-one.cost if one.cost == one.cost else math.inf, one.heads))

    @property
    def loss(self) -> float:
        """The loss per token of the uncut model, in nats; the mean over the texts."""
        return _mean_and_noise([float(one[~one.isnan()].mean()) for one in self.measured.losses])[0]

    @property
    def to(self) -> str:
        """What cut heads handed over, in words."""
        return self.measured.to

    def summary(self) -> dict[str, Any]:
        """All numbers but those of single tokens, ready for JSON; None where there is none."""
        tokens, chosen = [len(one) for one in self.measured.losses], self.measured.chosen
        first = {"loss": self.loss, "to": self.to, "texts": len(tokens), "tokens": tokens}
        first["chosen"] = None if chosen is None else [list(one) for one in chosen]
        return first | {"effects": [self._as_plain(one) for one in self.order()]}

    def _as_plain(self, one: Effect) -> dict[str, Any]:
        numbers = {name: getattr(one, name) for name in ("loss", "noise", "logprob", "logprob_noise")}
        plain = {name: None if math.isnan(value) else value for name, value in numbers.items()}
        worst = None if (place := one.worst()) is None else dict(zip(("text", "token", "loss"), place, strict=True))
        first = {"name": one.name, "heads": [list(head) for head in one.heads], "role": one.role}
        return first | plain | {"is_noise": one.is_noise, "worst": worst}

    def to_json(self) -> str:
        """The summary as JSON."""
        return json.dumps(self.summary(), ensure_ascii=False)

    def by_head(self) -> Mapping[HeadNumber, Effect]:
        """The effects of single heads, by (layer, head)."""
        return {one.heads[0]: one for one in self if len(one.heads) == 1}

    def label(self, text: int, token: int) -> str:
        """The token's name in its text; its position where names are unknown."""
        texts = self.measured.texts
        return f"@{token}" if texts is None else texts[text].labels[token]

    def __repr__(self) -> str:
        return as_text(self)

    def plot(self, ax: Any = None, width: float | None = None) -> Any:
        """Heads as cells, layers down and heads across, coloured by cost; other cuts as bars."""
        return as_figure(self, ax=ax, width=width)

    def save(self, path: str | Path) -> None:
        """Write everything to one JSON file, completely or not at all; regard.load_effects reads it."""
        measured = self.measured
        document = vars(measured) | {
            "format": FORMAT,
            "version": VERSION,
            "roles": [[*head, role] for head, role in measured.roles.items()],
            "texts": None if measured.texts is None else [checks.plain_text(text) for text in measured.texts],
            "losses": [_plain_numbers(one) for one in measured.losses],
            "changes": [[_plain_numbers(row) for row in one] for one in measured.changes],
            "totals": None if measured.totals is None else [list(map(_plain_numbers, one)) for one in measured.totals],
        }
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomically(path) as temporary:
            temporary.write_text(json.dumps(document), encoding="utf-8")


@printable_errors()
def load_effects(path: str | Path) -> Effects:
    """Read effects that were saved with effects.save(path); everything in the file is checked first.

    >>> import regard, tempfile
    >>> model = regard.GPT("tiny").eval()
    >>> effects = regard.effect(model, [5, 6, 7, 5, 6, 7], heads=[(0, 2), (4, 3)])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     effects.save(f"{folder}/effects.json")
    ...     load_effects(f"{folder}/effects.json")[4, 3].loss == effects[4, 3].loss
    True
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path} is not a file; effects.save({str(path)!r}) writes one")
    raw = path.read_bytes()
    with checks.file_named(path), checks.damage_refused("this is no JSON text that describes effects"):
        if FORMAT.encode() in raw and raw[8:9] == b"{":  # after the length of a safetensors header
            raise Unfit("an earlier regard wrote these effects, as safetensors; measure them again and save them")
        document = parse_json(raw, MOST + len(raw) // 4)
        require(document["format"] == FORMAT, "this holds no effects; effects.save(path) writes those")
        version = readable(document["version"])
        require(version == str(VERSION), f"the effects have version {version} and this regard reads {VERSION}")
        return Effects(_checked(document))


def _checked(document: dict[str, Any]) -> Measured:
    heads = [whole_number(one, "heads", most=checks.MOST_HEADS) for one in document["heads"]]
    cuts = [tuple(_head(one, heads) for one in cut) for cut in document["cuts"]]
    require(bool(cuts) and all(cuts), "there are no cuts, or one has no heads")
    pairs = zip(document["losses"], document["changes"], strict=True)
    numbers = [_numbers([losses, *changes], len(cuts), f"text {i}") for i, (losses, changes) in enumerate(pairs)]
    require(bool(heads and numbers), "there are no layers or no texts")
    chosen, texts = _checked_texts(document, [one.shape[1] for one in numbers])
    roles = {_head((layer, head), heads): role for layer, head, role in document["roles"]}
    to = document["to"]
    require(all(map(checks.short_text, (*roles.values(), to))), "a role, or what was handed over, is no short text")
    totals = _checked_totals(document.get("totals"), len(cuts), len(numbers))
    before, changes = [one[0] for one in numbers], [one[1:] for one in numbers]
    return Measured(cuts, before, changes, chosen, heads, roles, texts, to, totals)


def _checked_totals(totals: Any, cuts: int, texts: int) -> list[Tensor] | None:
    """(N, 2) for each text, where the effects were estimated; files of earlier versions have none."""
    if totals is None:
        return None
    require(len(totals) == texts and all(len(row) == 2 for one in totals for row in one), "estimates do not fit")
    return [_numbers([[None, None], *one], cuts, f"the estimates of text {i}")[1:] for i, one in enumerate(totals)]


def _checked_texts(document: dict[str, Any], sizes: list[int]) -> tuple[Any, list[TextTokens] | None]:
    """The chosen tokens and the tokens of each text, which have these sizes."""
    chosen = document["chosen"]
    for places, size in zip(chosen, sizes, strict=True) if chosen is not None else ():
        require(all(whole_number(at, "chosen") < size for at in places), "no such token")
    texts = None if document["texts"] is None else [checks.text_of_plain(one) for one in document["texts"]]
    require(texts is None or [len(one) for one in texts] == sizes, "the texts do not have as many tokens as the losses")
    return chosen, texts


def _numbers(rows: Sequence[Sequence[float | None]], cuts: int, what: str) -> Tensor:
    """(1 + cuts, T): the losses of a text, and how each cut changes them."""
    require(len(rows) == 1 + cuts, f"{what} has changes for {len(rows) - 1} of {cuts} cuts")
    tensor = torch.tensor([[math.nan if one is None else one for one in row] for row in rows], dtype=torch.float64)
    checks.check_range(what, tensor.nan_to_num(0.0, 0.0, 0.0), -LARGEST_LOSS, LARGEST_LOSS, {})
    return tensor


def _plain_numbers(numbers: Tensor) -> list[float | None]:
    return [None if math.isnan(one) else one for one in numbers.tolist()]


def _head(head: Any, heads: Sequence[int]) -> HeadNumber:
    layer, number = (whole_number(one, "a head") for one in head)
    require(layer < len(heads) and number < heads[layer], f"there is no head {layer}.{number}")
    return layer, number


def _mean_and_noise(values: Sequence[float]) -> tuple[float, float]:
    """The mean, and its standard error where there are several values; sums in float64."""
    numbers = torch.tensor(values, dtype=torch.float64)
    noise = float(numbers.std()) / len(values) ** 0.5 if len(values) > 1 else math.nan
    return float(numbers.mean()) if values else math.nan, noise
