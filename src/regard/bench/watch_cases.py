"""What the watch benchmark runs: attention alone, attention with its statistics, and whole models, seen and unseen.

Statistics are held against their definitions in float64 before anything is timed. Memory on the CPU is measured in a
process of its own, because a process's high-water mark says nothing about what came before it.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

import regard
from regard.bench.memory import _high_water
from regard.bench.peers import TOLERANCE as OUT_TOLERANCE
from regard.bench.timing import Call, peak_memory
from regard.heads import intercept_sdpa, statistics

SDPA = "SDPA alone"
STATISTICS = "SDPA + statistics"
EXPLICIT = "explicit weights + statistics"
COLUMN_SUM = "flash-colreduce (one column statistic, no output)"
UNWATCHED, WATCHED, ATTENTIONS = "unwatched", "watched", "eager, output_attentions"
EXPLICIT_UP_TO = 4096  # tokens; beyond, T × T weights take minutes and most of the memory
CHECKED_AT = (129, 1088)  # tokens: a block and one more; several blocks and a half
# Of |found − exact| ÷ (|exact| + its mean). Sums are in fp32 for every dtype; what differs is the LSE that SDPA hands out.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 1e-3, torch.bfloat16: 1e-3}
COLUMN_SUM_TOLERANCE = 2e-2  # flash-colreduce rounds its sums to the dtype of the queries

Attention = Callable[[Tensor, Tensor, Tensor], object]


class WrongError(ValueError):
    """Statistics that are not what their definition says: nothing is timed."""


@dataclass(frozen=True)
class Heads:
    """How many heads, and how wide.

    >>> Heads.read("12x64")
    Heads(number=12, width=64)
    """

    number: int
    width: int

    @classmethod
    def read(cls, text: str) -> Heads:
        """From the command line."""
        found = re.fullmatch(r"([1-9]\d*)[x×]([1-9]\d*)", text.strip())
        if found is None:
            raise ValueError(f"--heads {text} must be heads x width in whole numbers above 0, such as 12x64")
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.number} heads of {self.width}"


@dataclass(frozen=True)
class ModelSize:
    """A GPT-2 of random weights; as it stands, the small one."""

    name: str = "GPT-2 small"
    layers: int = 12
    heads: int = 12
    width: int = 64  # of a head
    vocabulary: int = 50257


def draw(
    heads: Heads, T: int, dtype: torch.dtype, device: torch.device | str, seed: int = 0, sharp: bool = False
) -> list[Float[Tensor, "1 H T D"]]:
    """Random q, k and v; with `sharp`, heads from nearly flat to nearly one key, so that no statistic is idle."""
    generator = torch.Generator(device).manual_seed(seed)
    q, k, v = (torch.randn(1, heads.number, T, heads.width, generator=generator, device=device) for _ in range(3))
    if sharp:
        q = q * torch.linspace(0.25, 4.0, heads.number, device=device)[:, None, None]
    return [t.to(dtype) for t in (q, k, v)]


def alone(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """What an unwatched model calls."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def with_statistics(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """What watch does with that call: the same kernel, its LSE overheard, and the default statistics."""
    given: tuple[tuple[Tensor, ...], dict[str, Any]] = (q, k, v), {"is_causal": True}
    out, lse = intercept_sdpa.run_with_lse(F.scaled_dot_product_attention, *given)
    return out, statistics.measure(intercept_sdpa.call_of(*given, lse, None), frozenset(statistics.DEFAULT))


def by_definition(
    q: Float[Tensor, "B H T D"], k: Float[Tensor, "B H T D"]
) -> tuple[Float[Tensor, "B H T T"], dict[str, Tensor]]:
    """The causal weights and every default statistic as it is defined, from all T × T of them."""
    at = torch.arange(q.shape[2], device=q.device)
    apart = at[:, None] - at
    scores = (q @ k.mT).to(torch.promote_types(q.dtype, torch.float32)) * q.shape[3] ** -0.5
    scores.masked_fill_(apart < 0, -torch.inf)
    p = scores.softmax(-1)
    largest, largest_key = p.max(-1)
    return p, {
        "lse": scores.logsumexp(-1),
        "entropy": torch.special.entr(p).sum(-1),
        "largest": largest,
        "largest_key": largest_key,
        "distance": (p * apart.abs()).sum(-1),
        "sink": p[..., 0],
        "previous": F.pad(p.diagonal(-1, -2, -1), (1, 0), value=torch.nan),  # the first token has none
        "self": p.diagonal(0, -2, -1),
        "next": F.pad(p.diagonal(1, -2, -1), (0, 1), value=torch.nan),  # the last token has none
        "received": p.sum(-2),
    }


def with_explicit_weights(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """What one does without fused statistics."""
    weights, found = by_definition(q, k)
    return weights.to(v.dtype) @ v, found


def column_sum() -> Attention:
    """flash-colreduce's sum of every column; ImportError where it is not installed."""
    reduce = importlib.import_module("flash_colreduce").flash_colreduce

    def run(q: Tensor, k: Tensor, v: Tensor) -> object:
        return reduce(q, k, reduction="sum", is_causal=True)

    return run


def away(found: Tensor, exact: Tensor) -> float:
    """The worst entry's distance, relative to itself and the mean; ∞ where one is NaN and the other is not.

    >>> away(torch.tensor([1.0, torch.nan]), torch.tensor([2.0, torch.nan]))
    0.25
    """
    there = ~exact.isnan()
    if found.shape != exact.shape or not torch.equal(there, ~found.isnan()):
        return float("inf")
    size = exact[there].double()
    return float(((found[there].double() - size).abs() / (size.abs() + size.abs().mean())).nan_to_num(0.0).max())


@torch.no_grad()
def check(heads: Heads, T: int, dtype: torch.dtype, device: str, seed: int = 0) -> dict[str, float]:
    """How far each default statistic is from float64, {name: distance}; WrongError where one is too far.

    Of a largest weight's key, what counts is the exact weight on it: among equals any one will do.
    """
    q, k, v = draw(heads, T, dtype, device, seed, sharp=True)
    _, found = with_statistics(q, k, v)
    weights, exact = by_definition(q.double(), k.double())
    limit, errors = TOLERANCE[dtype], {}
    for name in statistics.DEFAULT:
        if name not in found:
            raise WrongError(f"{heads}, T={T}, {_name(dtype)}: {name} was not measured; nothing was timed")
        here = found[name]
        if name == "largest_key":
            here = weights.gather(-1, here.clamp(0, T - 1)[..., None])[..., 0]
        errors[name] = away(here, exact["largest" if name == "largest_key" else name])
        if not errors[name] <= limit:
            raise WrongError(
                f"{heads}, T={T}, {_name(dtype)}: {name} is {errors[name]:.2g} away from float64, "
                f"and {limit:g} is allowed; nothing was timed"
            )
    return errors


@torch.no_grad()
def check_column_sum(reduce: Attention, heads: Heads, dtype: torch.dtype, device: str) -> str | None:
    """Why flash-colreduce may not be timed, or None."""
    q, k, v = draw(heads, CHECKED_AT[0], dtype, device, sharp=True)
    found = reduce(q, k, v)
    assert isinstance(found, Tensor)
    far = away(found, by_definition(q.double(), k.double())[1]["received"])
    if far <= COLUMN_SUM_TOLERANCE:
        return None
    return f"not timed: it is {far:.2g} away from float64, and {COLUMN_SUM_TOLERANCE:g} is allowed"


def models(size: ModelSize, T: int, dtype: torch.dtype, device: str, seed: int = 0) -> dict[str, Call]:
    """One forward over T tokens, unwatched, watched, and where T allows with every weight kept.

    The body alone, without the head over the vocabulary: it would cost all of them the same and flatter the ratio.
    """
    torch.manual_seed(seed)
    model = _gpt2(size, T, "sdpa").to(device, dtype).eval()
    ids = torch.randint(size.vocabulary, (1, T), device=device)

    def unwatched() -> Tensor:
        with torch.no_grad():
            out: Tensor = model(input_ids=ids, use_cache=False).last_hidden_state
        return out

    def watched() -> tuple[Tensor, regard.Seen]:
        with regard.watch(model) as seen:
            out = unwatched()
        return out, seen

    calls: dict[str, Call] = {UNWATCHED: unwatched, WATCHED: watched}
    if T <= EXPLICIT_UP_TO:
        eager = _gpt2(size, T, "eager").to(device, dtype).eval()
        eager.load_state_dict(model.state_dict())

        def attentions() -> object:
            with torch.no_grad():
                return eager(input_ids=ids, use_cache=False, output_attentions=True)

        calls[ATTENTIONS] = attentions
    return calls


def check_models(calls: dict[str, Call], size: ModelSize, dtype: torch.dtype) -> bool:
    """Is the watched output the unwatched one bit for bit? WrongError where it is another, or layers are missing."""
    out = cast(Tensor, calls[UNWATCHED]())
    same, seen = cast(tuple[Tensor, regard.Seen], calls[WATCHED]())
    far, limit = float((same.double() - out.double()).norm() / out.double().norm()), OUT_TOLERANCE[dtype]
    if not far <= limit:  # NaN is refused too
        raise WrongError(
            f"{size.name}: the watched output is {far:.2g} away from the unwatched one, and {limit:g} is allowed; "
            "nothing was timed"
        )
    if len(seen) != size.layers:
        raise WrongError(f"{size.name}: {len(seen)} layers were seen and {size.layers} ran; nothing was timed")
    return torch.equal(same, out)


def _gpt2(size: ModelSize, T: int, how: str) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # importing it warns of things that are its own to mend
        from transformers import GPT2Config, GPT2Model
    config = GPT2Config(
        n_embd=size.heads * size.width, n_head=size.heads, n_layer=size.layers, vocab_size=size.vocabulary,
        n_positions=max(T, 1024), bos_token_id=0, eos_token_id=0, attn_implementation=how,
    )  # fmt: skip
    model: nn.Module = GPT2Model(config)
    return model


def peak_beyond_inputs(heads: Heads, T: int, dtype: torch.dtype, device: str, seed: int = 0) -> int:
    """Bytes that attention with its statistics takes beyond q, k, v and out, in this process."""
    with_statistics(*draw(heads, 256, dtype, device))  # what is loaded or reserved once is not counted
    q, k, v = draw(heads, T, dtype, device, seed)
    return _peak(lambda: with_statistics(q, k, v), device) - q.nbytes


def peak_of_model(name: str, size: ModelSize, T: int, dtype: torch.dtype, device: str, seed: int = 0) -> int:
    """Bytes that one forward takes beyond the model, in this process."""
    return _peak(models(size, T, dtype, device, seed)[name], device)


def in_a_process_of_its_own(what: str, timeout: float | None = None, **told: Any) -> int:
    """peak_beyond_inputs or peak_of_model on the CPU, where it is the process that is measured."""
    told = {n: asdict(t) if isinstance(t, Heads | ModelSize) else t for n, t in told.items()}
    told |= {"dtype": _name(told["dtype"]), "threads": torch.get_num_threads()}
    # -W is passed on, so that tests that turn warnings into errors see those of the child too.
    words = [sys.executable, *(f"-W{w}" for w in sys.warnoptions), "-m", __name__, what, json.dumps(told)]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p))
    done = subprocess.run(words, capture_output=True, text=True, timeout=timeout, env=environment, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["killed, probably for want of memory"])[-1]
        raise RuntimeError(f"{what} at T={told['T']} ended with status {done.returncode}: {last}")
    return int(json.loads(done.stdout)["bytes"])


def _child(what: str, text: str) -> None:
    told = json.loads(text)
    torch.set_num_threads(told.pop("threads"))
    told["dtype"] = getattr(torch, told["dtype"])
    if what == "peak_beyond_inputs":
        found = peak_beyond_inputs(**(told | {"heads": Heads(**told["heads"])}), device="cpu")
    else:
        found = peak_of_model(**(told | {"size": ModelSize(**told["size"])}), device="cpu")
    print(json.dumps({"bytes": found}))


def _peak(call: Call, device: str) -> int:
    if torch.device(device).type == "cuda":
        call()  # kernels are compiled and workspaces taken
        return peak_memory(call, device) or 0
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # Linux: from now on the mark is what is held now, not what building took
    except OSError:
        pass
    before = _high_water()
    kept = call()
    after = _high_water()
    del kept
    return after - before


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


if __name__ == "__main__":
    _child(*sys.argv[1:])
