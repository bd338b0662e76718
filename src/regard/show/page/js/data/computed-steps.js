// Steps that are computed again: scores from queries and keys, and what follows from them up to the context.
// show/page/computed_steps.py gives a recipe only where it gives the numbers that the layer computed.

/** @import { Recipe } from "./page-data.js" */
/** @import { StepTensor } from "./step-tensors.js" */

/**
 * The numbers of a map, in the order head, query, key; those of a mix in the order query, head, width.
 * @param {Recipe} recipe
 * @param {StepTensor[]} steps those before it
 * @param {number[]} sizes of the map
 * @param {number} H heads of the layer
 * @param {Uint8Array | null} hidden a bit for each number, 1 where the mask hides it; null where it hides the future
 * @returns {Float32Array}
 */
export function computeStep({ by, of, factor }, steps, sizes, H, hidden) {
  const [T, S] = sizes.slice(-2);
  const [first, second] = of.map((number) => steps[number]);
  if (by === "product") return products(first, second, [sizes.length > 2 ? sizes[0] : 1, T, S], H);
  if (by === "mix") return mix(first, second, H);
  const before = /** @type {Float32Array} */ (first.values);
  if (by === "same") return before;
  if (by === "scale") return before.map((value) => value * (factor ?? NaN));
  if (by === "softmax") return softmax(before, S);
  if (by !== "mask") throw new Error(`This page cannot compute ${by}.`);
  return before.map((value, at) => {
    const hides = hidden ? (hidden[at >> 3] >> (7 - (at & 7))) & 1 : (at % S) - S > (Math.floor(at / S) % T) - T;
    return hides ? -Infinity : value;
  });
}

/**
 * What each query and key have in common, in every head.
 * @param {StepTensor} queries @param {StepTensor} keys @param {number[]} sizes @param {number} H
 */
function products(queries, keys, [heads, T, S], H) {
  const result = new Float32Array(heads * T * S);
  let at = 0;
  for (let head = 0; head < heads; head++) {
    const choice = { head: heads > 1 ? head : H - 1, query: 0, key: 0, number: 0 };
    const rows = Array.from({ length: S }, (_, key) => keys.part({ ...choice, key, query: key }));
    for (let query = 0; query < T; query++) {
      const row = queries.part({ ...choice, query });
      for (let key = 0; key < S; key++, at++) {
        const other = rows[key];
        let sum = 0;
        for (let i = 0; i < row.length; i++) sum += row[i] * other[i];
        result[at] = sum;
      }
    }
  }
  return result;
}

/** Rows that add up to 1; one without a visible key is 0. @param {Float32Array} scores @param {number} S */
function softmax(scores, S) {
  const result = new Float32Array(scores.length);
  for (let start = 0; start < scores.length; start += S) {
    let most = -Infinity;
    for (let at = start; at < start + S; at++) if (scores[at] > most) most = scores[at];
    if (most === -Infinity) continue;
    let sum = 0;
    for (let at = start; at < start + S; at++) sum += result[at] = Math.exp(scores[at] - most);
    for (let at = start; at < start + S; at++) result[at] /= sum;
  }
  return result;
}

/**
 * What the keys' values add up to, each by its weight.
 * @param {StepTensor} weights @param {StepTensor} values @param {number} H
 */
function mix(weights, values, H) {
  const T = weights.sizes.at(-2) ?? 0;
  const S = weights.sizes.at(-1) ?? 0;
  const heads = weights.sizes.length > 2 ? weights.sizes[0] : 1;
  const { width } = values;
  const result = new Float32Array(T * heads * width);
  for (let head = 0; head < heads; head++) {
    const choice = { head: heads > 1 ? head : H - 1, query: 0, key: 0, number: 0 };
    const rows = Array.from({ length: S }, (_, key) => values.part({ ...choice, key, query: key }));
    for (let query = 0; query < T; query++) {
      const row = weights.row({ ...choice, query });
      const at = (query * heads + head) * width;
      for (let key = 0; key < S; key++) {
        if (!row[key]) continue;
        for (let i = 0; i < width; i++) result[at + i] += row[key] * rows[key][i];
      }
    }
  }
  return result;
}
