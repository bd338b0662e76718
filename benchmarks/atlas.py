"""What an atlas costs beside the forwards that it reads: the same batches unwatched, watched, and added to an atlas.

    python -m benchmarks atlas --tokens 200000

The three are timed batch by batch, in one process, in another order for each batch. The sums of all batches count, and
those of their second half, when most examples have been chosen. On a CPU it is the process's own CPU time that counts,
so that others on the machine do not.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import regard
from benchmarks import harness
from benchmarks.harness import Setting
from benchmarks.twins import LLAMA, QUICK
from regard.gpt import GPT, GPTConfig
from regard.heads.atlas.collect import AtlasBuilder
from regard.heads.watch import watch

BOOK = Path(regard.__file__).parent / "school" / "texts" / "alice.txt"
PLAIN, WATCHED, ATLAS = "unwatched", "watched", "added to an atlas"


def run(
    setting: Setting,
    config: GPTConfig | None,
    shape: tuple[int, int],
    tokens: int,
    out_dir: str | Path,
    command: str = "",
) -> dict[str, Any]:
    """Time the batches, show the table, and write atlas.json into out_dir. config: of a random model; None is tiny."""
    results = harness.start("atlas", command, setting.device, setting.as_json() | {"shape": shape, "tokens": tokens})
    torch.manual_seed(setting.seed)
    tiny = GPT.from_pretrained("tiny")
    with torch.device(setting.device):
        model = tiny if config is None else GPT(config)
    model = model.to(setting.device, setting.dtype).eval()
    B, T = shape
    assert tiny.tokenizer is not None
    book = torch.tensor(tiny.tokenizer.encode(BOOK.read_text(encoding="utf-8")))
    book = book[book < model.config.vocab_size]
    starts = torch.randint(0, len(book) - T + 1, (max(3, tokens // (B * T)), B, 1))
    ids = book[starts + torch.arange(T)].to(setting.device)
    builder = AtlasBuilder(model, tiny.tokenizer)
    calls: dict[str, Callable[[Tensor], object]]
    calls = {PLAIN: partial(_forward, model), WATCHED: partial(_watched, model), ATLAS: builder.add}
    seconds = time_batches(calls, ids, setting)
    results["seconds"] = seconds
    results["ratios"] = {name: ratios(seconds, name) for name in calls}
    lines = [f"  {len(ids)} batches of {B} × {T} tokens, {setting.label}", ""]
    per_batch = harness.same_digits([1000 * statistics.median(one) for one in seconds.values()])
    both = [[f"{results['ratios'][name][half]:.2f}" for name in calls] for half in ("all", "second half", "median")]
    columns = ["", "ms", "÷ unwatched", "2nd half", "median"]
    lines += harness.table_lines(columns, [list(calls), per_batch, *both], marked=list(calls).index(ATLAS))
    harness.say("\n" + "\n".join(lines))
    harness.write_json(Path(out_dir) / "atlas.json", results)
    return results


def time_batches(calls: dict[str, Callable[[Tensor], object]], ids: Tensor, setting: Setting) -> dict[str, list[float]]:
    """The seconds of each call for each batch after the first, which is not timed."""
    generator, clock = random.Random(setting.seed), time.perf_counter if setting.cuda else time.process_time
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for number, batch in enumerate(ids):
        order = list(calls)
        generator.shuffle(order)
        for name in order:
            start = clock()
            calls[name](batch)
            if setting.cuda:
                torch.cuda.synchronize()
            if number:
                seconds[name].append(clock() - start)
    return seconds


def ratios(seconds: dict[str, list[float]], name: str) -> dict[str, float]:
    """The time of a call relative to that of the forwards: in all, in the second half, and the median of batches."""
    mine, plain = seconds[name], seconds[PLAIN]
    half = len(mine) // 2
    median = statistics.median(one / other for one, other in zip(mine, plain, strict=True))
    return {"all": sum(mine) / sum(plain), "second half": sum(mine[half:]) / sum(plain[half:]), "median": median}


@torch.no_grad()
def _forward(model: nn.Module, ids: Tensor) -> None:
    model(ids)


@torch.no_grad()
def _watched(model: nn.Module, ids: Tensor) -> None:
    with watch(model):
        model(ids)


def main(argv: Sequence[str]) -> int:
    """Parse the command line and run the benchmark."""
    return harness.run_command("atlas", argv, _add_options, _prepare)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", help="device: cpu, cuda, … [default: cuda if available, else cpu]")
    parser.add_argument("--threads", type=int, help="CPU threads [default: PyTorch's]")
    parser.add_argument("--out", default="bench-out", metavar="DIR", help="output directory [default: %(default)s]")
    parser.add_argument("--quick", action="store_true", help="a very small model, for a run of a few seconds")
    parser.add_argument(
        "--model", help="preset of GPTConfig, or llama, with random weights [default: the model in the package]"
    )
    parser.add_argument("--tokens", type=int, default=100_000, help="tokens in all [default: %(default)s]")
    parser.add_argument("--shape", default="16,256", help="texts of a batch, tokens of a text [default: %(default)s]")
    parser.add_argument("--rounds", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=1.0, help=argparse.SUPPRESS)
    harness.dtype_option(parser)


def _prepare(options: argparse.Namespace) -> Callable[..., object]:
    """Check the options; the run that they describe."""
    device, cuda = harness.find_device(options.device)
    harness.check_positive(options, "tokens")
    try:
        B, T = (int(one) for one in options.shape.split(","))
    except ValueError:
        raise ValueError(f"--shape {options.shape} must be two whole numbers, such as 16,256") from None
    config = QUICK if options.quick else LLAMA if options.model == "llama" else None
    if config is None and options.model is not None:
        config = GPTConfig.preset(options.model)
    if options.quick:
        B, T = 2, 32
    setting = Setting(device, harness.find_dtype(options.dtype, cuda))
    return partial(run, setting, config, (B, T), options.tokens, options.out)
