// The largest weights of a word of a long text, each with the words around it.

import { abs, max } from "../data/math.js";
import { isolated, number, readable } from "../words/names.js";
import { css, weightColor } from "./color.js";
import { attributes, fill, h } from "./dom.js";

/** @import { Names } from "../words/names.js" */
/** @typedef {{unit: number, weight: number}} Looked a word that is looked at, or that looks */

const AROUND = 6; // words of context on each side

/** A heading and a row for each weight. */
export class LargestWeights {
  /** @param {number} length how many rows */
  constructor(length) {
    this.heading = h("h2");
    this.rows = Array.from({ length }, () => this.#row());
    const body = h("tbody", ...this.rows.map((row) => row.el));
    this.el = h("section", this.heading, h("table.looked", body));
  }

  #row() {
    const weight = h("td.num");
    const bar = h("span.bar-of");
    const [before, word, after] = [h("span"), h("b"), h("span")];
    const distance = h("td.num.far");
    const context = h("td.context", { dir: "auto" }, before, word, after);
    const el = h("tr", weight, h("td.bars", bar), context, distance);
    return { el, weight, bar, before, word, after, distance };
  }

  /** @param {Looked[]} list @param {import("../shell/app.js").App} app */
  draw(list, { shown, rows, cols, theme }) {
    const { side, unit } = shown;
    const isQuery = side === "query";
    const names = isQuery ? cols : rows;
    const title = isQuery ? "It looks at " : "It is looked at by ";
    const rest = isQuery
      ? "the largest weights, exact, each in its context"
      : "the largest weights on it, each in its context";
    if (this.heading.dataset.side !== side) fill(this.heading, title, h("span", rest));
    this.heading.dataset.side = side;
    this.rows.forEach((row, i) => {
      const one = list[i];
      attributes(row.el, { "data-unit": one ? one.unit : null, style: { visibility: one ? "visible" : "hidden" } });
      if (!one) return;
      const { unit: at, weight } = one;
      attributes(row.weight, {
        text: weight < 0.005 ? weight.toFixed(3) : number(weight),
        "data-small": weight < 0.005,
      });
      const background = css(weightColor(max(0.2, weight), theme));
      attributes(row.bar, { style: { width: `${max(1, weight * 100)}%`, background } });
      const text = (/** @type {number} */ from, /** @type {number} */ to) => inLine(names, max(0, from), max(0, to));
      const known = names.known;
      attributes(row.before, { text: known ? text(at - AROUND, at).replace(/^ \/ /, "") : "" });
      const word = () => (names.texts[at].trim() ? text(at, at + 1) : names.name(at));
      attributes(row.word, { text: known ? word() : names.name(at) });
      attributes(row.after, { text: known ? text(at + 1, at + 1 + AROUND).replace(/ \/ $/, "") : "" });
      attributes(row.distance, {
        text: isQuery ? distanceText(unit, at, rows, cols) : distanceText(at, unit, rows, cols),
      });
    });
  }
}

/**
 * Words that are the same text, their weights added up, the heaviest first.
 * @param {Looked[]} list @param {Names} names
 */
export function byName(list, names) {
  /** @type {Map<string, {name: string, weight: number, times: number, unit: number}>} */
  const groups = new Map();
  for (const { unit, weight } of list) {
    if (weight < 0.005) continue;
    const name = names.names[unit];
    const group = groups.get(name) ?? { name, weight: 0, times: 0, unit };
    groups.set(name, { ...group, weight: group.weight + weight, times: group.times + 1 });
  }
  return [...groups.values()].sort((a, b) => b.weight - a.weight);
}

/**
 * "261 tokens back". Words are counted from their first token.
 * @param {number} query @param {number} key @param {Names} rows @param {Names} cols
 */
export function distanceText(query, key, rows, cols) {
  if (rows.apart || rows.known !== cols.known) return "";
  const back = rows.first[query] + cols.length - rows.length - cols.first[key];
  if (!back) return "itself";
  return `${abs(back)} token${abs(back) === 1 ? "" : "s"} ${back > 0 ? "back" : "ahead"}`;
}

/**
 * Text in one line: line breaks are written / so that the context stays one, an empty line as one of them.
 * @param {Names} names @param {number} from @param {number} to
 */
function inLine(names, from, to) {
  return (
    names.texts
      .slice(from, to)
      // bytes: already in their character
      .map((text, i) => (text || names.bytes[from + i] ? text : names.names[from + i]))
      .map((text) => text.split("\n").map((line) => (line.trim() ? isolated(readable(line)) : line && " ")))
      .map((lines) => lines.join("\n"))
      .join("")
      .replace(/\s*\n\s*/g, " / ")
  );
}
