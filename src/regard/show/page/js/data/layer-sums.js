// A layer: the weights of all its heads, their mean, and what each key receives.

import { isMissing, max } from "./math.js";
import { HIDDEN, Weights } from "./page-data.js";

/** @import { Reports } from "./page-data.js" */
/**
 * heads: the weights of each, by token or by word; mean: of all heads, cell by cell. Of each head, and at last of the
 * mean: shares: the part of all its weight that a key receives; ratios: what a key receives ÷ what it would receive if
 * every query looked at all that it may see alike; NaN where no query sees it.
 * @typedef {{heads: Weights[], mean: Weights, shares: Float32Array[], ratios: Float32Array[]}} LayerSums
 */

/**
 * @param {Reports} reports
 * @param {number} report
 * @param {number} layer
 * @param {{rows: number[], cols: number[]} | null} words the word of each query and key, where pieces are merged
 * @returns {Promise<LayerSums>}
 */
export async function layerSums(reports, report, layer, words) {
  const info = reports.page.reports[report].layers[layer];
  const exact = await Promise.all(info.heads.map((_, head) => reports.weights(report, layer, head)));
  return sumsOf(exact, words);
}

/** @param {Weights[]} exact of all heads @param {{rows: number[], cols: number[]} | null} words @returns {LayerSums} */
export function sumsOf(exact, words) {
  const merged = (/** @type {Weights} */ one) => (words ? one.merged(words.rows, words.cols) : one);
  const heads = exact.map(merged);
  const even = exact.map((one) => merged(uniformOf(one)));
  const all = [...heads, meanOf(heads)];
  const uniform = [...even, meanOf(even)];
  const received = all.map((one) => one.received());
  return {
    heads,
    mean: all[heads.length],
    shares: received.map(shareOf),
    ratios: received.map((sums, i) => ratio(sums, uniform[i].received())),
  };
}

/** @param {Float32Array} received @returns {Float32Array} */
function shareOf(received) {
  const total = received.reduce((sum, one) => sum + one, 0);
  return received.map((one) => one / (total || 1));
}

/**
 * The mean of heads, cell by cell; a head that may not see a key gives it 0.
 * @param {Weights[]} heads @returns {Weights}
 */
export function meanOf(heads) {
  const [{ T, S }] = heads;
  const values = new Float32Array(T * S);
  for (let at = 0; at < values.length; at++) {
    let [sum, seen] = [0, false];
    for (const one of heads) {
      const value = one.values[at];
      if (isMissing(value)) continue;
      sum += value;
      seen = true;
    }
    values[at] = seen ? sum / heads.length : HIDDEN;
  }
  return new Weights(T, S, values);
}

/** 1 ÷ the keys that a query may see, on each of them. @param {Weights} weights @returns {Weights} */
export function uniformOf({ T, S, values }) {
  const even = new Float32Array(T * S).fill(HIDDEN);
  for (let query = 0; query < T; query++) {
    let count = 0;
    for (let at = query * S; at < (query + 1) * S; at++) if (!isMissing(values[at])) count++;
    for (let at = query * S; at < (query + 1) * S; at++) if (!isMissing(values[at])) even[at] = 1 / max(1, count);
  }
  return new Weights(T, S, even);
}

/** @param {Float32Array} received @param {Float32Array} uniform @returns {Float32Array} */
function ratio(received, uniform) {
  return received.map((sum, key) => (uniform[key] ? sum / uniform[key] : NaN));
}

/**
 * The head with the largest number at a place; -1 where all are missing.
 * @param {ArrayLike<number>[]} heads @param {number} at
 */
export function dominating(heads, at) {
  let best = -1;
  heads.forEach((values, head) => {
    if (!isMissing(values[at]) && (best < 0 || values[at] > heads[best][at])) best = head;
  });
  return best;
}

/**
 * The mean of a layer's heads, and for each cell the head with the largest weight and that weight.
 * @typedef {{mean: Weights, by: Uint16Array, most: Float32Array}} LayerMean
 */

/**
 * Of several layers, one after the other, so that a few heads are in memory at a time.
 * @param {Reports} reports
 * @param {number} report
 * @param {number[]} layers
 * @param {{rows: number[], cols: number[]} | null} words
 * @returns {Promise<LayerMean[]>}
 */
export async function layerMeans(reports, report, layers, words) {
  /** @type {LayerMean[]} */
  const means = [];
  for (const layer of layers) {
    const info = reports.page.reports[report].layers[layer];
    const exact = await Promise.all(info.heads.map((_, head) => reports.weights(report, layer, head)));
    const heads = words ? exact.map((one) => one.merged(words.rows, words.cols)) : exact;
    const mean = meanOf(heads);
    const by = new Uint16Array(mean.values.length);
    const most = new Float32Array(mean.values.length);
    heads.forEach(({ values }, head) => {
      for (let at = 0; at < values.length; at++) if (values[at] > most[at]) [most[at], by[at]] = [values[at], head];
    });
    means.push({ mean, by, most });
  }
  return means;
}
