// Dumbbells: two values on one scale, ○ the first and ● the second.

import { abs, max, min } from "../data/math.js";
import { number } from "../words/names.js";
import { figure } from "../words/questions.js";
import { attributes, fill, h, s } from "./dom.js";

/** @import { Pair } from "../data/head-changes.js" */

const BAR = 132; // pixels from 0 to 1 in the list
const EDGE = 6; // beside a dumbbell, for its ends

/** ○ or ●: the first or the second. @param {number} i */
export function dot(i) {
  return s(
    "svg",
    {
      class: i ? "dot after" : "dot before",
      viewBox: "0 0 10 10",
      width: 10,
      height: 10,
      role: "img",
      "aria-label": i ? "second" : "first",
    },
    s("circle", { cx: 5, cy: 5, r: 4 }),
  );
}

/**
 * A statistic's name, dumbbell and values. Means that can exceed 1 are shares of their largest value, which is named.
 * @param {Pair} pair @param {number} [height]
 */
export function pairCells({ label, before, after, shares, most }, height = 28) {
  const limit =
    most[0] === 1 && most[1] === 1 ? "" : ` of ${[...new Set(most.map((value) => Number(number(value))))].join(", ")}`;
  return [
    h("span.statistic", label, h("span.quiet", limit)),
    dumbbell(BAR, shares[0], shares[1], [0, 0.5, 1], height),
    h("span.num.values", `${number(before)} → ${number(after)}`),
  ];
}

/**
 * The weight of one word on another, before and after.
 * @param {string} name @param {{before: number, after: number}} weight
 */
export function weightCells(name, { before, after }) {
  return [
    h("span.statistic", name),
    dumbbell(BAR, before, after, [0, 0.5, 1], 40),
    h("span.num.values", `${number(before)} → ${number(after)}`),
  ];
}

/**
 * ○──● on a scale from 0 to 1.
 * @param {number} width
 * @param {number} before
 * @param {number} after
 * @param {number[]} lines at which a thin line crosses
 * @param {number} [height]
 */
export function dumbbell(width, before, after, lines, height = 28) {
  const svg = s(
    "svg.dumbbell",
    { width: width + 2 * EDGE, height, "aria-hidden": true },
    ...lines.map((at) => s("path.line", { d: `M${EDGE + at * width} 0v${height}` })),
    s("path"),
    s("circle.before", { cy: height / 2, r: 4 }),
    s("circle.after", { cy: height / 2, r: 4 }),
  );
  place(svg, width, before, after, height);
  return svg;
}

/**
 * Move the ends of a dumbbell.
 * @param {SVGElement} svg @param {number} width @param {number} before @param {number} after @param {number} [height]
 */
function place(svg, width, before, after, height = 28) {
  const x = (/** @type {number} */ value) => EDGE + min(1, max(0, value)) * width;
  const [line, first, second] = [...svg.children].slice(-3);
  attributes(line, { class: after >= before ? "gained" : "lost", d: `M${x(before)} ${height / 2}H${x(after)}` });
  attributes(first, { cx: x(before) });
  attributes(second, { cx: x(after) });
}

/** A dumbbell for each key, below one scale. As many rows as there can be: another word moves nothing below them. */
export class KeyRows {
  constructor() {
    this.drawn = "";
    this.el = h("div");
    /** @type {{el: HTMLElement, name: HTMLElement, svg: SVGElement, values: HTMLElement}[]} */
    this.rows = [];
  }

  /**
   * @param {{index: number, name: string, before: number, after: number}[]} keys
   * @param {number} width
   * @param {number} count of rows
   */
  draw(keys, width, count) {
    if (this.drawn !== `${width} ${count}`) {
      this.drawn = `${width} ${count}`;
      const lines = [0, 0.25, 0.5, 0.75, 1];
      this.rows = Array.from({ length: count }, () => {
        const [name, svg, values] = [h("span.word"), dumbbell(width, 0, 0, lines), h("span.num")];
        return { el: h("div.key-row", name, svg, values), name, svg, values };
      });
      const scale = h("div.key-row", h("span"), dumbbellTicks(width, lines), h("span"));
      fill(this.el, scale, ...this.rows.map(({ el }) => el));
    }
    this.rows.forEach(({ el, name, svg, values }, i) => {
      const one = keys[i];
      attributes(el, { "data-key": one ? one.index : null, style: { visibility: one ? "visible" : "hidden" } });
      if (!one) return;
      attributes(name, { text: one.name });
      attributes(values, { text: `${number(one.before)} → ${number(one.after)}` });
      place(svg, width, one.before, one.after);
    });
  }
}

/** The numbers above dumbbells. @param {number} width @param {number[]} at */
export function dumbbellTicks(width, at) {
  const text = (/** @type {number} */ value) =>
    s("text.n", { x: EDGE + value * width, y: 12, "text-anchor": "middle" }, String(value).replace(/^0\./, "."));
  return s("svg.dumbbell-ticks", { width: width + 2 * EDGE, height: 16, "aria-hidden": true }, ...at.map(text));
}

/** The scale above dumbbells. @param {...string} titles of the columns before it; none of statistics */
export function scaleHeading(...titles) {
  const columns = titles.map((title) => h("span", title));
  const kind = titles.length ? "div.change.heading" : "div.change.plain.heading";
  return h(kind, ...columns, h("span.statistic"), dumbbellTicks(BAR, [0, 0.5, 1]), h("span.values"));
}

/**
 * Two means as a part of an answer: 0.80 → 0.38.
 * @param {{before: number, after: number}} pair @returns {import("../words/questions.js").Part[]}
 */
export function arrow({ before, after }) {
  return [figure(`${number(before)} → ${number(after)}`)];
}

/** +0.34 or −0.87. @param {number} value */
export function withSign(value) {
  return `${value < 0 ? "−" : "+"}${number(abs(value))}`;
}
