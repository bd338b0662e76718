"""The cost of cutting: a GPT-2 with heads switched off, by regard.cut and by hooks of TransformerLens, in one run.

    python -m benchmarks cut --device cuda

All contenders have the same random weights. Their logits are compared first; if they differ, nothing is timed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks import harness, timing
from benchmarks.harness import Setting, WrongError, same_digits
from benchmarks.twins import QUICK, twin
from regard.gpt import GPT, GPTConfig
from regard.heads.change.cut import cut

BASE, OURS, EDGE, LENS = "transformers, uncut", "regard.cut, a head", "regard.cut, an edge", "TransformerLens, a head"
CLOSE = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}  # of the largest logit


def run(
    setting: Setting,
    config: GPTConfig,
    tokens: Sequence[int],
    out_dir: str | Path = "bench-out",
    command: str = "",
) -> dict[str, Any]:
    """Compare, then time every length, show the tables, and write cut.json into out_dir."""
    results = harness.start("cut", command, setting.device, setting.as_json()) | {"cases": []}
    torch.manual_seed(setting.seed)
    model = twin(GPT(config).to(setting.device, setting.dtype)).eval()
    lens, note = lens_of(model)
    for T in tokens:
        ids = torch.randint(0, config.vocab_size, (1, T), device=setting.device)
        calls = contenders(model, lens, ids, config)
        away = check(calls, setting.dtype)
        times = timing.measure(calls, setting, at_least=0.05)
        relative = timing.ratios(times, BASE)
        case = {name: t.as_json() | {"to_uncut": relative[name]} for name, t in times.items()}
        results["cases"].append({"tokens": T, "away": away, "times": case})
        harness.say("\n" + "\n".join(case_lines(T, away, case, setting, note)))
        harness.write_json(Path(out_dir) / "cut.json", results)
    return results


def contenders(model: Any, lens: Any, ids: Tensor, config: GPTConfig) -> dict[str, Callable[[], Tensor]]:
    """One forward, uncut and cut: the last head of the middle layer, or one edge in every layer."""
    layer, head, last = config.num_layers // 2, config.num_heads - 1, ids.shape[1] - 1

    def uncut() -> Tensor:
        return _logits(model, ids)

    def by_cut(**what: Any) -> Tensor:
        with cut(model, **what):
            return _logits(model, ids)

    def without(z: Tensor, hook: Any) -> Tensor:
        z[:, :, head] = 0
        return z

    calls: dict[str, Callable[[], Tensor]]
    calls = {BASE: uncut, OURS: partial(by_cut, heads=(layer, head)), EDGE: partial(by_cut, edges=[(last, 0)])}
    if lens is not None:
        hooks = [(f"blocks.{layer}.attn.hook_z", without)]
        calls[LENS] = torch.no_grad()(lambda: lens.run_with_hooks(ids, fwd_hooks=hooks))
    return calls


def check(calls: Mapping[str, Callable[[], Tensor]], dtype: torch.dtype) -> float | None:
    """How far our logits are from TransformerLens's, relative to the largest; None without it."""
    uncut, ours = calls[BASE](), calls[OURS]()
    if torch.equal(uncut, ours):
        raise WrongError("a head was cut, and the logits are the same as without the cut")
    if LENS not in calls:
        return None
    away = float((calls[LENS]() - ours).abs().max() / ours.abs().max())
    if not away <= CLOSE[dtype]:
        raise WrongError(f"regard.cut and TransformerLens differ by {away:.1e} of the largest logit; nothing is timed")
    return away


def case_lines(
    tokens: int, away: float | None, case: Mapping[str, Mapping[str, Any]], setting: Setting, note: str
) -> list[str]:
    """The table of one length."""
    milliseconds = same_digits([one["ms"] for one in case.values()])
    columns = [list(case), milliseconds, [f"{one['to_uncut']:.2f}" for one in case.values()]]
    lines = [f"  one forward over {tokens} tokens, {setting.label}", ""]
    lines += harness.table_lines(["", "ms", "÷ uncut"], columns, marked=list(case).index(OURS))
    agrees = note if away is None else f"regard.cut and TransformerLens agree to {away:.1e} of the largest logit."
    return [*lines, "", *harness.wrap(agrees)]


@torch.no_grad()
def _logits(model: Any, ids: Tensor) -> Tensor:
    logits: Tensor = model(ids, use_cache=False).logits
    return logits


def lens_of(model: Any) -> tuple[Any, str]:
    """TransformerLens's model with the same weights, or why there is none."""
    try:
        transformer_lens = import_module("transformer_lens")
        conversions = import_module("transformer_lens.pretrained.weight_conversions")
        c, weight = model.config, model.transformer.wte.weight
        config = transformer_lens.HookedTransformerConfig(
            n_layers=c.n_layer,
            d_model=c.n_embd,
            n_ctx=c.n_positions,
            d_head=c.n_embd // c.n_head,
            n_heads=c.n_head,
            d_vocab=c.vocab_size,
            act_fn="gelu_new",
            normalization_type="LN",
            device=str(weight.device),
            dtype=weight.dtype,
        )
        lens = transformer_lens.HookedTransformer(config).eval()
        lens.load_state_dict(conversions.convert_gpt2_weights(model, config), strict=False)
    except (ImportError, AttributeError) as error:
        return (
            None,
            f"TransformerLens 2 is not here ({harness.reason(error)}): pip install 'transformer-lens<3' to compare.",
        )
    return lens.to(weight.device), ""


def main(argv: Sequence[str]) -> int:
    """Parse the command line and run the benchmark."""
    return harness.run_command("cut", argv, _add_options, _prepare)


def _add_options(parser: argparse.ArgumentParser) -> None:
    harness.timing_options(parser, rounds=20, seconds=5.0, quick="a very small model")
    parser.add_argument("--tokens", action="append", type=int, help="length of the text [default: 128 and 1024]")
    harness.dtype_option(parser)


def _prepare(options: argparse.Namespace) -> Callable[..., object]:
    """Check the options; the run that they describe."""
    device, cuda = harness.find_device(options.device)
    harness.check_positive(options, "tokens")
    config = QUICK if options.quick else GPTConfig.preset("gpt2-small")
    for T in options.tokens or ():
        if not 2 <= T <= config.context_length:
            raise ValueError(f"--tokens {T} must be from 2 to {config.context_length}, the context of the model")
    tokens = options.tokens or ([64] if options.quick else [128, 1024])
    setting = Setting(device, harness.find_dtype(options.dtype, cuda), **harness.limits(options, 3, 0.1))
    return partial(run, setting, config, tokens, options.out)
