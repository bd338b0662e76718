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

/**
 * Statistics that are no weight on one key; by loops, as `reduce` makes an object of each number.
 * @type {Record<string, (row: Float32Array, query: number) => number>}
 */
const OF_ROWS = {
  entropy: (row) => {
    let sum = 0;
    for (let key = 0; key < row.length; key++) sum -= row[key] > 0 ? row[key] * log(row[key]) : 0 * row[key];
    return sum;
  },
  distance: (row, query) => {
    let sum = 0;
    for (let key = 0; key < row.length; key++) sum += row[key] * abs(query - key);
    return sum;
  },
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
    const start = target.start === "FIRST" ? 0 : target.start === "OWN" ? query : before[query];
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
    const values = statisticOf(measures, name, rows, before);
    let [sum, count, chance, uniform] = [0, 0, 0, 0];
    for (let query = 0; query < values.length; query++) {
      const value = values[query];
      if (Number.isNaN(value)) continue;
      const visible = Math.min(query + 1, window ?? query + 1);
      count += 1;
      sum += value;
      chance += 1 / visible;
      uniform += name === "entropy" ? log(visible) : name === "distance" ? (visible - 1) / 2 : value;
    }
    if (count) means[name] = { mean: sum / count, rows: count, chance: chance / count, uniform: uniform / count };
  }
  return means;
}
