// Changes: which heads differ between two reports and by how much, as regard.heads.report.report.compare defines it.

import { abs, isMissing, max } from "./math.js";

/** @import { Averaged, Report, Weights } from "./page-data.js" */
/** @import { WordChange } from "./word-changes.js" */
/**
 * One statistic of two heads: its means, their shares of the largest possible value, and the difference of the shares.
 * @typedef {{name: string, label: string, before: number, after: number, shares: [number, number], most: [number,
 *   number], size: number}} Pair
 * largest: of its means; word: the weight that changed most, where it is known.
 * @typedef {{layer: number, head: number, roles: [string, string], largest: Pair | null, size: number, word: WordChange
 *   | null}} Change
 * @typedef {{report: Report, layer: number, head: number}} Place
 */

export const THRESHOLD = 0.1; // of the scale from 0 to 1, as in Comparison.changed()

/**
 * The statistics of two heads, the largest difference first; those that one of them lacks are left out.
 * @param {Place} before @param {Place} after @param {Averaged[]} averaged @returns {Pair[]}
 */
export function pairs(before, after, averaged) {
  const [a, b] = [before.report.layers[before.layer], after.report.layers[after.layer]];
  const [one, two] = [a.heads[before.head].means, b.heads[after.head].means];
  return averaged
    .flatMap(({ name, label }) => {
      const [x, y] = [one[name], two[name]];
      if (x === null || x === undefined || y === null || y === undefined) return [];
      const most = /** @type {[number, number]} */ ([a.most[name], b.most[name]]);
      const shares = /** @type {[number, number]} */ ([x / most[0], y / most[1]]);
      return [{ name, label, before: x, after: y, shares, most, size: abs(shares[1] - shares[0]) }];
    })
    .sort((p, q) => q.size - p.size);
}

/**
 * What changed in each head: those whose means or role changed, the most changed first, then by the weight that changed
 * most. null where the reports have different heads.
 * @param {Report} before
 * @param {Report} after
 * @param {Averaged[]} averaged
 * @param {(layer: number, head: number) => WordChange | null} [word]
 * @returns {Change[] | null}
 */
export function changes(before, after, averaged, word = () => null) {
  const counts = (/** @type {Report} */ report) => report.layers.map((layer) => layer.heads.length).join(" ");
  if (counts(before) !== counts(after)) return null;
  const all = before.layers.flatMap((layer, l) =>
    layer.heads.map((info, head) => {
      const [largest = null] = pairs({ report: before, layer: l, head }, { report: after, layer: l, head }, averaged);
      const roles = /** @type {[string, string]} */ ([info.role, after.layers[l].heads[head].role]);
      return { layer: l, head, roles, largest, size: largest?.size ?? 0, word: word(l, head) };
    }),
  );
  const words = (/** @type {Change} */ one) => (isOnAverage(one) ? 0 : (one.word?.size ?? 0));
  const rank = (/** @type {Change} */ one) => (isOnAverage(one) ? 0 : words(one) >= THRESHOLD ? 1 : 2);
  return all.sort(
    (a, b) => rank(a) - rank(b) || words(b) - words(a) || b.size - a.size || a.layer - b.layer || a.head - b.head,
  );
}

/** Did the role change, or some mean by the threshold of its scale or more? @param {Change} change */
export function isOnAverage({ size, roles }) {
  return size >= THRESHOLD || roles[0] !== roles[1];
}

/** Did the role, some mean, or some weight of some word change by the threshold or more? @param {Change} change */
export function isChanged(change) {
  return isOnAverage(change) || (change.word?.size ?? 0) >= THRESHOLD;
}

/**
 * The row that differs most: the query that moved the largest part of its weight.
 * @param {Weights} differences
 * @param {string[]} [names] of the queries; a word says more than a comma
 * @returns {number}
 */
export function mostChanged(differences, names = []) {
  let [best, most] = [-1, -1];
  for (let query = 0; query < differences.T; query++) {
    let moved = 0;
    for (const value of differences.row(query)) if (!isMissing(value)) moved += abs(value);
    if (names[query] !== undefined && !/\p{L}{3}/u.test(names[query])) moved *= 0.6;
    if (moved > most) [best, most] = [query, moved];
  }
  return best;
}

/**
 * What two rows give to each key, the largest difference first; keys below the least in both are left out.
 * @param {ArrayLike<number>} before
 * @param {ArrayLike<number>} after
 * @param {number} count
 * @param {number} [least]
 * @returns {{index: number, before: number, after: number}[]}
 */
export function moved(before, after, count, least = 0.01) {
  return Array.from(before, (a, index) => ({
    index,
    before: isMissing(a) ? 0 : a,
    after: isMissing(after[index]) ? 0 : after[index],
  }))
    .filter((one) => max(one.before, one.after) >= least)
    .sort((p, q) => abs(q.after - q.before) - abs(p.after - p.before))
    .slice(0, count);
}

/**
 * Where the largest number is, whatever its sign; NaN is none, -1 where all are.
 * @param {ArrayLike<number>} values @returns {number}
 */
export function largestOf(values) {
  let best = -1;
  for (let i = 0; i < values.length; i++) {
    if (!isMissing(values[i]) && (best < 0 || abs(values[i]) > abs(values[best]))) best = i;
  }
  return best;
}
