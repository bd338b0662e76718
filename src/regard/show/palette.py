"""Colours of weights and of signed numbers: those of the page in its light theme, show/page/js/draw/color.js.

Weights have one hue, and lightness by weight^0.6, so that small weights differ visibly and 1 is darkest. Signed numbers
are blue above zero and ochre below. Between the colours named here, the way is straight in OKLab.
"""

from collections.abc import Mapping

import numpy as np

POWER = 0.6
WEIGHTS = {0.0: "#f0f3f7", 0.02: "#d0def2", 0.1: "#9abcef", 0.25: "#5e93e2", 0.5: "#2a63b5", 1.0: "#122745"}
SIGNED = {-1.0: "#5a3300", -0.5: "#a8690f", -0.1: "#e5cfa8", 0.0: "#f3f3f1", 0.1: "#bcd3f5"} | {
    at: WEIGHTS[at] for at in (0.5, 1.0)
}
# Björn Ottosson's matrices: linear sRGB to the cone responses, and their cube roots to OKLab.
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


def palette(anchors: Mapping[float, str], steps: int) -> np.ndarray:
    """(steps, 3) colours between 0 and 1, from the first anchor to the last, even in the power of the number."""
    at = np.array([np.sign(number) * abs(number) ** POWER for number in anchors])
    rgb = np.array([[int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)] for color in anchors.values()])
    lab = np.cbrt(amounts_of_light(rgb) @ _CONES.T) @ _LAB.T
    between = np.stack([np.interp(np.linspace(at[0], 1, steps), at, channel) for channel in lab.T])
    result = np.clip(np.linalg.solve(_CONES, np.linalg.solve(_LAB, between) ** 3).T, 0, 1)
    return np.asarray(np.where(result <= 0.0031308, 12.92 * result, 1.055 * result ** (1 / 2.4) - 0.055))


def amounts_of_light(rgb: np.ndarray) -> np.ndarray:
    """sRGB as amounts of light."""
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
