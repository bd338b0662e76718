// What changed for single words: of every head of two reports, the weight that changed most.

import { abs, isMissing } from "./math.js";

/** @import { Match } from "./alignment.js" */
/** @import { LayerInfo, Reports, Weights } from "./page-data.js" */
/** @typedef {{query: number, key: number, before: number, after: number, size: number}} WordChange of tokens */

const MOST = 80_000_000; // weights that are read

/**
 * The weight that changed most; null where no word is in both.
 * @param {Weights} before @param {Weights} after @param {Match} match @returns {WordChange | null}
 */
export function largestChange(before, after, { rows, cols }) {
  const zero = (/** @type {number} */ weight) => (isMissing(weight) ? 0 : weight);
  /** @type {WordChange | null} */
  let best = null;
  rows.forEach((row, query) => {
    if (row < 0) return;
    for (let key = 0; key < cols.length; key++) {
      if (cols[key] < 0) continue;
      const [a, b] = [zero(before.at(query, key)), zero(after.at(row, cols[key]))];
      const size = abs(b - a);
      if (!best || size > best.size) best = { query, key, before: a, after: b, size };
    }
  });
  return best;
}

/** Reads all heads of two reports, one after the other. */
export class WordChanges {
  /**
   * @param {Reports} reports
   * @param {(one: LayerInfo, two: LayerInfo, reports: [number, number]) => Match | null} match
   */
  constructor(reports, match) {
    this.reports = reports;
    this.match = match;
    /** By report, other report, layer and head. @type {Map<string, WordChange>} */
    this.found = new Map();
    /** @type {Set<string>} */
    this.started = new Set();
  }

  /** @param {number} one @param {number} two @param {number} layer @param {number} head */
  at(one, two, layer, head) {
    return this.found.get(`${one} ${two} ${layer} ${head}`) ?? null;
  }

  /**
   * Are the words of these reports compared? Not of long texts, of which only blocks are known.
   * @param {number} one @param {number} two
   */
  known(one, two) {
    const { reports } = this.reports.page;
    const size = reports[one].layers.reduce((sum, { T, S, heads }) => sum + T * S * heads.length, 0);
    return size <= MOST && !reports[one].layers.some((layer, l) => layer.grid || reports[two].layers[l]?.grid);
  }

  /**
   * Read them, once; `done` is called when all are here. What cannot be read, or not before the page is taken down, is
   * left out: without it, heads are compared by their means.
   * @param {number} one @param {number} two @param {AbortSignal} signal @param {() => void} done
   */
  async read(one, two, signal, done) {
    const key = `${one} ${two}`;
    if (this.started.has(key) || !this.known(one, two)) return;
    this.started.add(key);
    const [a, b] = [one, two].map((number) => this.reports.page.reports[number]);
    for (const [l, layer] of a.layers.entries()) {
      const other = b.layers[l];
      const match = other && this.match(layer, other, [one, two]);
      if (!match || !layer.T || !layer.S) continue;
      for (let head = 0; head < layer.heads.length; head++) {
        if (signal.aborted) return;
        const both = [this.reports.weights(one, l, head), this.reports.weights(two, l, head)];
        const read = await Promise.all(both).catch(() => null);
        if (!read) return;
        const [before, after] = read;
        const change = largestChange(before, after, match);
        if (change) this.found.set(`${key} ${l} ${head}`, change);
      }
    }
    done();
  }
}
