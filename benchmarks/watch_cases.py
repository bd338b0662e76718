"""What the watch benchmark runs: attention alone, attention with its statistics, and models, watched and unwatched.

Statistics are compared with their definitions in float64 before anything is timed. Memory on the CPU is measured in a
new process, because the peak memory of a process never falls.
"""

from __future__ import annotations

import importlib
import json
import re
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
from benchmarks.harness import WrongError
from benchmarks.memory import bytes_from_process, high_water
from benchmarks.peers import TOLERANCE as OUT_TOLERANCE
from benchmarks.timing import Timed, peak_memory
from regard.heads.calls.head_axis import HeadAxis
from regard.heads.intercept import sdpa as intercept_sdpa
from regard.heads.measure import statistics
from regard.heads.measure.registry import DEFAULT

SDPA = "SDPA alone"
STATISTICS = "SDPA + statistics"
EXPLICIT = "explicit weights + statistics"
COLUMN_SUM = "flash-colreduce (one column statistic, no output)"
UNWATCHED, WATCHED, ATTENTIONS = "unwatched", "watched", "eager, output_attentions"
EXPLICIT_UP_TO = 4096  # tokens; beyond, T × T weights take minutes and most of the memory
CHECKED_AT = (129, 1088)  # tokens: a block and one more; several blocks and a half
# Of |measured − exact| ÷ (|exact| + its mean). Sums are in fp32 for every dtype, but SDPA's LSE is not.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 1e-3, torch.bfloat16: 1e-3}
COLUMN_SUM_TOLERANCE = 2e-2  # flash-colreduce rounds its sums to the dtype of the queries

Attention = Callable[[Tensor, Tensor, Tensor], object]


@dataclass(frozen=True)
class HeadShape:
    """The number of heads and their width.

    >>> HeadShape.parse("12x64")
    HeadShape(number=12, width=64)
    """

    number: int
    width: int

    @classmethod
    def parse(cls, text: str) -> HeadShape:
        """Parse the value of --heads."""
        match = re.fullmatch(r"([1-9]\d*)[x×]([1-9]\d*)", text.strip())
        if match is None:
            raise ValueError(f"--heads {text} must be heads x width in whole numbers above 0, such as 12x64")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.number} heads of {self.width}"


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a GPT-2; by default, of GPT-2 small."""

    name: str = "GPT-2 small"
    layers: int = 12
    heads: int = 12
    width: int = 64  # of a head
    vocabulary: int = 50257


def draw(
    heads: HeadShape, T: int, dtype: torch.dtype, device: torch.device | str, seed: int = 0, sharp: bool = False
) -> list[Float[Tensor, "1 H T D"]]:
    """Random q, k and v; with `sharp`, heads range from nearly uniform attention to nearly one key."""
    generator = torch.Generator(device).manual_seed(seed)
    q, k, v = (torch.randn(1, heads.number, T, heads.width, generator=generator, device=device) for _ in range(3))
    if sharp:
        q = q * torch.linspace(0.25, 4.0, heads.number, device=device)[:, None, None]
    return [t.to(dtype) for t in (q, k, v)]


def alone(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The call of an unwatched model."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def with_statistics(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """The call as watch runs it: the same kernel with its LSE, and the default statistics."""
    arguments: tuple[tuple[Tensor, ...], dict[str, Any]] = (q, k, v), {"is_causal": True}
    out, lse = intercept_sdpa.run_with_lse(F.scaled_dot_product_attention, *arguments)
    return out, statistics.measure(intercept_sdpa.sdpa_call(*arguments, lse, HeadAxis()), frozenset(DEFAULT))


def by_definition(
    q: Float[Tensor, "B H T D"], k: Float[Tensor, "B H T D"]
) -> tuple[Float[Tensor, "B H T T"], dict[str, Tensor]]:
    """The causal weights, and every default statistic computed from them by its definition."""
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
    """The same output and statistics from explicit weights."""
    weights, values = by_definition(q, k)
    return weights.to(v.dtype) @ v, values


def column_sum() -> Attention:
    """flash-colreduce's sum of every column; ImportError where it is not installed."""
    reduce = importlib.import_module("flash_colreduce").flash_colreduce

    def run(q: Tensor, k: Tensor, v: Tensor) -> object:
        return reduce(q, k, reduction="sum", is_causal=True)

    return run


def away(measured: Tensor, exact: Tensor) -> float:
    """The largest error of an entry, relative to the entry and the mean; ∞ where only one of the two is NaN.

    >>> away(torch.tensor([1.0, torch.nan]), torch.tensor([2.0, torch.nan]))
    0.25
    """
    known = ~exact.isnan()
    if measured.shape != exact.shape or not torch.equal(known, ~measured.isnan()):
        return float("inf")
    size = exact[known].double()
    return float(((measured[known].double() - size).abs() / (size.abs() + size.abs().mean())).nan_to_num(0.0).max())


@torch.no_grad()
def check(heads: HeadShape, T: int, dtype: torch.dtype, device: str, seed: int = 0) -> dict[str, float]:
    """The distance of each default statistic from float64, {name: distance}; WrongError where one is too far.

    Of largest_key, the exact weight on it is compared: among equal weights any key is right.
    """
    q, k, v = draw(heads, T, dtype, device, seed, sharp=True)
    _, measured = with_statistics(q, k, v)
    weights, exact = by_definition(q.double(), k.double())
    limit, errors = TOLERANCE[dtype], {}
    for name in DEFAULT:
        if name not in measured:
            raise WrongError(f"{heads}, T={T}, {_name(dtype)}: {name} was not measured; nothing was timed")
        value = measured[name]
        if name == "largest_key":
            value = weights.gather(-1, value.clamp(0, T - 1)[..., None])[..., 0]
        errors[name] = away(value, exact["largest" if name == "largest_key" else name])
        if not errors[name] <= limit:
            raise WrongError(
                f"{heads}, T={T}, {_name(dtype)}: {name} is {errors[name]:.2g} away from float64, "
                f"and {limit:g} is allowed; nothing was timed"
            )
    return errors


@torch.no_grad()
def check_column_sum(reduce: Attention, heads: HeadShape, dtype: torch.dtype, device: str) -> str | None:
    """Why flash-colreduce may not be timed, or None."""
    q, k, v = draw(heads, CHECKED_AT[0], dtype, device, sharp=True)
    sums = reduce(q, k, v)
    assert isinstance(sums, Tensor)
    far = away(sums, by_definition(q.double(), k.double())[1]["received"])
    if far <= COLUMN_SUM_TOLERANCE:
        return None
    return f"not timed: it is {far:.2g} away from float64, and {COLUMN_SUM_TOLERANCE:g} is allowed"


def models(size: ModelShape, T: int, dtype: torch.dtype, device: str, seed: int = 0) -> dict[str, Timed]:
    """One forward over T tokens: unwatched, watched, and, if T is not too large, with output_attentions.

    Without the language-model head, whose time is the same for all and would only make the ratios look better.
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

    calls: dict[str, Timed] = {UNWATCHED: unwatched, WATCHED: watched}
    if T <= EXPLICIT_UP_TO:
        eager = _gpt2(size, T, "eager").to(device, dtype).eval()
        eager.load_state_dict(model.state_dict())

        def attentions() -> object:
            with torch.no_grad():
                return eager(input_ids=ids, use_cache=False, output_attentions=True)

        calls[ATTENTIONS] = attentions
    return calls


def check_models(calls: dict[str, Timed], size: ModelShape, dtype: torch.dtype) -> bool:
    """Is the watched output bit for bit the unwatched one? WrongError where it is too far, or layers are missing."""
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


def _gpt2(size: ModelShape, T: int, how: str) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # transformers warns when it is imported
        from transformers import GPT2Config, GPT2Model
    config = GPT2Config(
        n_embd=size.heads * size.width,
        n_head=size.heads,
        n_layer=size.layers,
        vocab_size=size.vocabulary,
        n_positions=max(T, 1024),
        bos_token_id=0,
        eos_token_id=0,
        attn_implementation=how,
    )
    model: nn.Module = GPT2Model(config)
    return model


def peak_beyond_inputs(heads: HeadShape, T: int, dtype: torch.dtype, device: str, seed: int = 0) -> int:
    """Bytes that attention with its statistics allocates beyond q, k, v and out, in this process."""
    with_statistics(*draw(heads, 256, dtype, device))  # what is allocated once is not counted
    q, k, v = draw(heads, T, dtype, device, seed)
    return _peak(lambda: with_statistics(q, k, v), device) - q.nbytes


def peak_of_model(name: str, size: ModelShape, T: int, dtype: torch.dtype, device: str, seed: int = 0) -> int:
    """Bytes that one forward allocates, in this process."""
    return _peak(models(size, T, dtype, device, seed)[name], device)


def in_a_new_process(what: str, timeout: float | None = None, **arguments: Any) -> int:
    """peak_beyond_inputs or peak_of_model on the CPU, where the memory of the whole process is measured."""
    plain = {n: asdict(a) if isinstance(a, HeadShape | ModelShape) else a for n, a in arguments.items()}
    plain |= {"dtype": _name(arguments["dtype"]), "threads": torch.get_num_threads()}
    return bytes_from_process(
        ["benchmarks.watch_cases", what, json.dumps(plain)], f"{what} at T={arguments['T']}", timeout
    )


def _child(what: str, text: str) -> None:
    arguments = json.loads(text)
    torch.set_num_threads(arguments.pop("threads"))
    arguments["dtype"] = getattr(torch, arguments["dtype"])
    if what == "peak_beyond_inputs":
        peak = peak_beyond_inputs(**(arguments | {"heads": HeadShape(**arguments["heads"])}), device="cpu")
    else:
        peak = peak_of_model(**(arguments | {"size": ModelShape(**arguments["size"])}), device="cpu")
    print(json.dumps({"bytes": peak}))


def _peak(call: Timed, device: str) -> int:
    if torch.device(device).type == "cuda":
        call()  # compiles kernels and allocates workspaces
        return peak_memory(call, device) or 0
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # Linux: reset the peak to the current memory
    except OSError:
        pass
    before = high_water()
    kept = call()
    after = high_water()
    del kept
    return after - before


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


if __name__ == "__main__":
    _child(*sys.argv[1:])
