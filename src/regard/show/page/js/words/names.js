// Words: the names of rows and columns, and what can be said of two positions: facts, never interpretation.

import { abs, floor, max, min, round } from "../data/math.js";
import { MINUS } from "./equations.js";

/** @import { Report, Sequence } from "../data/page-data.js" */

const LONGEST = 64; // characters of a name; a token may have a million

/** The rows or columns of a map: tokens, or words. */
export class Names {
  /**
   * @param {Sequence | null} sequence null where nothing is known of the tokens
   * @param {number} length in tokens
   * @param {boolean} words merge the pieces of words
   */
  constructor(sequence, length, words) {
    this.known = sequence !== null;
    this.sequence = sequence;
    this.length = length;
    /** Is the other side of the map another text? */
    this.apart = false;
    /** What stands before a number in a sentence. */
    this.noun = this.known ? "" : "position ";
    const pieces = sequence ? sequence.pieces : Array.from({ length }, (_, i) => String(i));
    /** The unit (word or token) of each token. */
    this.unit = words && sequence ? sequence.words : Array.from({ length }, (_, i) => i);
    const padding = new Set(sequence?.padding);
    /** Which units are padding. @type {boolean[]} */
    this.padding = [];
    /** @type {string[]} the text of each unit, with the spaces around it; padding has none */
    this.texts = [];
    for (let i = 0; i < length; i++) {
      const unit = this.unit[i];
      this.padding[unit] = padding.has(i);
      this.texts[unit] = (this.texts[unit] ?? "") + (padding.has(i) ? "" : pieces[i]);
    }
    /** What is shown: no spaces around it, visible characters for those that are not. */
    this.names = this.texts.map(visible);
    for (const [token, name] of Object.entries(sequence?.names ?? {}))
      if (!words || padding.has(Number(token))) this.names[this.unit[Number(token)]] = name;
    /** Tokens that are bytes of a character, in words. @type {Record<string, string>} */
    this.bytes = (!words && sequence?.bytes) || {};
    /** @type {Map<string, number>} */
    const count = new Map();
    for (const name of this.names) count.set(name, (count.get(name) ?? 0) + 1);
    this.repeated = this.names.map((name) => (count.get(name) ?? 0) > 1);
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
    names.noun = "";
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
   * @param {Report} report @param {import("../data/page-data.js").LayerInfo} layer @param {boolean} words
   */
  static of(report, layer, words) {
    const sequence = (/** @type {number | null} */ at) => (at === null ? null : report.sequences[at]);
    const [rows, cols] = [
      new Names(sequence(layer.queries), layer.T, words),
      new Names(sequence(layer.keys), layer.S, words),
    ];
    rows.apart = cols.apart = layer.across;
    return { rows, cols };
  }

  /**
   * Are these the rows and columns of a text that looks at itself, so that its positions can be compared?
   * @param {Names} rows @param {Names} cols
   */
  static same(rows, cols) {
    return rows.known && rows.sequence === cols.sequence && !rows.apart;
  }

  /**
   * The name of a unit in a sentence: of unknown tokens "position 7", of a byte "byte 2 of 3 of 猫".
   * @param {number} unit
   */
  name(unit) {
    return this.bytes[unit] ?? this.noun + this.names[unit];
  }

  /** The same, with its position where the name occurs more than once. @param {number} unit */
  said(unit) {
    return this.name(unit) + this.#at(unit);
  }

  /** The shortest name that no other unit has. @param {number} unit */
  label(unit) {
    return this.noun + this.names[unit] + this.#at(unit);
  }

  /**
   * The units that a person may mean: by label, else by name, else by how the name begins.
   * @param {string} text @returns {number[]}
   */
  matching(text) {
    const units = this.names.map((_, unit) => unit).filter((unit) => !this.padding[unit]);
    const lower = text.toLowerCase();
    const name = (/** @type {number} */ unit) => this.names[unit].toLowerCase();
    const by = [
      (/** @type {number} */ unit) => this.label(unit) === text,
      (/** @type {number} */ unit) => name(unit) === lower || this.texts[unit].trim().toLowerCase() === lower,
      (/** @type {number} */ unit) => name(unit).startsWith(lower),
    ];
    return by.map((is) => units.filter(is)).find((found) => found.length) ?? [];
  }

  /**
   * Units whose names fit where each takes the room of `every`: of neighbours the longer word, so that a map of many
   * tokens can be read.
   * @param {number} every @returns {Set<number>}
   */
  labelled(every) {
    const letters = this.names.map((name) => min(7, name.match(/\p{L}/gu)?.length ?? 0));
    /** @type {Set<number>} */
    const shown = new Set();
    for (let first = 0; first < this.size; ) {
      let best = first;
      for (let i = first; i < min(this.size, first + every); i++) if (letters[i] > letters[best]) best = i;
      shown.add(best);
      first = best + every;
    }
    return shown;
  }

  /** @param {number} unit */
  #at(unit) {
    return this.repeated[unit] && this.known ? `@${this.first[unit]}` : "";
  }
}

/**
 * A token's text as it can be seen, on one line: without the spaces around it, unless there is nothing else. A very
 * long one is cut.
 * @param {string} text @returns {string}
 */
export function visible(text) {
  const trimmed = text.trim();
  if (!trimmed)
    return (
      text
        .replace(/\r\n|\n/g, "⏎")
        .replaceAll("\t", "⇥")
        .replaceAll(" ", "␣")
        .replace(INVISIBLE, escaped) || "∅"
    );
  const short = cut(trimmed);
  return /^(?:\u200c|\u200d|\ufe0e|\ufe0f)+$/.test(short)
    ? short.replace(/./g, escaped)
    : short.replace(INVISIBLE, escaped);
}

/**
 * A text with the spaces and line breaks that it has, and visible characters for others that cannot be seen: controls
 * could reorder what stands beside it.
 * @param {string} text
 */
export function readable(text) {
  return cut(text).replace(INVISIBLE, (character) => (/\s/.test(character) ? " " : escaped(character)));
}

/**
 * A name that stands beside other text: letters that run from right to left must not reorder it.
 * @param {string} name
 */
export function isolated(name) {
  const [open, close] = [0x2068, 0x2069].map((code) => String.fromCharCode(code));
  return RIGHT_TO_LEFT.test(name) ? open + name + close : name;
}

/** Does a text run from right to left? Its first letter says so. @param {string} text */
export function isRightToLeft(text) {
  return RIGHT_TO_LEFT.test(/\p{L}/u.exec(text)?.[0] ?? "");
}

const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;
/** Characters without a shape, but for spaces and for those that join letters and emoji. */
const INVISIBLE = /(?! |\u200c|\u200d)[\p{C}\p{Z}]/gu;

/** @param {string} text */
function cut(text) {
  if (text.length <= LONGEST) return text;
  return `${[...text.slice(0, LONGEST)].slice(0, -1).join("")}…`; // the last may be half a character
}

/** A character by its number, as Python writes it: \x1b, \u202e. @param {string} character */
function escaped(character) {
  const code = (character.codePointAt(0) ?? 0).toString(16);
  const [mark, digits] = code.length <= 2 ? ["x", 2] : code.length <= 4 ? ["u", 4] : ["U", 8];
  return { "\n": "\\n", "\t": "\\t", "\r": "\\r" }[character] ?? `\\${mark}${code.padStart(digits, "0")}`;
}

/** Runs of at least two equal numbers: [first, last]. @param {number[]} numbers @returns {[number, number][]} */
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
  if (isAfterSame(texts, query, key)) {
    const earlier = texts.slice(0, query).filter((text) => text.trim() === same).length;
    return earlier === 1 ? `what came after “${name}” the first time` : `what came after an earlier “${name}”`;
  }
  if (key < query && texts[key].trim() === same && same) return `an earlier “${name}”`;
  if (key === query - 1) return "the token just before";
  if (key === query + 1) return "the token just after";
  return key === 0 ? "the first token" : "";
}

/**
 * Does a key stand after an earlier unit with the query's text?
 * @param {string[]} texts @param {number} query @param {number} key
 */
export function isAfterSame(texts, query, key) {
  const same = texts[query].trim();
  return Boolean(same) && key > 0 && key - 1 < query && key !== query && texts[key - 1].trim() === same;
}

/** A weight or a mean as a person reads it. @param {number} value @returns {string} */
export function number(value) {
  const text = abs(value).toFixed(abs(value) < 1000 ? 2 : 0);
  return (value < 0 && Number(text) !== 0 ? MINUS : "") + text;
}

/**
 * A weight with as many digits as are known.
 * @param {number} value @param {number} error the largest difference from the weight of the model
 */
export function precise(value, error) {
  return value.toFixed(min(5, max(2, round(-Math.log10(error)))));
}

/** A sentence of sizes: "6 layers × 8 heads · 37 tokens". @param {Report} report @returns {string} */
export function sizes(report) {
  const heads = [...new Set(report.layers.map((layer) => layer.heads.length))];
  const lengths = [...new Set(report.layers.flatMap(({ T, S }) => [T, S]))];
  const layers = `${report.layers.length} layer${report.layers.length === 1 ? "" : "s"}`;
  const each =
    heads.length === 1 ? `${heads[0]} head${heads[0] === 1 ? "" : "s"}` : `${min(...heads)} to ${max(...heads)} heads`;
  const noun = report.sequences.length ? "tokens" : "positions";
  const tokens =
    lengths.length === 1
      ? `${lengths[0]} ${lengths[0] === 1 ? noun.slice(0, -1) : noun}`
      : `${min(...lengths)} to ${max(...lengths)} ${noun}`;
  const padding = max(0, ...report.sequences.map((one) => one.padding.length));
  return `${layers} × ${each} · ${tokens}${padding ? `, ${padding} of them padding` : ""}`;
}
