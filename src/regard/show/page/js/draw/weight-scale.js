// The scale of weights, with its ticks.

import { css, weightColor } from "./color.js";
import { h } from "./dom.js";

const MARKS = [0, 0.02, 0.1, 0.25, 0.5, 1];

/**
 * The colours from 0 to 1, and the numbers below them.
 * @param {import("./color.js").Theme} theme @returns {HTMLElement[]}
 */
export function weightScale(theme) {
  const stops = Array.from({ length: 21 }, (_, i) => css(weightColor((i / 20) ** (1 / 0.6), theme)));
  const label = (/** @type {number} */ mark) =>
    h("span", { style: { left: `${mark ** 0.6 * 100}%` } }, String(mark).replace(/^0\./, "."));
  return [
    h("div.bar", { style: { background: `linear-gradient(to right, ${stops.join(",")})` } }),
    h("div.ticks.num", ...MARKS.map(label)),
  ];
}
