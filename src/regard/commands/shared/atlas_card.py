"""One head of an atlas as text, and all of them ready for JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.heads.atlas.result import Atlas

SHOWN = 4  # examples of each kind


def card(result: Atlas, layer: int, head: int) -> str:
    """A head with its jobs, its quantiles and examples."""
    one = result[layer, head]
    shares = [f"{one.quantile('largest', share / 10):.2f}" for share in range(1, 10)]
    lines = [repr(one)]
    if one.atlas.layers[layer].probed is not None:
        lines += [f"  probe: {', '.join(f'{name} {score:.2f}' for name, score in one.probe.items())}"]
    if one.atlas.layers[layer].costs is not None:
        lines += [f"  without it, the loss per token grows by {one.effect[0]:.3f} ± {one.effect[1]:.3f}"]
    lines += [f"  largest weight of a row, deciles: {' '.join(shares)}"]
    for title, which in (("strongest", "strongest"), ("any row", "uniform"), ("weakest tenth", 0)):
        examples = one.examples(which)[:SHOWN]
        lines += [f"  {title}:" * bool(examples), *(f"    {each.strength:.2f}  {each}" for each in examples)]
    return "\n".join(filter(None, lines))


def as_plain(result: Atlas) -> dict[str, Any]:
    """All means and shares, ready for JSON."""
    heads = []
    for one in result.heads():
        means = {name: None if mean != mean else mean for name, mean in one.summary.items()}
        plain = {"head": f"{one.layer}.{one.head}", "role": one.role.name, "jobs": one.jobs, "texts": one.text_jobs}
        heads.append(plain | {"means": means})
    return {"model": result.model, "texts": result.texts, "tokens": result.tokens, "heads": heads}
