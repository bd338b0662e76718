// The pinned word: it belongs to a text, and layers of one model may read different texts, as encoder and decoder do.

import { Names } from "../words/names.js";
import { quiet } from "../words/questions.js";

/** @import { Report, Side } from "../data/page-data.js" */
/** @import { State } from "./state.js" */

/**
 * Where the pinned word is in the chosen layer; null where none is pinned, or it is of a text that the layer does not
 * read. A word that looks in one layer may be looked at in another.
 * @param {State} state
 * @param {Report} report
 * @param {{rows: Names, cols: Names}} names
 * @returns {{side: Side, unit: number} | null}
 */
export function pinIn({ pinned, focus, side, text, layer }, report, { rows, cols }) {
  if (!pinned) return null;
  const { queries, keys } = report.layers[layer];
  const texts = { query: queries, key: keys };
  const other = side === "query" ? "key" : "query";
  const at = text < 0 || texts[side] === text ? side : texts[other] === text ? other : null;
  const unit = at && (at === "query" ? rows : cols).unit[focus];
  return at === null || typeof unit !== "number" ? null : { side: at, unit };
}

/**
 * The text on one side of the chosen layer, as the state names it.
 * @param {State} state @param {Report} report @param {Side} side
 */
export function textOn({ layer }, report, side) {
  const { queries, keys } = report.layers[layer];
  return report.sequences.length > 1 ? ((side === "query" ? queries : keys) ?? -1) : -1;
}

/** What is said of a pinned word that the chosen layer does not read. @param {State} state @param {Report} report */
export function pinnedElsewhere({ focus, text }, report) {
  const sequence = report.sequences[text];
  const word = sequence ? new Names(sequence, sequence.pieces.length, false).said(focus) : `position ${focus}`;
  return quiet(` ${word} is pinned; this layer does not read it.`);
}
