// Two texts side by side: which word of the one stands for which word of the other.

import { isMissing, max, min } from "./math.js";
import { HIDDEN, Weights } from "./page-data.js";

/** @import { Side } from "./page-data.js" */

const MOST = 4_000_000; // pairs of words that are tried
const LEAST = 1 / 3; // of the shorter text, that must be in the other for an alignment to mean something

/**
 * For each word of a text, the word of another that stands for it; -1 is none. Texts of one length are taken position
 * by position, unless that matches fewer words. Of others, the longest sequence of words that both have, in order, is
 * found; null where that is a small part of them, or the texts are too long to look.
 * @param {string[]} one @param {string[]} two @returns {number[] | null}
 */
export function aligned(one, two) {
  const found = sequenceOfBoth(one, two);
  if (one.length !== two.length) return found;
  const equal = one.filter((word, i) => word === two[i]).length;
  return found && found.filter((to) => to >= 0).length > equal + 1 ? found : one.map((_, i) => i);
}

/** @param {string[]} one @param {string[]} two @returns {number[] | null} */
function sequenceOfBoth(one, two) {
  const [shorter, difference] = [min(one.length, two.length), two.length - one.length];
  let [before, after] = [0, 0];
  while (before < shorter && one[before] === two[before]) before++;
  while (after < shorter - before && one[one.length - 1 - after] === two[two.length - 1 - after]) after++;
  const to = one.map((_, i) => (i < before ? i : i >= one.length - after ? i + difference : -1));
  const [T, S] = [one.length - after - before, two.length - after - before];
  if (T * S > MOST) return null;
  // How many words the rest of both texts have in common.
  const common = new Uint16Array((T + 1) * (S + 1));
  for (let i = T - 1; i >= 0; i--) {
    for (let j = S - 1; j >= 0; j--) {
      const at = i * (S + 1) + j;
      common[at] =
        one[before + i] === two[before + j] ? common[at + S + 2] + 1 : max(common[at + 1], common[at + S + 1]);
    }
  }
  for (let i = 0, j = 0; i < T && j < S; ) {
    const at = i * (S + 1) + j;
    if (one[before + i] === two[before + j]) to[before + i++] = before + j++;
    else if (common[at + S + 1] >= common[at + 1]) i++;
    else j++;
  }
  return to.filter((at) => at >= 0).length >= max(1, LEAST * shorter) ? to : null;
}

/** The weights of a second head, in the places of the first. */
export class Match {
  /**
   * @param {number[]} rows for each query of the first the query of the second, -1 where there is none
   * @param {number[]} cols the same of keys
   */
  constructor(rows, cols) {
    this.rows = rows;
    this.cols = cols;
  }

  /** Does every word stand at its place? */
  get inPlace() {
    return [this.rows, this.cols].every((all) => all.every((to, i) => to === i));
  }

  /**
   * A row or column of the second, in the order of the first; NaN where the key is hidden or there is none.
   * @param {Weights} after @param {Side} side @param {number} unit of the first
   */
  line(after, side, unit) {
    const [mine, theirs] = side === "query" ? [this.rows, this.cols] : [this.cols, this.rows];
    const to = mine[unit] ?? -1;
    return Float32Array.from(theirs, (other) =>
      to < 0 || other < 0 ? HIDDEN : side === "query" ? after.at(to, other) : after.at(other, to),
    );
  }

  /**
   * after − before, cell by cell. A key that is hidden from one has weight 0 there; one hidden from both has no cell,
   * nor has one whose words are in one text only.
   * @param {Weights} before @param {Weights} after @returns {Weights}
   */
  difference(before, after) {
    const values = new Float32Array(before.T * before.S).fill(HIDDEN);
    this.rows.forEach((row, i) => {
      if (row < 0) return;
      this.cols.forEach((col, j) => {
        const [a, b] = [before.at(i, j), col < 0 ? HIDDEN : after.at(row, col)];
        if (col < 0 || (isMissing(a) && isMissing(b))) return;
        values[i * before.S + j] = (isMissing(b) ? 0 : b) - (isMissing(a) ? 0 : a);
      });
    });
    return new Weights(before.T, before.S, values);
  }
}
