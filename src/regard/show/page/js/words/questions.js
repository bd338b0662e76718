// Questions: every view opens with one, and with its answer. Answers state facts of position and weights, nothing more.

import { isMissing, max } from "../data/math.js";
import { largest } from "../data/page-data.js";
import { brokenKind, whereBroken } from "./broken.js";
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
  return { text: names.name(unit), kind: "chosen", sup: placeOf(names, unit) };
}

/** Where a word stands that occurs more than once. @param {Names} names @param {number} unit */
export function placeOf(names, unit) {
  return names.repeated[unit] && names.known ? `@${names.first[unit]}` : undefined;
}

/**
 * Names and their weights: cat 0.41 · sat 0.20.
 * @param {{name: string, weight: number, before?: Part, after?: string, sup?: string}[]} list @returns {Part[]}
 */
export function listed(list) {
  return list.flatMap(({ name, weight, before = "", after = "", sup }, i) => [
    i ? " · " : "",
    before,
    { text: name, kind: /** @type {const} */ ("strong"), sup },
    " ",
    figure(number(weight)),
    after,
  ]);
}

/**
 * The query that says most about a head, its clearest row: a large weight on what followed the same word before, in
 * one place or in several, else on another word that is neither the first nor the query itself. Both words should be
 * worth reading: whole, and of some length.
 * @param {{T: number, top: Weights["top"]}} weights all of them, or the largest of a long text
 * @param {Names} rows
 * @param {Names} cols
 * @returns {number}
 */
export function telling(weights, rows, cols) {
  const same = Names.same(rows, cols);
  const [lookers, looked] = [rows, cols].map(worth);
  let [best, most] = [max(0, weights.T - 1), -1];
  for (let query = 0; query < weights.T; query++) {
    const top = weights.top(query, 8);
    if (top.length < 2) continue; // a query that sees one key has no choice
    const after = same ? top.filter(({ key }) => isAfterSame(rows.texts, query, key)) : [];
    const copied = after.reduce((sum, { weight }) => sum + weight, 0);
    const other = top.find(({ key }) => key !== 0 && key !== query) ?? top[0];
    const plain = other.weight * (other.key === 0 || other.key === query ? 0.1 : 0.8);
    const [value, key] = copied > plain ? [copied, after[0].key] : [plain, other.key];
    const told = value * lookers[query] * looked[key];
    if (told > most) [best, most] = [query, told];
  }
  return best;
}

/** How much each word is worth reading: a whole one of four letters most, a comma least. @param {Names} names */
export function worth(names) {
  const pieces = new Set(names.ties.flatMap(([first, last]) => range(first, last)));
  return names.names.map((name, i) => {
    const letters = /\p{L}{4}/u.test(name) ? 1 : /\p{L}{3}/u.test(name) ? 0.85 : /\p{L}{2}/u.test(name) ? 0.7 : 0.5;
    return letters * (pieces.has(i) ? 0.7 : 1);
  });
}

/** @param {number} first @param {number} last */
function range(first, last) {
  return Array.from({ length: last - first + 1 }, (_, i) => first + i);
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
    let [sum, even] = [0, 0];
    column.forEach((value, query) => {
      if (isMissing(value)) return;
      sum += value;
      even += 1 / weights.row(query).reduce((count, one) => (isMissing(one) ? count : count + 1), 0);
    });
    const rest = quiet(`. ${receives(sum, sum / even)}`);
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
 * The question about a word whose weights are no numbers, with what made them so.
 * @param {Ask} ask @param {import("../shell/app.js").App} app @returns {Ask}
 */
export function withoutNumbers({ question }, { report, store }) {
  const { layer, head } = store.state;
  const kind = brokenKind(report.layers[layer], head);
  const why = kind === "NaN" ? "they are NaN" : "a score is infinite";
  return { question, answer: [strong("Its weights are not numbers"), `: ${why}. ${whereBroken(report)}`] };
}

/**
 * "What does each of 48 heads do?"
 * @param {Report} report
 * @param {{name: string, place: string, weight: number}[]} found where the word in focus looks, strongest first; empty
 *   without a focus
 * @param {Part | null} word in focus
 * @param {string} [asked] the role that heads are filtered by
 * @returns {Ask}
 */
export function askHeads(report, found, word, asked = "") {
  const count = report.layers.reduce((sum, layer) => sum + layer.heads.length, 0);
  if (word) {
    const answer = listed(found.slice(0, 4).map((one) => ({ ...one, before: quiet(`${one.place} `) })));
    const where = found.length < count ? `in the ${found.length} heads that read it` : "in every head";
    return { question: ["Where does ", word, ` look, ${found.length ? where : "in each head"}?`], answer };
  }
  if (asked) {
    const heads = report.order.filter(([layer, head]) => report.layers[layer].heads[head].role === asked);
    const places = heads.map((place) => place.join(".")).join(" ");
    const answer = [`${heads.length || "None"} of ${count}${heads.length ? ": " : "."}`, figure(places)];
    return { question: ["Which heads have the role ", { text: asked, kind: "chosen" }, "?"], answer };
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
  const broken = whereBroken(report);
  if (broken) answer.unshift(strong("Not all weights are numbers: "), `${broken} `);
  if (rare.length) answer.push(report.sequences.length ? ". " : ".");
  if (report.sequences.length) answer.push(quiet("Point at a word to see where it looks in each."));
  return { question: [count === 1 ? "What does this head do?" : `What does each of ${count} heads do?`], answer };
}

/**
 * What a word receives: the sum of all weights on it, and how many times that of even weights it is.
 * @param {number} sum @param {number} times
 */
export function receives(sum, times) {
  const size = times >= 10 ? times.toFixed(0) : times.toFixed(1);
  return `It receives ${number(sum)} in all${isMissing(times) ? "" : `, ${size} × what even weights would give it`}.`;
}

/** @param {ArrayLike<number>} values @param {Names} names */
function strongest(values, names) {
  return largest(values, 3, 0.005).map(({ index, value }) => ({
    index,
    weight: value,
    name: names.name(index),
    sup: placeOf(names, index),
  }));
}
