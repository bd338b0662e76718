// The statistics of heads, from rows of weights: those of regard/heads/measure/registry.py that have a mean. Attention
// is causal, in one text: query i sees keys up to i, or the last `window` of them.

/**
 * @typedef {{averaged: string[], targets: Record<string, {start: "FIRST" | "OWN" | "EARLIER", step: number}>,
 *   positional: string[], roles: {name: string, statistic: string, phrase: string, repeated: boolean, clear:
 *   boolean}[], pattern: number, local: number, local_tokens: number, broad: number, enough: number}} Measures as
 *   regard/show/page/live.py describes them; targets: the key whose weight a statistic is
 * @typedef {{mean: number, rows: number, chance: number, uniform: number}} Mean over the rows that have a value; of
 *   these also the means of 1 / visible keys, and of the statistic of uniform attention
 */

const { abs, log } = Math;

/** Statistics that are no weight on one key. @type {Record<string, (row: Float32Array, query: number) => number>} */
const OF_ROWS = {
  entropy: (row) => row.reduce((sum, p) => (p > 0 ? sum - p * log(p) : sum + 0 * p), 0),
  distance: (row, query) => row.reduce((sum, p, key) => sum + p * abs(query - key), 0),
  largest: (row) => row[largestKey(row)],
};

/** The key with the largest weight, the first of several. @param {Float32Array} row @returns {number} */
export function largestKey(row) {
  let best = 0;
  for (let key = 1; key < row.length; key++) if (row[key] > row[best]) best = key;
  return best;
}

/**
 * For each token, the last earlier place of the same token; −1 where there is none.
 * @param {number[]} ids @returns {number[]}
 */
export function earlier(ids) {
  const last = new Map();
  return ids.map((id, i) => {
    const place = last.get(id) ?? -1;
    last.set(id, i);
    return place;
  });
}

/**
 * A statistic of each row; NaN where it has none.
 * @param {Measures} measures @param {string} name @param {Float32Array[]} rows
 * @param {number[]} before as `earlier` gives
 * @returns {number[]}
 */
export function statisticOf(measures, name, rows, before) {
  const target = measures.targets[name];
  if (!target) return rows.map((row, query) => OF_ROWS[name](row, query));
  return rows.map((row, query) => {
    const start = { FIRST: 0, OWN: query, EARLIER: before[query] }[target.start];
    const key = start + target.step;
    if (start < 0 || key < 0 || key >= rows.length) return Number.NaN;
    return row[key] ?? 0; // a key after the query has no weight
  });
}

/**
 * The means of a head's statistics, by name; those that no row has a value of are left out.
 * @param {Measures} measures @param {Float32Array[]} rows @param {number[]} before @param {number | null} window
 * @returns {Record<string, Mean>}
 */
export function meansOf(measures, rows, before, window) {
  /** @type {Record<string, Mean>} */
  const means = {};
  for (const name of measures.averaged) {
    const sums = { mean: 0, rows: 0, chance: 0, uniform: 0 };
    statisticOf(measures, name, rows, before).forEach((value, query) => {
      if (Number.isNaN(value)) return;
      const visible = Math.min(query + 1, window ?? query + 1);
      sums.rows += 1;
      sums.mean += value;
      sums.chance += 1 / visible;
      sums.uniform += { entropy: log(visible), distance: (visible - 1) / 2 }[name] ?? value;
    });
    const { rows: count } = sums;
    if (count)
      means[name] = {
        mean: sums.mean / count,
        rows: count,
        chance: sums.chance / count,
        uniform: sums.uniform / count,
      };
  }
  return means;
}
