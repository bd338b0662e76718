// What is written at the end of a row of the map: the value under the pointer, and the largest weights.

import { isMissing } from "../data/math.js";
import { isolated, precise } from "../words/names.js";
import { attributes, fill, fitText, s, textWidth } from "./dom.js";
import { LABEL_FONT } from "./weight-map.js";

/** @import { Weights } from "../data/page-data.js" */
/** @import { Names } from "../words/names.js" */

const FONT = `600 ${LABEL_FONT.replace("11px", "11.5px").replace("system-ui", "ui-monospace, monospace")}`;
const LONGEST = 120; // pixels of a word

/**
 * The entries of a row: the cell that is pointed at, with all the digits that are known, then the largest.
 * @param {Weights} weights @param {Names} cols @param {number} row @param {number} pointed -1 is none
 * @returns {{text: string, kind: string}[]}
 */
export function rowEntries(weights, cols, row, pointed) {
  if (row < 0 || row >= weights.T) return [];
  const name = (/** @type {number} */ key) => isolated(fitText(cols.label(key), LONGEST, LABEL_FONT));
  const best = weights.top(row, 3, 0.02).filter(({ key }) => key !== pointed);
  const entries = best.map(({ key, weight }, i) => ({
    text: `${name(key)} ${weight.toFixed(2)}`,
    kind: i || pointed >= 0 ? "quiet" : "",
  }));
  if (pointed < 0) return entries;
  const weight = weights.at(row, pointed);
  const value = isMissing(weight) ? "hidden" : precise(weight, weights.errorAt(row, pointed));
  return [{ text: `${name(pointed)} ${value}`, kind: "pointed" }, ...entries];
}

/**
 * Write as many entries as there is room for; the first one always, moved to the left where it must be.
 * @param {SVGElement} node @param {{text: string, kind: string}[]} entries
 * @param {{x: number, y: number, right: number}} place right: where the room ends
 */
export function placeReadout(node, entries, { x, y, right }) {
  let width = 0;
  const shown = entries.filter(({ text }, i) => {
    width += textWidth(i ? `  ${text}` : text, FONT) + 4;
    return i === 0 || x + width <= right;
  });
  const first = shown.length ? textWidth(shown[0].text, FONT) + 4 : 0;
  const isTight = x + first > right;
  attributes(node, {
    x: isTight ? right : x,
    y,
    "text-anchor": isTight ? "end" : "start",
    visibility: shown.length ? "visible" : "hidden",
  });
  fill(node, ...shown.map(({ text, kind }, i) => s("tspan", { class: kind }, i ? `  ${text}` : text)));
}
