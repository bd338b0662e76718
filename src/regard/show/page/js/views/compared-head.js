// The second head of a comparison: its weights, loaded when they are needed, and which of its words stand for which.

import { aligned, Match } from "../data/alignment.js";
import { Names } from "../words/names.js";

/** @import { App } from "../shell/app.js" */
/** @import { LayerInfo, Weights } from "../data/page-data.js" */
/** @typedef {{number: number, layer: number, head: number}} Chosen a head of a report */

/** Weights of a head, and what they are of. */
export class ComparedHead {
  constructor() {
    this.key = "";
    /** @type {Weights | null} */
    this.weights = null;
    this.rows = new Names(null, 0, false);
    this.cols = this.rows;
    /** Which of its words stand for those of the first head. @type {Match | null} */
    this.match = null;
    /** Why no words can be compared; "" where they can. */
    this.apart = "";
    /** How words were matched, where they do not simply stand at the same place. */
    this.note = "";
    this.error = "";
  }

  /**
   * Load a head, unless it is here.
   * @param {App} app
   * @param {Chosen} chosen
   * @param {() => void} loaded called when it is here, or an error is
   */
  load(app, { number, layer, head }, loaded) {
    const { words, report: mine, layer: ofFirst } = app.store.state;
    const key = `${number}.${layer}.${head}.${words}.${mine}.${ofFirst}`;
    if (this.key === key) return;
    const report = app.reports.page.reports[number];
    const info = report.layers[layer];
    const { rows, cols } = Names.of(report, info, words);
    Object.assign(this, { key, weights: null, rows, cols, error: "" });
    Object.assign(this, matched(app, this, [app.report.layers[ofFirst], info]));
    const loading = info.grid
      ? app.longs.get(number, layer, head).then(({ mass }) => mass)
      : app.reports.weights(number, layer, head);
    loading.then(
      (exact) => {
        if (this.key !== key) return;
        const merges = words && !info.grid && rows.known && cols.known;
        this.weights = merges ? exact.merged(rows.unit, cols.unit) : exact;
        loaded();
      },
      (error) => {
        if (this.key !== key) return;
        this.error = error.message;
        loaded();
      },
    );
  }
}

/**
 * Which words of a second head stand for those of the first, and what is said of it.
 * @param {{rows: Names, cols: Names}} first
 * @param {{rows: Names, cols: Names}} second
 * @param {[LayerInfo, LayerInfo]} layers
 * @returns {{match: Match | null, apart: string, note: string}}
 */
export function matched(first, second, [a, b]) {
  const counts = sizesOf(a, b);
  const rest = "there is no difference of the maps and no comparison word by word";
  const same = a.T === b.T && a.S === b.S;
  if (a.grid || b.grid) {
    const grids = [a.grid, b.grid].map((grid) => `${grid?.rows} ${grid?.cols}`);
    if (!same || grids[0] !== grids[1]) return { match: null, apart: `${counts}: ${rest} of long texts.`, note: "" };
    const places = (/** @type {number} */ size) => Array.from({ length: size }, (_, i) => i);
    return { match: new Match(places(a.grid?.rows ?? 0), places(a.grid?.cols ?? 0)), apart: "", note: "" };
  }
  const found = /** @type {const} */ (["rows", "cols"]).map((side) => {
    const [one, two] = [first[side], second[side]];
    return one.size !== two.size && !(one.known && two.known) ? null : aligned(words(one), words(two));
  });
  const [rows, cols] = found;
  if (!rows || !cols) return { match: null, apart: `${counts}, and few in common: ${rest}.`, note: "" };
  const match = new Match(rows, cols);
  return { match, apart: "", note: noteOf(match, first, second, counts) };
}

/**
 * How words were matched.
 * @param {Match} match @param {{rows: Names, cols: Names}} first @param {{rows: Names, cols: Names}} second
 * @param {string} counts
 */
function noteOf(match, first, second, counts) {
  if (!match.inPlace) return `${counts}. The words that both have, in order, are compared; the others are in one only.`;
  const differ = first.rows.known && differing(first.rows, second.rows, match.rows).length;
  return differ ? `${differ} of ${first.rows.size} words differ (underlined); they are compared by position.` : "";
}

/** The words that are compared: without the spaces around them. @param {Names} names */
function words(names) {
  return names.texts.map((text) => text.trim());
}

/**
 * The units of a text that no equal one stands for in the other.
 * @param {Names} one @param {Names} two @param {number[]} to
 */
export function differing(one, two, to) {
  const [mine, theirs] = [words(one), words(two)];
  return mine.flatMap((text, i) => (to[i] < 0 || theirs[to[i]] !== text ? [i] : []));
}

/** @param {LayerInfo} a @param {LayerInfo} b */
function sizesOf(a, b) {
  const size = (/** @type {LayerInfo} */ { T, S }) => (T === S ? String(T) : `${T} × ${S}`);
  return `One has ${size(a)} tokens, the other ${size(b)}`;
}
