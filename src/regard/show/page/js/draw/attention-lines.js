// The words that are looked at on the left, the words that look on the right, and between them the weights of the word
// in focus as lines. Only its largest weights are drawn.

import { abs, ceil, floor, isMissing, max } from "../data/math.js";
import { largest } from "../data/page-data.js";
import { Names, number } from "../words/names.js";
import { css, weightColor } from "./color.js";
import { attributes, fill, fitText, leftToRight, s, styles } from "./dom.js";
import { LABEL_FONT } from "./weight-map.js";

/** @import { Side, Weights } from "../data/page-data.js" */
/** @import { Theme } from "./color.js" */
/**
 * @typedef {{row: number, top: number, width: number, theme: Theme, label: number, font?: string}} LinesOptions row:
 *   pixels of a row; label: width of a column of words
 */

const MOST = 12; // lines of a word that looks
const MOST_LOOKERS = 64; // lines of a word that is looked at
const LEAST = 0.01; // weight of a line
const ARROW = 0.08; // weight from which a line has an arrowhead
const WIDEST = 9; // pixels of a line of weight 1
const NUMBER = 44; // pixels of the column of numbers

/** Two columns of words and the lines between them. */
export class AttentionLines {
  /**
   * @param {{point: (side: Side, unit: number) => void, leave: () => void, pick: (side: Side, unit: number) => void}}
   *   events
   */
  constructor(events) {
    /** @type {Weights | null} */
    this.weights = null;
    this.rows = new Names(null, 0, false);
    this.cols = this.rows;
    /** @type {LinesOptions} */
    this.options = { row: 1, top: 0, width: 0, theme: "light", label: 0 };
    this.laid = ""; // the words and their places, as they are in the document
    this.left = 0; // the right edge of the words that are looked at
    this.right = 0; // the left edge of the words that look
    this.every = 1; // of the words that are always shown
    this.numbers = s("g.numbers");
    this.keys = s("g.keys");
    this.queries = s("g.queries");
    this.paths = s("g.paths");
    this.ties = s("g.ties");
    this.titles = s("g.titles");
    this.note = s("text.note", { "text-anchor": "middle" });
    this.el = s(
      "svg.lines",
      { "aria-hidden": true },
      this.titles,
      this.paths,
      this.ties,
      this.keys,
      this.queries,
      this.numbers,
    );
    const at = (/** @type {MouseEvent} */ event) => this.#unit(event);
    this.el.addEventListener("pointermove", (event) => {
      const found = at(event);
      if (found) events.point(found.side, found.unit);
    });
    this.el.addEventListener("pointerleave", () => events.leave());
    this.el.addEventListener("click", (event) => {
      const found = at(event);
      if (found) events.pick(found.side, found.unit);
    });
  }

  /**
   * Lay out the words. AttentionLines are drawn by `focus`.
   * @param {Weights} weights @param {Names} rows @param {Names} cols @param {LinesOptions} options
   */
  draw(weights, rows, cols, options) {
    Object.assign(this, { weights, rows, cols, options });
    const layout = JSON.stringify([rows.names, rows.padding, rows.ties, cols.names, cols.padding, cols.ties, options]);
    if (layout === this.laid) return; // another head of the same text
    this.laid = layout;
    const { row, top, width, label, font = LABEL_FONT } = options;
    const height = top + max(rows.size, cols.size) * row;
    attributes(this.el, { width, height, viewBox: `0 0 ${width} ${height}` });
    styles(this.el, { font });
    this.left = NUMBER + label;
    this.right = width - label - 6;
    const every = max(1, ceil(13 / row));
    this.every = every;
    const words = (/** @type {Names} */ names, /** @type {number} */ x, /** @type {string} */ anchor) => {
      const shown = names.labelled(every);
      return names.names.map((name, i) =>
        s(
          "text",
          { "data-at": i, x, y: top + (i + 0.5) * row + 4, "text-anchor": anchor, class: shown.has(i) ? "" : "sparse" },
          leftToRight(fitText(name, label - 12, font)),
        ),
      );
    };
    fill(this.keys, ...words(cols, this.left - 10, "end"));
    fill(this.queries, ...words(rows, width - 8, "end"));
    const tied = (/** @type {Names} */ names, /** @type {number} */ x) =>
      row >= 10
        ? names.ties.map(([first, last]) =>
            s("path", { d: `M${x - 3} ${top + first * row + 4}h3V${top + (last + 1) * row - 4}h-3` }),
          )
        : [];
    fill(this.ties, ...tied(cols, this.left - 3), ...tied(rows, width - 1));
    attributes(this.note, { x: (this.left + this.right) / 2, y: top - 24 });
    fill(
      this.titles,
      s("text", { x: this.left - 10, y: top - 8, "text-anchor": "end" }, "is looked at"),
      s("text", { x: width - 8, y: top - 8, "text-anchor": "end" }, "looks"),
      this.note,
    );
  }

  /**
   * Draw the lines of a word that looks (side "query") or is looked at ("key"); -1 draws none.
   * @param {Side} side @param {number} unit
   */
  focus(side, unit) {
    const { weights, options } = this;
    if (!weights) return;
    const isQuery = side === "query";
    const valid = unit >= 0 && unit < (isQuery ? weights.T : weights.S);
    const values = valid ? (isQuery ? weights.row(unit) : weights.column(unit)) : new Float32Array();
    const all = values.reduce((count, value) => (value >= LEAST ? count + 1 : count), 0);
    const best = largest(values, isQuery ? MOST : MOST_LOOKERS, LEAST);
    attributes(this.note, { text: all > best.length ? `the ${best.length} largest of ${all}` : "" });
    const ends = new Map(best.map(({ index, value }) => [index, value]));
    const { row, top, theme } = options;
    const middle = (/** @type {number} */ i) => top + (i + 0.5) * row;
    fill(
      this.paths,
      ...best.reverse().flatMap(({ index, value }) => {
        const [key, query] = isQuery ? [index, unit] : [unit, index];
        const color = css(weightColor(max(0.12, value), theme));
        return this.#line(middle(key), middle(query), value, color, isQuery || row < 10 ? 0 : NUMBER - 8);
      }),
    );
    const [mine, theirs] = isQuery ? [this.queries, this.keys] : [this.keys, this.queries];
    // Where not every word has a place, one that is shown for its weight hides its neighbours.
    const strong = apart(
      [...ends].filter(([, value]) => value >= ARROW),
      this.every,
    );
    const covered = (/** @type {number} */ i, /** @type {number[]} */ shown) =>
      this.every > 1 && !shown.includes(i) && shown.some((one) => abs(one - i) < this.every);
    for (const text of mine.children) {
      const i = Number(text.getAttribute("data-at"));
      const padding = (isQuery ? this.rows : this.cols).padding[i];
      const state = i === unit ? "chosen" : padding ? "hidden" : "";
      attributes(text, { "data-state": state !== "chosen" && covered(i, [unit]) ? "covered" : state });
    }
    const padding = (isQuery ? this.cols : this.rows).padding;
    for (const text of theirs.children) {
      const i = Number(text.getAttribute("data-at"));
      const hidden = padding[i] || (valid && isMissing(values[i]));
      const state = hidden ? "hidden" : valid && strong.includes(i) ? "strong" : "";
      attributes(text, { "data-state": covered(i, strong) ? "covered" : state });
    }
    const x = isQuery ? NUMBER - 8 : this.right - 2;
    fill(
      this.numbers,
      ...(row >= 10 ? best : []).map(({ index, value }) =>
        s("text.n", { x, y: middle(index) + 4, "text-anchor": "end", "data-strong": value >= ARROW }, number(value)),
      ),
    );
  }

  /**
   * @param {number} keyY @param {number} queryY @param {number} weight @param {string} color
   * @param {number} inset pixels at the right, for a number
   */
  #line(keyY, queryY, weight, color, inset) {
    const [from, to] = [this.right - inset, this.left + (weight >= ARROW ? 8 : 2)];
    const bend = (from - to) * 0.5;
    const line = s("path", {
      d: `M${from} ${queryY}C${from - bend} ${queryY} ${to + bend} ${keyY} ${to} ${keyY}`,
      stroke: color,
      "stroke-width": max(0.75, WIDEST * weight),
      fill: "none",
    });
    if (weight < ARROW) return [line];
    const half = 4 + 5 * weight;
    return [line, s("path", { d: `M${to - 8} ${keyY}l${half + 5} ${-half}v${2 * half}z`, fill: color })];
  }

  /** @param {MouseEvent} event */
  #unit(event) {
    const { options, weights, left, right } = this;
    if (!weights) return null;
    const box = this.el.getBoundingClientRect();
    const unit = floor((event.clientY - box.top - options.top) / options.row);
    const x = event.clientX - box.left;
    const side = x < (left + right) / 2 ? "key" : "query";
    return unit >= 0 && unit < (side === "key" ? weights.S : weights.T)
      ? { side: /** @type {Side} */ (side), unit }
      : null;
  }
}

/**
 * Of units with a weight, those whose words do not overlap: the heavier of two neighbours.
 * @param {[number, number][]} weighed @param {number} every rows that a word takes
 */
function apart(weighed, every) {
  /** @type {number[]} */
  const chosen = [];
  for (const [unit] of weighed.sort((a, b) => b[1] - a[1]))
    if (chosen.every((one) => abs(one - unit) >= every)) chosen.push(unit);
  return chosen;
}
