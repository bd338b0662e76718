"""What watching costs the host: a forward of transformers' GPT-2 small, watched and unwatched in turns.

    PYTHONPATH=src python benchmarks/watch_host.py
    PYTHONPATH=src python benchmarks/watch_host.py --device cuda --dtype bf16 --json watch_host.json

Weights are random, so nothing is downloaded. At 64 tokens almost nothing is computed, and the difference per layer is
Python's time. On a GPU, synchronizations are counted too: in each of them the host waits for the GPU. --head-width 4
makes the model so small that the same holds on a CPU; --profile lists the functions that watching spends its time in.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import regard

sys.path.insert(0, str(Path(__file__).parents[1]))  # started by its file
from benchmarks import timing
from benchmarks.harness import machine, machine_lines, say, table_lines, write_json

LAYERS, HEADS = 12, 12
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
CASES = {"cpu": ("64", "512"), "cuda": ("64", "512", "2048", "16x1024", "16384")}


class Texts(NamedTuple):
    """So many texts of so many tokens."""

    number: int
    tokens: int

    @classmethod
    def parse(cls, text: str) -> Texts:
        """From 1024, or 16x1024."""
        *number, tokens = text.split("x")
        return cls(int(number[0]) if number else 1, int(tokens))

    def __str__(self) -> str:
        return f"{self.number} × {self.tokens}" if self.number > 1 else f"{self.tokens}"


class FunctionCount(TorchFunctionMode):
    """Counts the torch functions that Python calls."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def build(texts: Sequence[Texts], head_width: int, implementation: str) -> nn.Module:
    """GPT-2 small without its language-model head, with positions for the longest text."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # transformers warns when it is imported
        from transformers import GPT2Config, GPT2Model
    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=LAYERS, n_head=HEADS, n_embd=HEADS * head_width, n_positions=max(1024, *(one.tokens for one in texts)),
        attn_implementation=implementation,
    )  # fmt: skip
    model: nn.Module = GPT2Model(config)
    return model.eval()


def forwards(model: nn.Module, ids: Tensor) -> tuple[Callable[[], Tensor], Callable[[], regard.Seen]]:
    """The forward, unwatched and watched."""

    def unwatched() -> Tensor:
        with torch.no_grad():
            out: Tensor = model(input_ids=ids, use_cache=False).last_hidden_state
        return out

    def watched() -> regard.Seen:
        with regard.watch(model) as seen:
            unwatched()
        return seen

    return unwatched, watched


def measure(model: nn.Module, texts: Texts, device: str, rounds: int) -> dict[str, Any]:
    """Times of one size, watched and unwatched in turns."""
    ids = torch.randint(1000, texts, device=device)
    unwatched, watched = forwards(model, ids)
    is_cuda = torch.device(device).type == "cuda"
    clock = timing.eager if is_cuda else timing.wall
    for _ in range(3):  # builds kernels, and fills caches
        unwatched()
        watched()
    calls = {"unwatched": unwatched, "watched": watched}
    times = timing.interleave(
        calls, clock, rounds=rounds, seconds=30.0, at_least=0.02 if is_cuda else 0.0, by_median=is_cuda
    )
    before, after = (times[name].counts * 1e3 for name in calls)
    functions = FunctionCount()
    with functions:
        unwatched()
    return {
        "texts": texts.number,
        "tokens": texts.tokens,
        "unwatched_ms": before,
        "watched_ms": after,
        "ratio": after / before,
        "ms_per_layer": (after - before) / LAYERS,
        "functions": functions.count,
        "synchronizations": _synchronizations(watched) - _synchronizations(unwatched) if is_cuda else None,
        "timing": {name: timed.as_json() for name, timed in times.items()},
    }


def _synchronizations(call: Callable[[], object]) -> int:
    """How often the host waits for the GPU."""
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            call()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return sum("synchronizing CUDA operation" in str(one.message) for one in said)


def table(cases: Sequence[dict[str, Any]]) -> list[str]:
    """One line for each size."""
    head = ["tokens", "unwatched ms", "watched ms", "ratio", "ms a layer", "functions", "syncs"]
    columns = [
        [str(Texts(case["texts"], case["tokens"])) for case in cases],
        [f"{case['unwatched_ms']:.2f}" for case in cases],
        [f"{case['watched_ms']:.2f}" for case in cases],
        [f"{case['ratio']:.2f}" for case in cases],
        [f"{case['ms_per_layer']:.3f}" for case in cases],
        [f"{case['functions']}" for case in cases],
        ["-" if case["synchronizations"] is None else f"{case['synchronizations']}" for case in cases],
    ]
    return table_lines(head, columns)


def profile(model: nn.Module, texts: Texts, device: str, times: int = 20) -> None:
    """Print the functions in which watched forwards spend their time, by their own time and in all."""
    _, watched = forwards(model, torch.randint(1000, texts, device=device))
    for _ in range(3):
        watched()
    profiler = cProfile.Profile()
    with profiler:
        for _ in range(times):
            watched()
    for order in ("tottime", "cumulative"):
        pstats.Stats(profiler, stream=sys.stdout).strip_dirs().sort_stats(order).print_stats(45)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--device", default="cpu", help="[default: cpu]")
    parser.add_argument("--dtype", default="fp32", choices=DTYPES, help="[default: fp32]")
    parser.add_argument("--case", action="append", help="Tokens, or texts and tokens: 16x1024. Repeatable.")
    parser.add_argument("--head-width", type=int, default=64, help="Width of each of the 12 heads. [default: 64]")
    parser.add_argument("--implementation", default="sdpa", help="attn_implementation of transformers. [default: sdpa]")
    parser.add_argument("--rounds", type=int, default=30, help="Rounds of watched and unwatched. [default: 30]")
    parser.add_argument("--threads", type=int, help="Threads of torch on the CPU. [default: torch's own]")
    parser.add_argument("--json", type=Path, metavar="PATH", help="Write the figures into this file.")
    parser.add_argument("--profile", action="store_true", help="Profile the first case instead of timing all.")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    kind = torch.device(options.device).type
    texts = [Texts.parse(text) for text in options.case or CASES.get(kind, CASES["cpu"])]
    model = build(texts, options.head_width, options.implementation).to(options.device, DTYPES[options.dtype])
    if options.profile:
        profile(model, texts[0], options.device)
        return
    cases, about = [], machine(" ".join(sys.argv))
    for one in texts:
        print(f"{one} …", end="\r", file=sys.stderr, flush=True)
        cases.append(measure(model, one, options.device, options.rounds))
        if options.json:
            settings = {name: getattr(options, name) for name in ("device", "dtype", "head_width", "implementation")}
            write_json(options.json, {"machine": about, "settings": settings, "cases": cases})
    say("\n".join(machine_lines(about)))
    say(f"\n  GPT-2 small, {HEADS} heads of {options.head_width}, {options.dtype} on {options.device}\n")
    say("\n".join(table(cases)))


if __name__ == "__main__":
    main()
