// Sums: equations with as many digits as a reader needs who checks them: what is printed on the left gives what is
// printed on the right. Numbers that do not fulfil an equation get none.

import { abs, floor, isMissing, max, min } from "../data/math.js";

export const MINUS = "−";

/**
 * An equation as it is printed: the fewest digits with which the printed operands give the printed result.
 * @param {number[]} operands
 * @param {(operands: number[]) => number} compute
 * @param {number} result
 * @returns {{operands: string[], result: string} | null} null where the numbers do not fulfil it
 */
export function equation(operands, compute, result) {
  if (![...operands, result].every(Number.isFinite)) return null;
  if (!(abs(compute(operands) - result) <= 5e-3 * abs(result) + 1e-9)) return null; // stored numbers are rounded
  for (let more = 0; more <= 2; more++) {
    const digits = decimals(result) + more;
    const target = printed(result, digits);
    for (const extra of extras(operands.length)) {
      const texts = operands.map((value, i) => printed(value, decimals(value) + extra[i]));
      if (printed(compute(texts.map(readNumber)), digits) === target) return { operands: texts, result: target };
    }
  }
  return null;
}

/** How many digits to add to each operand, fewest first. @param {number} count @returns {number[][]} */
function extras(count) {
  const known = extrasOf.get(count);
  if (known) return known;
  let all = /** @type {number[][]} */ ([[]]);
  for (let i = 0; i < count; i++) all = all.flatMap((one) => [0, 1, 2, 3, 4].map((extra) => [...one, extra]));
  all.sort((a, b) => sumOf(a) - sumOf(b) || max(...a) - max(...b));
  extrasOf.set(count, all);
  return all;
}
/** @type {Map<number, number[][]>} */
const extrasOf = new Map();

/** A number with two decimals, more if it is small. @param {number} value @returns {string} */
export function shortNumber(value) {
  return printed(value, decimals(value));
}

/**
 * How many digits after the point show a number: two, more if it is small, none if it is large.
 * @param {number} value
 */
function decimals(value) {
  if (value === 0 || !Number.isFinite(value)) return 2;
  if (abs(value) >= 1000) return 0;
  return max(2, 1 - floor(Math.log10(abs(value))));
}

/**
 * @param {number} value
 * @param {number} digits after the point
 * @returns {string}
 */
function printed(value, digits) {
  if (isMissing(value)) return "not a number";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : `${MINUS}∞`;
  const size = abs(value);
  if (value === 0) return "0";
  const far = size >= 1e6 || digits > 9;
  const shown = size >= 1e6 ? digits + 1 : digits + floor(Math.log10(size));
  const text = far ? size.toExponential(max(1, min(12, shown))).replace("e+", "e") : size.toFixed(digits);
  return (value < 0 && Number(text) !== 0 ? MINUS : "") + text;
}

/** The number that a text shows. @param {string} text @returns {number} */
export function readNumber(text) {
  return Number(text.replace(MINUS, "-").replace("∞", "Infinity"));
}

/** A summand with its sign before it: "+ 0.25", "− 0.25". @param {string} text */
export function summand(text) {
  return text.startsWith(MINUS) ? `${MINUS} ${text.slice(1)}` : `+ ${text}`;
}

/** A factor: negative ones are in brackets. @param {string} text */
export function factor(text) {
  return text.startsWith(MINUS) ? `(${text})` : text;
}

/**
 * @param {number} computed
 * @param {number} stored within 1 part in 65,000
 * @param {number} scale the size of what was added up
 */
export function holds(computed, stored, scale) {
  return abs(computed - stored) <= 1e-3 * scale + 1e-6;
}

/** @param {ArrayLike<number>} values */
export function sumOf(values) {
  let sum = 0;
  for (let i = 0; i < values.length; i++) sum += values[i];
  return sum;
}
