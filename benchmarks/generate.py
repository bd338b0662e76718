"""Text generation: ours against transformers with its default cache and with its static one, which it compiles.

    python -m benchmarks generate --device cuda --model gpt2-small --batch 1 --batch 32

All have the same random weights and generate the same number of tokens, greedily. Every token that ours generates must
be the best by transformers' logits too; otherwise nothing is timed.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks import harness, timing
from benchmarks.harness import Setting, WrongError, same_digits
from benchmarks.timing import Timed
from benchmarks.twins import QUICK, twin, weights_in_use
from regard.gpt import GPT, GPTConfig

PROMPT, NEW = 64, 128  # tokens
OURS, DEFAULT, STATIC = "regard", "transformers", "transformers, static cache"
# How far the logit of our token may be below the best one, by transformers: as a fraction of the largest logit.
TOLERANCE = {torch.float32: 1e-4, torch.float16: 0.01, torch.bfloat16: 0.05}


@dataclasses.dataclass(frozen=True)
class GenerateSetting(Setting):
    """The settings of every benchmark, and how many tokens are read and generated."""

    prompt: int = PROMPT
    new: int = NEW

    def __str__(self) -> str:
        return f"prompt {self.prompt} + {self.new} new · {self.label}"


def run(
    setting: GenerateSetting,
    configs: dict[str, GPTConfig],
    batches: Sequence[int] = (1,),
    out_dir: str | Path = "bench-out",
    command: str = "",
) -> dict[str, Any]:
    """Check, then measure every model at every batch size, show the tables, and write generate.json into out_dir.

    The file is written after every case.
    """
    where = Path(out_dir) / "generate.json"
    results = harness.start("generate", command, setting.device, setting.as_json())
    results |= {"bandwidth_gb_s": bandwidth(setting.device) / 1e9, "cases": []}
    harness.say(f"\n  memory: {results['bandwidth_gb_s']:,.0f} GB/s measured")
    for name, config in configs.items():
        harness.stage(f"{name}: building")
        ours = build(config.with_(end=None), setting)  # all texts must have the same length
        theirs, missing = None, []
        try:
            theirs = twin(ours)
        except ImportError as error:
            missing = [f"transformers is not installed ({error})"]
        for batch in batches:
            case = _case(name, batch, ours, theirs, setting, results["bandwidth_gb_s"])
            case["notes"] += missing
            results["cases"].append(case)
            harness.write_json(where, results)
            harness.say("\n" + "\n".join(case_lines(case)))
        del ours, theirs  # frees the memory for the next one
        gc.collect()
        if setting.cuda:
            torch._dynamo.reset()
            torch.cuda.empty_cache()
    harness.say(f"\n  {where}")
    return results


def build(config: GPTConfig, setting: GenerateSetting) -> GPT:
    """Our model with random weights, made on its device."""
    torch.manual_seed(setting.seed)
    default = torch.get_default_dtype()
    torch.set_default_dtype(setting.dtype)
    try:
        with torch.device(setting.device):
            return GPT(config).eval()
    finally:
        torch.set_default_dtype(default)


def calls(ours: GPT, theirs: Any, ids: Tensor, new: int, cuda: bool) -> dict[str, Callable[[], list[list[int]]]]:
    """The contenders: each continues the same prompts and returns the generated tokens, row by row."""
    contenders: dict[str, Callable[[], list[list[int]]]] = {OURS: lambda: ours.generate(ids, new, temperature=0)}
    if theirs is not None:
        options = {
            "attention_mask": torch.ones_like(ids),
            "max_new_tokens": new,
            "min_new_tokens": new,
            "do_sample": False,
            "pad_token_id": 0,
        }

        def generate(**more: Any) -> list[list[int]]:
            rows: list[list[int]] = theirs.generate(ids, **options, **more)[:, ids.shape[1] :].tolist()
            return rows

        contenders[DEFAULT] = generate
        if cuda:  # transformers compiles it on a GPU only
            contenders[STATIC] = partial(generate, cache_implementation="static")
    return contenders


@torch.no_grad()
def check(name: str, theirs: Any, ids: Tensor, written: list[list[int]]) -> float:
    """How far our worst token is below the best by transformers' logits; WrongError where it is too far.

    Two tokens can be so close that rounding decides. Either is right then, and the texts differ from there.
    """
    new = torch.tensor(written, device=ids.device)
    worst = 0.0
    for row, tokens in zip(ids, new, strict=True):  # row by row: the logits of a batch may not fit into memory
        scores = theirs(torch.cat([row, tokens])[None]).logits[0, len(row) - 1 : -1].float()
        below = scores.amax(-1) - scores.gather(-1, tokens[:, None])[:, 0]
        worst = max(worst, float((below / scores.abs().amax(-1)).max()))
    limit = TOLERANCE[next(theirs.parameters()).dtype]
    if not worst <= limit:
        raise WrongError(
            f"{name}: a token of ours is {worst:.2g} below the best by transformers' scores, and {limit:g} is allowed; "
            "nothing was timed"
        )
    return worst


def bandwidth(device: str) -> float:
    """Memory bandwidth in bytes per second: copying on a GPU, reading on a CPU, best of several."""
    cuda = torch.device(device).type == "cuda"
    size = (1 << 30) if cuda else (1 << 28)
    source = torch.zeros(size // 4, device=device)
    target = torch.empty_like(source) if cuda else source
    clock = timing.eager if cuda else timing.wall
    call: Timed = partial(target.copy_, source) if cuda else source.sum
    clock(call, 2)
    return (2 if cuda else 1) * size / min(clock(call, 3) / 3 for _ in range(5))


def bytes_read(model: GPT) -> int:
    """Bytes of weights that one step reads: all except the embeddings, of which it reads one row.

    >>> bytes_read(GPT(QUICK)) == 4 * (sum(p.numel() for p in GPT(QUICK).parameters()) - 64 * 64)
    True
    """
    return sum(p.nbytes for p in weights_in_use(model))


def _case(name: str, batch: int, ours: GPT, theirs: Any, setting: GenerateSetting, gb_s: float) -> dict[str, Any]:
    """One model at one batch size."""
    label = f"{name}, B={batch} · {setting}"
    generator = torch.Generator().manual_seed(setting.seed)
    ids = torch.randint(0, ours.config.vocab_size, (batch, setting.prompt), generator=generator).to(setting.device)
    contenders = calls(ours, theirs, ids, setting.new, setting.cuda)
    limit = batch * gb_s * 1e9 / bytes_read(ours)
    case: dict[str, Any] = {
        "model": name,
        "batch": batch,
        "label": label,
        "limit_tokens_s": limit,
        "bytes_a_step": bytes_read(ours),
        "below_best": None,
        "contenders": {},
        "notes": [],
    }
    written: dict[str, list[list[int]]] = {}
    peaks: dict[str, int | None] = {}
    for who, generate in list(contenders.items()):
        harness.stage(f"{label}: first text of {who}")
        try:
            written[who] = generate()
            peaks[who] = timing.peak_memory(generate, setting.device)
        except Exception as error:  # a contender that fails must not end the run
            if who == OURS:
                raise
            case["notes"].append(f"{who}: failed: {harness.reason(error)}")
            del contenders[who]
    if theirs is not None:
        case["below_best"] = check(name, theirs, ids, written[OURS])
    harness.stage(f"{label}: timing")
    times = timing.measure(contenders, setting)
    for who, ratio in timing.ratios(times, OURS).items():
        t, peak = times[who], peaks[who]
        speed = batch * setting.new / t.counts
        same = [a == b for x, y in zip(written[who], written[OURS], strict=True) for a, b in zip(x, y, strict=True)]
        case["contenders"][who] = {
            "tokens_s": speed,
            "of_limit": speed / limit,
            "to_ours": ratio,
            "best_s": t.best,
            "median_s": t.median,
            "rounds": t.rounds,
            "peak_mib": None if peak is None else peak / 2**20,
            "equal_tokens": sum(same) / len(same),
        }
        if t.is_noisy:
            case["notes"].append(f"noisy: {who}: {t.noise}")
    return case


def case_lines(case: dict[str, Any]) -> list[str]:
    """The table of one case, at most 80 columns wide, fastest first."""
    results = case["contenders"]
    names = sorted(results, key=lambda who: -results[who]["tokens_s"])
    columns = [
        names,
        same_digits([results[who]["tokens_s"] for who in names]),
        [f"{results[who]['to_ours']:.2f}" for who in names],
        [f"{results[who]['of_limit']:.0%}" for who in names],
        ["-" if (m := results[who]["peak_mib"]) is None else f"{m:,.0f}" for who in names],
        [f"{results[who]['equal_tokens']:.1%}" for who in names],
    ]
    head = ["who", "tokens/s", "time ÷ ours", "of limit", "MiB", "same"]
    lines = [f"  {case['label']}", "", *harness.table_lines(head, columns, marked=names.index(OURS))]
    limit = (
        f"limit: {case['limit_tokens_s']:,.0f} tokens/s, reading {case['bytes_a_step'] / 1e6:,.0f} MB of weights a step"
    )
    for note in [limit, *case["notes"]]:
        lines += harness.wrap(note)
    return lines


def main(argv: Sequence[str]) -> int:
    """Parse the command line and run the benchmark."""
    return harness.run_command("generate", argv, _add_options, _prepare)


def _add_options(parser: argparse.ArgumentParser) -> None:
    harness.timing_options(parser, rounds=10, seconds=20.0, quick="a very small model, 7 + 11 tokens")
    harness.model_option(parser)
    parser.add_argument("--batch", action="append", type=int, help="batch size; may be repeated [default: 1]")
    parser.add_argument("--prompt", type=int, help=f"tokens of the prompt [default: {PROMPT}]")
    parser.add_argument("--new", type=int, help=f"tokens to generate [default: {NEW}]")
    harness.dtype_option(parser)


def _prepare(options: argparse.Namespace) -> Callable[..., object]:
    """Check the options; the run that they describe."""
    device, cuda = harness.find_device(options.device)
    harness.check_positive(options, "prompt", "new", "batch")
    configs = harness.choose_models(options, QUICK)
    prompt = options.prompt or (7 if options.quick else PROMPT)
    new = options.new or (11 if options.quick else NEW)
    for name, config in configs.items():
        if prompt + new > config.context_length:
            raise ValueError(
                f"--prompt {prompt} and --new {new} do not fit {name}'s context of {config.context_length}"
            )
    setting = GenerateSetting(
        device, harness.find_dtype(options.dtype, cuda), **harness.limits(options, 3, 0.2), prompt=prompt, new=new
    )
    return partial(run, setting, configs, options.batch or [1], options.out)
