"""Colours: those of the page, show/page/js/color.js and page.css, as scales of matplotlib.

Weights have one hue, and lightness by weight^0.6, so that small weights differ visibly and 1 is darkest. Signed numbers
are blue above zero and ochre below. Between the colours named here, the way is straight in OKLab.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from regard.show.figures.canvas import matplotlib

POWER = 0.6
STEPS = 256
WEIGHTS = {0.0: "#f0f3f7", 0.02: "#d0def2", 0.1: "#9abcef", 0.25: "#5e93e2", 0.5: "#2a63b5", 1.0: "#122745"}
SIGNED = {
    -1.0: "#5a3300",
    -0.5: "#a8690f",
    -0.1: "#e5cfa8",
    0.0: "#f3f3f1",
    0.1: "#bcd3f5",
    0.5: "#2a63b5",
    1.0: "#122745",
}
ROLES = {
    "induction": "#b84a00",
    "duplicate": "#8a4b2a",
    "previous token": "#0062a3",
    "self": "#007a58",
    "first token": "#9c3f80",
    "position": "#7d6400",
    "local": "#20789f",
    "broad": "#666b73",
    "mixed": "#767b84",
}

# sRGB to the three cones and on to OKLab (Björn Ottosson's matrices).
_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)


def weight_scale() -> dict[str, Any]:
    """Colours and norm for weights between 0 and 1; a masked cell has no colour."""
    return {"cmap": _map("weights", WEIGHTS, 0), "norm": matplotlib("colors").PowerNorm(POWER, vmin=0, vmax=1)}


def amount_scale(most: float) -> dict[str, Any]:
    """The same colours for other amounts, from 0 to `most` in even steps."""
    return {"cmap": _map("weights", WEIGHTS, 0), "norm": matplotlib("colors").Normalize(0, most or 1)}


def signed_scale(most: float) -> dict[str, Any]:
    """Colours and norm for numbers between −most and most."""
    both = ((lambda x: np.sign(x) * np.abs(x) ** POWER), (lambda x: np.sign(x) * np.abs(x) ** (1 / POWER)))
    return {"cmap": _map("signed", SIGNED, -1), "norm": matplotlib("colors").FuncNorm(both, -(most or 1), most or 1)}


def ink_on(color: Any) -> str:
    """Black or white, whichever is easier to read on this colour."""
    return "#000000" if float(_linear(np.asarray(color)[:3]) @ (0.2126, 0.7152, 0.0722)) > 0.179 else "#ffffff"


def tint(color: str, share: float) -> Any:
    """So much of this colour on white."""
    return 1 - share * (1 - np.array(matplotlib("colors").to_rgb(color)))


def _map(name: str, anchors: Mapping[float, str], low: int) -> Any:
    """A colour map from low to 1, even in the power of the number."""
    colors = matplotlib("colors")
    at = np.array([np.sign(number) * abs(number) ** POWER for number in anchors])
    lab = np.array([_to_lab(np.array(colors.to_rgb(color))) for color in anchors.values()])
    steps = np.linspace(low, 1, STEPS)
    rgb = _to_rgb(np.stack([np.interp(steps, at, lab[:, channel]) for channel in range(3)], 1))
    return colors.ListedColormap(rgb, f"regard {name}").with_extremes(bad=(0, 0, 0, 0))


def _to_lab(rgb: Any) -> Any:
    return _LAB @ np.cbrt(_CONES @ _linear(rgb))


def _to_rgb(lab: Any) -> Any:
    linear = np.clip(np.linalg.solve(_CONES, np.linalg.solve(_LAB, lab.T) ** 3).T, 0, 1)
    return np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)


def _linear(rgb: Any) -> Any:
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
