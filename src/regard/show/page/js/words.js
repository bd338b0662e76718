// @ts-check
// Words: the names of rows and columns, and what can be said of two positions: facts, never interpretation.

import { abs, floor, max, min } from "./numbers.js";

/** @typedef {import("./data.js").Sequence} Sequence */
/** @typedef {import("./data.js").LayerInfo} LayerInfo */
/** @typedef {import("./data.js").Report} Report */

/** The rows or columns of a map: tokens, or words. */
export class Names {
  /**
   * @param {Sequence | null} sequence null where nothing is known of the tokens
   * @param {number} length in tokens
   * @param {boolean} words merge the pieces of words
   */
  constructor(sequence, length, words) {
    this.known = sequence !== null;
    this.length = length;
    const pieces = sequence ? sequence.pieces : Array.from({ length }, (_, i) => String(i));
    /** The unit (word or token) of each token. */
    this.unit = words && sequence ? sequence.words : Array.from({ length }, (_, i) => i);
    /** @type {string[]} the text of each unit, with the spaces around it */
    this.texts = [];
    for (let i = 0; i < length; i++) this.texts[this.unit[i]] = (this.texts[this.unit[i]] ?? "") + pieces[i];
    /** What is shown: no spaces around it, visible characters for those that are not. */
    this.names = this.texts.map(visible);
    if (sequence && !words)
      for (const [token, name] of Object.entries(sequence.names)) this.names[Number(token)] = name;
    /** @type {Record<string, number>} */
    const count = {};
    for (const name of this.names) count[name] = (count[name] ?? 0) + 1;
    this.repeated = this.names.map((name) => count[name] > 1);
    /** The first token of each unit. @type {number[]} */
    this.first = [];
    this.unit.forEach((unit, token) => {
      if (this.first[unit] === undefined) this.first[unit] = token;
    });
    /** Pieces that are tied together in token mode: runs of tokens of one word. */
    this.ties = sequence && !words ? runs(sequence.words) : [];
  }

  /**
   * The blocks of a long text, named by their tokens: "0–31".
   * @param {number} length in tokens
   * @param {number} blocks
   * @returns {Names}
   */
  static blocks(length, blocks) {
    const names = new Names(null, blocks, false);
    const first = (/** @type {number} */ block) => floor((block * length) / blocks);
    names.names = names.texts.map((_, i) =>
      first(i + 1) - first(i) > 1 ? `${first(i)}–${first(i + 1) - 1}` : String(first(i)),
    );
    return names;
  }

  get size() {
    return this.names.length;
  }

  /**
   * The names of a layer's queries and keys.
   * @param {Report} report
   * @param {import("./data.js").LayerInfo} layer
   * @param {boolean} words
   */
  static of(report, layer, words) {
    const sequence = (/** @type {number | null} */ at) => (at === null ? null : report.sequences[at]);
    return {
      rows: new Names(sequence(layer.queries), layer.T, words),
      cols: new Names(sequence(layer.keys), layer.S, words),
    };
  }

  /**
   * The name of a unit for a sentence: with its position where the name occurs more than once.
   * @param {number} unit
   */
  label(unit) {
    return this.repeated[unit] && this.known ? `${this.names[unit]}@${this.first[unit]}` : this.names[unit];
  }
}

/**
 * A token's text as it can be seen: without the spaces around it, unless there is nothing else.
 * @param {string} text
 * @returns {string}
 */
export function visible(text) {
  const plain = text.trim() || text.replaceAll("\n", "↵").replaceAll("\t", "⇥").replaceAll(" ", "␣");
  return plain.replace(/[\p{Cc}\p{Cs}\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu, "\ufffd") || "∅";
}

/**
 * Runs of at least two equal numbers: [first, last].
 * @param {number[]} numbers
 * @returns {[number, number][]}
 */
function runs(numbers) {
  /** @type {[number, number][]} */
  const found = [];
  for (let start = 0; start < numbers.length; ) {
    let end = start;
    while (numbers[end + 1] === numbers[start]) end++;
    if (end > start) found.push([start, end]);
    start = end + 1;
  }
  return found;
}

/**
 * Where a key stands, seen from a query of the same text: a fact, or "" where there is none worth saying.
 * @param {string[]} texts the text of every unit
 * @param {number} query
 * @param {number} key
 * @returns {string}
 */
export function relation(texts, query, key) {
  if (key === query) return "itself";
  const name = visible(texts[query]);
  const same = texts[query].trim();
  if (key > 0 && key - 1 < query && texts[key - 1].trim() === same && key !== query && same) {
    const earlier = texts.slice(0, query).filter((text) => text.trim() === same).length;
    if (earlier === 1) return `what came after “${name}” the first time`;
    return `what came after an earlier “${name}”`;
  }
  if (key < query && texts[key].trim() === same && same) return `an earlier “${name}”`;
  if (key === query - 1) return "the token just before";
  if (key === query + 1) return "the token just after";
  if (key === 0) return "the first token";
  return "";
}

/**
 * A weight as a person reads it.
 * @param {number} weight
 * @returns {string}
 */
export function number(weight) {
  return abs(weight) < 1000 ? weight.toFixed(2) : weight.toFixed(0);
}

/**
 * A sentence of sizes: "6 layers × 8 heads · 37 tokens".
 * @param {Report} report
 * @returns {string}
 */
export function sizes(report) {
  const heads = [...new Set(report.layers.map((layer) => layer.heads.length))];
  const lengths = [...new Set(report.layers.map((layer) => layer.T))];
  const layers = `${report.layers.length} layer${report.layers.length === 1 ? "" : "s"}`;
  const each =
    heads.length === 1 ? `${heads[0]} head${heads[0] === 1 ? "" : "s"}` : `${min(...heads)} to ${max(...heads)} heads`;
  const tokens = lengths.length === 1 ? `${lengths[0]} tokens` : `${min(...lengths)} to ${max(...lengths)} tokens`;
  return `${layers} × ${each} · ${tokens}`;
}
