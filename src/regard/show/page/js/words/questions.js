// Questions: every view opens with one, and with its answer. Answers state facts of position and weights, nothing more.

import { isMissing, max } from "../data/math.js";
import { largest } from "../data/page-data.js";
import { isAfterSame, Names, number, relation } from "./names.js";

/** @import { Report, Side, Weights } from "../data/page-data.js" */
/** @typedef {string | {text: string, kind: "chosen" | "strong" | "number" | "quiet", sup?: string}} Part */
/** @typedef {{question: Part[], answer: Part[]}} Ask */

/** @type {(text: string) => Part} */
export const strong = (text) => ({ text, kind: "strong" });
/** @type {(text: string) => Part} */
export const figure = (text) => ({ text, kind: "number" });
/** @type {(text: string) => Part} */
export const quiet = (text) => ({ text, kind: "quiet" });

/**
 * The word that a question is about, with its position where it occurs more than once.
 * @param {Names} names @param {number} unit @returns {Part}
 */
export function chosen(names, unit) {
  const sup = names.repeated[unit] && names.known ? `@${names.first[unit]}` : undefined;
  return { text: names.name(unit), kind: "chosen", sup };
}

/**
 * Names and their weights: cat 0.41 · sat 0.20.
 * @param {{name: string, weight: number, before?: Part, after?: string}[]} list @returns {Part[]}
 */
export function listed(list) {
  return list.flatMap(({ name, weight, before = "", after = "" }, i) => [
    i ? " · " : "",
    before,
    strong(name),
    figure(` ${number(weight)}`),
    after,
  ]);
}

/**
 * The query that says most about a head: a large weight on a key that is neither the first nor the query itself.
 * @param {{T: number, top: Weights["top"]}} weights all of them, or the largest of a long text
 * @param {Names} rows
 * @param {Names} cols
 * @returns {number}
 */
export function telling(weights, rows, cols) {
  const same = Names.same(rows, cols);
  let [best, most] = [max(0, weights.T - 1), -1];
  for (let query = 0; query < weights.T; query++) {
    const top = weights.top(query, 3);
    if (top.length < 2) continue; // a query that sees one key has no choice
    const { key, weight } = top.find(({ key }) => key !== 0 && key !== query) ?? top[0];
    const factor = same && isAfterSame(rows.texts, query, key) ? 1 : key === 0 || key === query ? 0.1 : 0.8;
    const letters = /\p{L}{3}/u.test(rows.names[query]) ? 1 : 0.6; // a word says more than a comma
    const value = weight * factor * letters;
    if (value > most) [best, most] = [query, value];
  }
  return best;
}

/**
 * "Where does very look?" or "Who looks at tired?"
 * @param {Weights} weights
 * @param {Names} rows
 * @param {Names} cols
 * @param {Side} side
 * @param {number} unit
 * @returns {Ask}
 */
export function askHead(weights, rows, cols, side, unit) {
  const names = side === "query" ? rows : cols;
  if (!(unit >= 0 && unit < names.size))
    return { question: [`Where does each ${rows.known ? "word" : "position"} look?`], answer: [] };
  const word = chosen(names, unit);
  if (side === "key") {
    const column = weights.column(unit);
    let [sum, from] = [0, 0];
    for (const value of column) if (!isMissing(value)) [sum, from] = [sum + value, from + 1];
    const rest = quiet(`. It receives ${number(sum)} in all, from ${from} ${rows.known ? "words" : "positions"}.`);
    return { question: ["Who looks at ", word, "?"], answer: [...listed(strongest(column, rows)), rest] };
  }
  const question = ["Where does ", word, " look?"];
  const best = strongest(weights.row(unit), cols);
  if (rows.padding[unit]) return { question, answer: ["Nowhere: it is padding, and is not counted."] };
  if (!best.length) return { question, answer: ["Nowhere: the mask hides every key."] };
  const fact = Names.same(rows, cols) ? relation(rows.texts, unit, best[0].index) : "";
  const isAll = fact && best[0].weight >= 0.5;
  const answer = [
    "At ",
    ...listed(isAll ? best.slice(0, 1) : best),
    isAll || (fact && best.length === 1) ? `, ${fact}.` : ".",
  ];
  return { question, answer };
}

/**
 * "What does each of 48 heads do?"
 * @param {Report} report
 * @param {{name: string, place: string, weight: number}[]} found where the word in focus looks, strongest first; empty
 *   without a focus
 * @param {Part | null} word in focus
 * @returns {Ask}
 */
export function askHeads(report, found, word) {
  const count = report.layers.reduce((sum, layer) => sum + layer.heads.length, 0);
  if (word) {
    const answer = listed(found.slice(0, 4).map((one) => ({ ...one, before: quiet(`${one.place} `) })));
    const where = found.length < count ? `in the ${found.length} heads that read it` : "in every head";
    return { question: ["Where does ", word, ` look, ${found.length ? where : "in each head"}?`], answer };
  }
  /** @type {Map<string, string[]>} */
  const roles = new Map();
  for (const [layer, head] of report.order) {
    const info = report.layers[layer].heads[head];
    if (!info.clear) continue;
    roles.set(info.role, [...(roles.get(info.role) ?? []), `${layer}.${head}`]);
  }
  const rare = [...roles].filter(([, heads]) => heads.length <= 3);
  /** @type {Part[]} */
  const answer = rare.flatMap(([role, heads], i) => [i ? " · " : "", figure(heads.join(" ")), ` ${role}`]);
  if (rare.length) answer.push(report.sequences.length ? ". " : ".");
  if (report.sequences.length) answer.push(quiet("Point at a word to see where it looks in each."));
  return { question: [count === 1 ? "What does this head do?" : `What does each of ${count} heads do?`], answer };
}

/** @param {ArrayLike<number>} values @param {Names} names */
function strongest(values, names) {
  return largest(values, 3, 0.005).map(({ index, value }) => ({ index, weight: value, name: names.name(index) }));
}
