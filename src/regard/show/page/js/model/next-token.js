// What follows a text: the most likely tokens, and one that is drawn.

import { largestKey } from "./statistics.js";

/** @import { Tokenizer } from "./tokenizer.js" */
/**
 * @typedef {{id: number, text: string, chances: number[], ends: boolean}} NextToken chances: its probability in each
 *   reading; ends: it ends the text
 */

const LIKELY = 10; // next tokens that are named

/**
 * The most likely next tokens: those with the largest probability in any of some readings, largest first.
 * @param {Float32Array[]} logits of each reading @param {Tokenizer} tokenizer @param {number[]} ends
 * @returns {NextToken[]}
 */
export function likely(logits, tokenizer, ends) {
  const chances = logits.map((one) => softmax(one, 1));
  if (chances.some((one) => Number.isNaN(one[0])))
    throw new Error("The model gives numbers that are none (NaN): its weights are damaged.");
  /** @type {{id: number, most: number}[]} */
  const best = [];
  for (let id = 0; id < chances[0].length; id++) {
    let most = 0;
    for (const one of chances) most = Math.max(most, one[id]);
    if (best.length === LIKELY && most <= best[LIKELY - 1].most) continue;
    let at = best.length;
    while (at > 0 && best[at - 1].most < most) at--;
    best.splice(at, 0, { id, most });
    best.length = Math.min(best.length, LIKELY);
  }
  return best.map(({ id }) => ({
    id,
    text: tokenizer.decode([id]),
    chances: chances.map((one) => one[id]),
    ends: ends.includes(id),
  }));
}

/**
 * A token: at temperature 0 the most likely one, the first of several; else by chance.
 * @param {Float32Array} logits @param {number} temperature @param {number} random from 0 to before 1
 * @returns {number}
 */
export function sample(logits, temperature, random) {
  const most = largestKey(logits);
  if (!(temperature > 0)) return most;
  let left = random;
  const chances = softmax(logits, temperature);
  for (let id = 0; id < chances.length; id++) {
    left -= chances[id];
    if (left < 0) return id;
  }
  return most; // rounding left a little over
}

/** @param {Float32Array} logits @param {number} temperature @returns {Float64Array} */
function softmax(logits, temperature) {
  const most = logits[largestKey(logits)];
  const chances = new Float64Array(logits.length);
  let sum = 0;
  for (let id = 0; id < chances.length; id++) sum += chances[id] = Math.exp((logits[id] - most) / temperature);
  for (let id = 0; id < chances.length; id++) chances[id] /= sum;
  return chances;
}
