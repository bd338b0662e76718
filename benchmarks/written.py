"""What heads write, against TransformerLens: the numbers, in one model with the same random weights, and the time.

    python -m benchmarks written

Compared are what each head writes, its length, its direct effect on a logit, W_V · W_O and W_Q · W_Kᵀ, the logits with
a head patched at two positions, and the derivative of a metric by each head. If they differ, nothing is timed.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks import cut as cutting
from benchmarks import harness, timing
from benchmarks.harness import Setting, WrongError, same_digits
from benchmarks.twins import QUICK, twin
from regard.gpt import GPT, GPTConfig
from regard.heads.change.cut import cut
from regard.heads.change.effect import effect
from regard.heads.watch import watch

WATCHED, LENS = "regard, what heads write", "TransformerLens, the same"
CUTS, GRADIENT = "regard.effect, every cut", 'regard.effect, by="gradient"'
CLOSE = 1e-5  # of the largest number
TOKEN, PLACES = 3, [2, 5]


def run(
    setting: Setting, config: GPTConfig, tokens: Sequence[int], out_dir: str | Path = "bench-out", command: str = ""
) -> dict[str, Any]:
    """Compare, then time every length, show the tables, and write written.json into out_dir."""
    results = harness.start("written", command, setting.device, setting.as_json()) | {"cases": []}
    torch.manual_seed(setting.seed)
    ours = GPT(config)
    with torch.no_grad():
        for parameter in ours.parameters():  # norms and biases count as well
            parameter.add_(0.02 * torch.randn_like(parameter))
    model = twin(ours.to(setting.device)).eval()
    lens, note = cutting.lens_of(model)
    for T in tokens:
        ids = torch.randint(0, config.vocab_size, (1, T), device=setting.device)
        away = {} if lens is None else compare(model, lens, ids, config)
        times = timing.measure(contenders(model, lens, ids), setting, at_least=0.05)
        case = {name: one.as_json() for name, one in times.items()}
        results["cases"].append({"tokens": T, "away": away, "times": case})
        harness.say("\n" + "\n".join(case_lines(T, away, case, setting, note)))
        harness.write_json(Path(out_dir) / "written.json", results)
    return results


def contenders(model: Any, lens: Any, ids: Tensor) -> dict[str, Callable[[], Any]]:
    """One text: what all heads write, and what the absence of each costs."""

    def by_watch() -> list[Tensor]:
        with torch.no_grad(), watch(model, values=True, collect=("entropy",), keep=False) as seen:
            model(ids, use_cache=False)
        return [layer.written() for layer in seen]

    calls: dict[str, Callable[[], Any]] = {WATCHED: by_watch}
    if lens is not None:
        calls[LENS] = partial(_lens_results, lens, ids)
    calls[CUTS] = partial(effect, model, ids)
    calls[GRADIENT] = partial(effect, model, ids, by="gradient")
    return calls


def compare(model: Any, lens: Any, ids: Tensor, config: GPTConfig) -> dict[str, float]:
    """How far our numbers are from those of TransformerLens, relative to the largest; WrongError where they differ."""
    layer, head = config.num_layers // 2, config.num_heads - 1
    with torch.no_grad(), watch(model, values=True) as seen:
        model(ids, use_cache=False)
    with torch.no_grad(), watch(model, values=True) as other:
        model(ids.flip(1), use_cache=False)
    with torch.no_grad(), cut(model, (layer, head), to=other, positions=PLACES):
        patched = model(ids, use_cache=False).logits
    cache = _lens_results(lens, ids)
    flat, sizes = cache.stack_head_results(layer=-1), (config.num_layers, config.num_heads)  # (L · H, B, T, E)
    direct = (
        (cache.apply_ln_to_stack(flat, layer=-1) @ _unembedding(lens)[:, TOKEN]).unflatten(0, sizes).transpose(1, 2)
    )
    stack = flat.unflatten(0, sizes).transpose(1, 2)  # (L, B, H, T, E)
    written = torch.stack([one.written() for one in seen])
    pairs = {
        "written": (written, stack),
        "written_norm": (torch.stack([one.written_norm for one in seen]), stack.norm(dim=-1)),
        "logits": (torch.stack([one.logits(TOKEN) for one in seen]), direct),
        "ov": (torch.stack([one.ov.matrix() for one in seen[layer]]), lens.OV.AB[layer]),
        "qk": (torch.stack([one.qk.matrix() for one in seen[layer]]), lens.QK.AB[layer]),
        "a head patched": (patched, _lens_patched(lens, ids, layer, head)),
        "attribution": (_our_attribution(model, ids), _lens_attribution(lens, ids)),
    }
    away = {name: float((one - two).detach().abs().max() / two.abs().max()) for name, (one, two) in pairs.items()}
    if wrong := [f"{name} by {far:.1e}" for name, far in away.items() if not far <= CLOSE]:
        raise WrongError(f"regard and TransformerLens differ: {', '.join(wrong)} of the largest; nothing is timed")
    return away


def _our_attribution(model: Any, ids: Tensor) -> Tensor:
    """(L · H): by how much the loss grows without each head, to first order."""
    return torch.tensor([one.loss for one in effect(model, ids, by="gradient")], dtype=torch.float64)


def _lens_attribution(lens: Any, ids: Tensor) -> Tensor:
    """The same with hooks: −gradient · z, summed over tokens and width."""
    found: dict[str, Tensor] = {}

    def keep(z: Tensor, hook: Any) -> Tensor:
        z.retain_grad()
        found[hook.name] = z
        return z

    with torch.enable_grad():
        loss = lens.run_with_hooks(ids, return_type="loss", fwd_hooks=[(lambda name: name.endswith("hook_z"), keep)])
        loss.backward()
    sums = [-(z.grad * z).sum((0, 1, 3)) for z in found.values() if z.grad is not None]
    lens.zero_grad()
    return torch.cat(sums).detach().double().cpu()


def _lens_patched(lens: Any, ids: Tensor, layer: int, head: int) -> Tensor:
    name = f"blocks.{layer}.attn.hook_z"
    with torch.no_grad():
        _, other = lens.run_with_cache(ids.flip(1))

        def patch(z: Tensor, hook: Any) -> Tensor:
            z[:, PLACES, head] = other[name][:, PLACES, head]
            return z

        logits: Tensor = lens.run_with_hooks(ids, fwd_hooks=[(name, patch)])
    return logits


@torch.no_grad()
def _lens_results(lens: Any, ids: Tensor) -> Any:
    _, cache = lens.run_with_cache(ids)
    cache.compute_head_results()
    return cache


def _unembedding(lens: Any) -> Tensor:
    """(E, V): its unembedding with the gain of the final norm in it, which apply_ln_to_stack leaves out."""
    folded = type(lens)(copy.deepcopy(lens.cfg)).eval()
    folded.load_state_dict(lens.state_dict(), strict=False)
    folded.process_weights_(fold_ln=True, center_writing_weights=False, center_unembed=False)
    weight: Tensor = folded.W_U
    return weight


def case_lines(tokens: int, away: dict[str, float], case: dict[str, Any], setting: Setting, note: str) -> list[str]:
    """The table of one length."""
    columns = [list(case), same_digits([one["ms"] for one in case.values()])]
    lines = [f"  one text of {tokens} tokens, {setting.label}", ""]
    lines += harness.table_lines(["", "ms"], columns, marked=0)
    agree = ", ".join(f"{name} {far:.1e}" for name, far in away.items())
    said = note if not away else f"Away from TransformerLens, of the largest number: {agree}."
    return [*lines, "", *harness.wrap(said)]


def main(argv: Sequence[str]) -> int:
    """Parse the command line and run the benchmark."""
    return harness.run_command("written", argv, _add_options, _prepare)


def _add_options(parser: argparse.ArgumentParser) -> None:
    harness.timing_options(parser, rounds=5, seconds=5.0, quick="a very small model")
    parser.add_argument("--tokens", action="append", type=int, help="length of the text [default: 128]")


def _prepare(options: argparse.Namespace) -> Callable[..., object]:
    """Check the options; the run that they describe."""
    device, _ = harness.find_device(options.device)
    harness.check_positive(options, "tokens")
    config = QUICK if options.quick else GPTConfig.preset("gpt2-small")
    for T in options.tokens or ():
        if not 8 <= T <= config.context_length:
            raise ValueError(f"--tokens {T} must be from 8 to {config.context_length}, the context of the model")
    tokens = options.tokens or ([64] if options.quick else [128])
    setting = Setting(device, torch.float32, **harness.limits(options, 3, 0.1))
    return partial(run, setting, config, tokens, options.out)
