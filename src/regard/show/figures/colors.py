"""The colours of the page as scales of matplotlib."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.show.figures.canvas import matplotlib
from regard.show.palette import POWER, SIGNED, WEIGHTS, amounts_of_light, palette

STEPS = 256


def weight_scale() -> dict[str, Any]:
    """Colours and norm for weights between 0 and 1; a masked cell has no colour."""
    return {"cmap": _map("weights", WEIGHTS), "norm": matplotlib("colors").PowerNorm(POWER, vmin=0, vmax=1)}


def amount_scale(most: float) -> dict[str, Any]:
    """The same colours for other amounts, from 0 to `most` in even steps."""
    return {"cmap": _map("weights", WEIGHTS), "norm": matplotlib("colors").Normalize(0, most or 1)}


def signed_scale(most: float) -> dict[str, Any]:
    """Colours and norm for numbers between −most and most."""
    both = ((lambda x: np.sign(x) * np.abs(x) ** POWER), (lambda x: np.sign(x) * np.abs(x) ** (1 / POWER)))
    return {"cmap": _map("signed", SIGNED), "norm": matplotlib("colors").FuncNorm(both, -(most or 1), most or 1)}


def ink_on(color: Any) -> str:
    """Black or white, whichever is easier to read on this colour."""
    return "#000000" if float(amounts_of_light(np.asarray(color)[:3]) @ (0.2126, 0.7152, 0.0722)) > 0.179 else "#ffffff"


def tint(color: str, share: float) -> Any:
    """So much of this colour on white."""
    return 1 - share * (1 - np.array(matplotlib("colors").to_rgb(color)))


def _map(name: str, anchors: dict[float, str]) -> Any:
    colors = matplotlib("colors").ListedColormap(palette(anchors, STEPS), f"regard {name}")
    return colors.with_extremes(bad=(0, 0, 0, 0))
