"""Writing text: ours against transformers, with its default cache and with its static one, which it compiles.

    python -m regard.bench.generate --quick
    python -m regard.bench.generate --device cuda --model gpt2-small --batch 1 --batch 32

All have the same random weights and write exactly as many tokens, the likeliest each time. First it is checked that
every token that ours writes is the best by transformers' own scores too; nothing is timed if it is not.
"""

from __future__ import annotations

import dataclasses
import gc
import shlex
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.bench import options, timing
from regard.bench.options import DTYPES
from regard.bench.report import Progress, column, machine, machine_lines, reason, say, table, wrap, write_json
from regard.bench.tables import NOISY
from regard.bench.timing import Call
from regard.bench.twins import QUICK, WrongError, twin, weights_in_use
from regard.gpt import GPT, GPTConfig

OURS, DEFAULT, STATIC = "regard", "transformers", "transformers, static cache"
# How far below the best, by transformers' scores, a token of ours may be: as a share of the largest score.
TOLERANCE = {torch.float32: 1e-4, torch.float16: 0.01, torch.bfloat16: 0.05}


@dataclasses.dataclass(frozen=True)
class Setting(options.Setting):
    """How many tokens are read, and how many are written, besides what holds for every benchmark."""

    prompt: int = 64
    new: int = 128

    def __str__(self) -> str:
        return f"prompt {self.prompt} + {self.new} new · {self.words}"


def run(
    setting: Setting,
    models: Sequence[str] = ("gpt2-small",),
    batches: Sequence[int] = (1,),
    out_dir: str | Path = "bench-out",
    *,
    configs: dict[str, GPTConfig] | None = None,
    command: str = "",
    show: Callable[[str], None] = say,
) -> dict[str, Any]:
    """Check, then measure every model at every batch size, show the tables, and write generate.json into out_dir.

    configs: sizes that are no presets, by name. The file is written after every case.
    """
    where = Path(out_dir) / "generate.json"
    if setting.cuda:
        torch.cuda.set_device(torch.device(setting.device).index or 0)
    results: dict[str, Any] = {
        "benchmark": "generate", "machine": machine(command), "settings": setting.named(),
        "bandwidth_gb_s": bandwidth(setting.device) / 1e9, "cases": [],
    }  # fmt: skip
    show("\n".join(machine_lines(results["machine"])))
    show(f"\n  memory: {results['bandwidth_gb_s']:,.0f} GB/s measured")
    for name in models:
        config = (configs or {}).get(name) or GPTConfig.preset(name)
        with Progress() as progress:
            progress.stage(f"{name}: building")
            ours = build(config.with_(end=None), setting)  # a text that ends early would be a different amount of work
            theirs, excuse = None, "transformers is not installed"
            try:
                theirs = twin(ours)
            except ImportError as error:
                excuse = f"{excuse} ({error})"
        for batch in batches:
            with Progress() as progress:
                case = _case(name, batch, ours, theirs, setting, results["bandwidth_gb_s"], progress)
            case["notes"] += [] if theirs is not None else [excuse]
            results["cases"].append(case)
            write_json(where, results)
            show("\n" + "\n".join(case_lines(case)))
        del ours, theirs  # before the next one is built
        gc.collect()
        if setting.cuda:
            torch._dynamo.reset()
            torch.cuda.empty_cache()
    show(f"\n  {where}")
    return results


def build(config: GPTConfig, setting: Setting) -> GPT:
    """Our model with random weights, made where it will be used."""
    torch.manual_seed(setting.seed)
    default = torch.get_default_dtype()
    torch.set_default_dtype(setting.dtype)
    try:
        with torch.device(setting.device):
            return GPT(config).eval()
    finally:
        torch.set_default_dtype(default)


def calls(ours: GPT, theirs: Any, ids: Tensor, new: int, cuda: bool) -> dict[str, Callable[[], list[list[int]]]]:
    """Everybody's way to go on from the same prompts; the tokens that were written, row by row."""
    found: dict[str, Callable[[], list[list[int]]]] = {OURS: partial(ours.generate, ids, new, temperature=0)}
    if theirs is not None:
        told = {
            "attention_mask": torch.ones_like(ids), "max_new_tokens": new, "min_new_tokens": new, "do_sample": False,
            "pad_token_id": 0,
        }  # fmt: skip

        def go(**more: Any) -> list[list[int]]:
            rows: list[list[int]] = theirs.generate(ids, **told, **more)[:, ids.shape[1] :].tolist()
            return rows

        found[DEFAULT] = go
        if cuda:  # only there does transformers compile it
            found[STATIC] = partial(go, cache_implementation="static")
    return found


@torch.no_grad()
def check(name: str, theirs: Any, ids: Tensor, written: list[list[int]]) -> float:
    """How far below the best our tokens are, at worst, by transformers' scores; WrongError where it is too far.

    Two tokens can be so nearly tied that rounding decides; then either is right, and the texts part from there on.
    """
    new = torch.tensor(written, device=ids.device)
    worst = 0.0
    for row, tokens in zip(ids, new, strict=True):  # row by row: the scores of a whole batch may not fit
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
    """Bytes a second that the memory gives: copying on a GPU, reading on a CPU, best of several."""
    cuda = torch.device(device).type == "cuda"
    size = (1 << 30) if cuda else (1 << 28)
    source = torch.zeros(size // 4, device=device)
    target = torch.empty_like(source) if cuda else source
    clock = timing.eager if cuda else timing.wall
    call: Call = partial(target.copy_, source) if cuda else source.sum
    clock(call, 2)
    return (2 if cuda else 1) * size / min(clock(call, 3) / 3 for _ in range(5))


def bytes_read(model: GPT) -> int:
    """Bytes of weights that one step must read: all but the rows of embeddings that it does not look up.

    >>> bytes_read(GPT(QUICK)) == 4 * (sum(p.numel() for p in GPT(QUICK).parameters()) - 64 * 64)
    True
    """
    return sum(p.nbytes for p in weights_in_use(model))


def _case(
    name: str, batch: int, ours: GPT, theirs: Any, setting: Setting, gb_s: float, progress: Progress
) -> dict[str, Any]:
    """One model at one batch size."""
    label = f"{name}, B={batch} · {setting}"
    generator = torch.Generator().manual_seed(setting.seed)
    ids = torch.randint(0, ours.config.vocab_size, (batch, setting.prompt), generator=generator).to(setting.device)
    contenders = calls(ours, theirs, ids, setting.new, setting.cuda)
    limit = batch * gb_s * 1e9 / bytes_read(ours)
    case: dict[str, Any] = {
        "model": name, "batch": batch, "label": label, "limit_tokens_s": limit, "bytes_a_step": bytes_read(ours),
        "below_best": None, "contenders": {}, "notes": [],
    }  # fmt: skip
    progress.stage(f"{label}: checking")
    written: dict[str, list[list[int]]] = {}
    peaks: dict[str, int | None] = {}
    for who, go in list(contenders.items()):
        progress.stage(f"{label}: first text of {who}")
        try:
            written[who] = go()
            peaks[who] = timing.peak_memory(go, setting.device)
        except Exception as error:  # whatever ails a peer must not end the run
            if who == OURS:
                raise
            case["notes"].append(f"{who}: failed: {reason(error)}")
            del contenders[who]
    if theirs is not None:
        case["below_best"] = check(name, theirs, ids, written[OURS])
    progress.stage(f"{label}: timing")
    times = timing.interleave(
        contenders, timing.eager if setting.cuda else timing.wall, rounds=setting.rounds, seconds=setting.seconds,
        at_least=0.0, seed=setting.seed, tick=progress.tick,
    )  # fmt: skip
    times = {who: dataclasses.replace(t, by_median=setting.cuda) for who, t in times.items()}
    for who, ratio in timing.ratios(times, OURS).items():
        t, peak = times[who], peaks[who]
        speed = batch * setting.new / t.counts
        same = [a == b for x, y in zip(written[who], written[OURS], strict=True) for a, b in zip(x, y, strict=True)]
        case["contenders"][who] = {
            "tokens_s": speed, "of_limit": speed / limit, "to_ours": ratio.to_ours, "best_s": t.best,
            "median_s": t.median, "rounds": t.rounds, "peak_mib": None if peak is None else peak / 2**20,
            "equal_tokens": sum(same) / len(same),
        }  # fmt: skip
        if t.median >= NOISY * t.best:
            case["notes"].append(f"noisy: {who}: the median is {t.median / t.best:.1f} × the best")
    return case


def case_lines(case: dict[str, Any]) -> list[str]:
    """The table of one case, at most 80 columns wide, fastest first."""
    found = case["contenders"]
    names = sorted(found, key=lambda who: -found[who]["tokens_s"])
    columns = [
        names,
        column([found[who]["tokens_s"] for who in names]),
        [f"{found[who]['to_ours']:.2f}" for who in names],
        [f"{found[who]['of_limit']:.0%}" for who in names],
        ["-" if (m := found[who]["peak_mib"]) is None else f"{m:,.0f}" for who in names],
        [f"{found[who]['equal_tokens']:.1%}" for who in names],
    ]
    head = ["who", "tokens/s", "time ÷ ours", "of limit", "MiB", "same"]
    lines = [f"  {case['label']}", ""]
    lines += table(head, list(zip(*columns, strict=True)), marked=names.index(OURS))
    limit = (
        f"limit: {case['limit_tokens_s']:,.0f} tokens/s, reading {case['bytes_a_step'] / 1e6:,.0f} MB of weights a step"
    )
    for note in [limit, *case["notes"]]:
        lines += wrap(note)
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    """Read the command line and run."""
    argv = sys.argv[1:] if argv is None else list(argv)
    parser = options.parser(
        "generate", "Time writing text, ours against transformers.", rounds=10, seconds=20.0,
        quick="a very small model, a few seconds",
    )  # fmt: skip
    parser.add_argument("--model", action="append", help="a preset; may be repeated (default: gpt2-small)")
    parser.add_argument("--batch", action="append", type=int, help="may be repeated (default: 1)")
    parser.add_argument("--prompt", type=int, default=64, help="tokens to read (default 64)")
    parser.add_argument("--new", type=int, default=128, help="tokens to write (default 128)")
    parser.add_argument("--dtype", choices=sorted(DTYPES), help="default: bf16 on a GPU, fp32 on a CPU")
    told = parser.parse_args(argv)
    with options.refusing(parser):
        cuda = options.on_cuda(told.device)
        options.check_above_0(told, "prompt", "new", "batch")
        names = told.model or ["gpt2-small"]
        for name in names:
            room = GPTConfig.preset(name).context_length
            if told.prompt + told.new > room:
                raise ValueError(f"--prompt {told.prompt} and --new {told.new} do not fit {name}'s context of {room}")
    if told.threads:
        torch.set_num_threads(told.threads)
    dtype = DTYPES[told.dtype or ("bf16" if cuda else "fp32")]
    sizes = {"prompt": 7, "new": 11} if told.quick else {"prompt": told.prompt, "new": told.new}
    setting = Setting(told.device, dtype, **options.patience(told, 3, 0.2), **sizes)
    try:
        run(
            setting, ["quick"] if told.quick else names, told.batch or [1], told.out, configs={"quick": QUICK},
            command=shlex.join(["python", "-m", "regard.bench.generate", *argv]),
        )  # fmt: skip
    except WrongError as error:
        parser.exit(1, f"{error}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
