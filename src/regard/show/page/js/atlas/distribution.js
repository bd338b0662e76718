// How one statistic of a head is distributed: over all rows, by position in the text, and by class of token.

import { max, round } from "../data/math.js";
import { h, s } from "../draw/dom.js";
import { number } from "../words/names.js";

/** @import { Measure, Shape } from "./atlas-data.js" */

const [WIDTH, HEIGHT] = [300, 72];

/** @param {Measure} statistic @param {Shape} shape @returns {HTMLElement[]} */
export function drawShape(statistic, shape) {
  const { deciles } = shape;
  const [low, half, high] = [0, 4, 8].map((i) => number(deciles[i]));
  const said = `One row in ten is below ${low}, half below ${half}, nine in ten below ${high}`;
  const between = shape.texts === null ? "" : `, between texts by ${number(shape.texts)}`;
  return [
    h(
      "section.histogram",
      h("h3", `${statistic.label}, all rows`),
      histogram(statistic, shape),
      h("p.note", `${said}. Rows differ by ${number(shape.spread)}${between}.`),
    ),
    table("mean by position", shape.position),
    table("mean by class of token", shape.class),
  ];
}

/** @param {Measure} statistic @param {Shape} shape */
function histogram({ unit }, { bins, ends, deciles }) {
  const most = max(...bins);
  const wide = WIDTH / bins.length;
  const isWeight = unit === "weight";
  const [low, high] = ends;
  const place = isWeight
    ? (/** @type {number} */ value) => ((value - low) / (high - low)) * WIDTH
    : (/** @type {number} */ value) => (log(max(value, low) / low) / (log(high / low) || 1)) * WIDTH;
  // Bars are as high as the root of their share: a tail of one row in a hundred is seen.
  const bars = bins.map((share, i) => {
    const tall = Math.sqrt(share / most) * HEIGHT;
    return `M${(i * wide).toFixed(1)} ${HEIGHT}v${(-tall).toFixed(1)}h${max(0.5, wide - 0.5).toFixed(1)}V${HEIGHT}z`;
  });
  const lines = [0, 4, 8].map((i) =>
    s(i === 4 ? "path.median" : "path.decile", { d: `M${place(deciles[i]).toFixed(1)} 0V${HEIGHT}` }),
  );
  const label = `distribution from ${number(low)} to ${number(high)}`;
  return h(
    "div",
    s(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
      s("path.bars", { d: bars.join("") }),
      ...lines,
      s("path.axis", { d: `M0 ${HEIGHT - 0.5}H${WIDTH}` }),
    ),
    h("p.ends.num", h("span", number(low)), h("span", isWeight ? "" : "logarithmic"), h("span", number(high))),
  );
}

/** @param {number} value */
function log(value) {
  return Math.log(max(value, 1e-9));
}

/** Means as bars. @param {string} title @param {Record<string, number>} means */
function table(title, means) {
  const most = max(1e-9, ...Object.values(means));
  const rows = Object.entries(means).map(([name, mean]) => barRow(name, mean / most, number(mean)));
  return h("section", h("h3", title), rows.length ? h("ul.bar-rows", ...rows) : h("p.note", "The tokens are unknown."));
}

/**
 * A name, a bar and a number.
 * @param {string} name @param {number} share @param {string} value @param {string} [color]
 */
export function barRow(name, share, value, color = "") {
  const bar = h("span.bar-of", {
    style: { width: `${round(share * 1000) / 10}%`, ...(color ? { background: color } : {}) },
  });
  return h("li", h("span", name), h("span.bar-room", bar), h("span.num", value));
}
