// Byte-level BPE, as regard/gpt/tokenizer/portable.py describes it: text to token ids, and back.
//
// Normalize, cut into words, write each word as the tokens of its bytes, and join neighbours: of all pairs that may be
// joined the one that was learned first, and of several of these the leftmost.

/**
 * @typedef {{format: number, tokens: (string | null)[], bytes: number[], merges: number[], whole_words: boolean,
 *   normalizers: string[], splits: string[], prefix_space: boolean, added: {id: number, content: string, in_text:
 *   boolean}[]}} Tables merges: three ids each, two tokens and what they are joined to
 */

const FORMAT = 1;
const MOST_REMEMBERED = 4096; // words whose tokens are kept

export class Tokenizer {
  /** @param {Tables} tables */
  constructor(tables) {
    if (tables.format !== FORMAT)
      throw new Error(`This page reads tokenizers of format ${FORMAT}, not ${tables.format}.`);
    this.tables = tables;
    this.size = tables.tokens.length;
    /** Rank and result of joining two tokens, by first · size + second. @type {Map<number, [number, number]>} */
    this.merges = new Map();
    const { merges } = tables;
    for (let at = 0; at < merges.length; at += 3) {
      const pair = merges[at] * this.size + merges[at + 1];
      if (!this.merges.has(pair)) this.merges.set(pair, [at / 3, merges[at + 2]]);
    }
    this.splits = tables.splits.map((pattern) => new RegExp(pattern, "gu"));
    this.ids = new Map(tables.whole_words ? tables.tokens.map((token, id) => [token, id]) : []);
    /** The bytes of each token. @type {Map<number, Uint8Array>} */
    this.bytes = new Map();
    const characters = byteCharacters();
    this.byteOf = new Map(characters.map((character, byte) => [character, byte]));
    this.characters = characters;
    this.added = new Map(tables.added.map((one) => [one.id, one.content]));
    this.special = new Set(tables.added.flatMap((one) => (one.in_text ? [] : [one.id])));
    const inText = tables.added.filter((one) => one.in_text).sort((a, b) => b.content.length - a.content.length);
    this.inText = inText.length ? new RegExp(inText.map((one) => escaped(one.content)).join("|"), "gu") : null;
    this.idOfAdded = new Map(tables.added.map((one) => [one.content, one.id]));
    /** @type {Map<string, number[]>} */
    this.known = new Map();
  }

  /** The token ids of a text; half of a surrogate pair is read as �. @param {string} text @returns {number[]} */
  encode(text) {
    const ids = /** @type {number[]} */ ([]);
    for (const [part, isToken] of cut(wellFormed(text), this.inText)) {
      if (isToken) ids.push(/** @type {number} */ (this.idOfAdded.get(part)));
      else for (const id of this.#encodePart(part)) ids.push(id);
    }
    return ids;
  }

  /** @param {string} part a text without added tokens @returns {Generator<number>} */
  *#encodePart(part) {
    let text = this.tables.normalizers.reduce((before, form) => before.normalize(form), part);
    if (!text) return;
    if (this.tables.prefix_space && !text.startsWith(" ")) text = ` ${text}`;
    let words = [text];
    for (const pattern of this.splits) words = words.flatMap((word) => [...cut(word, pattern)].map(([one]) => one));
    for (const word of words) yield* this.#encodeWord(word);
  }

  /** @param {string} word @returns {number[]} */
  #encodeWord(word) {
    const known = this.known.get(word);
    if (known) return known;
    const bytes = new TextEncoder().encode(word);
    const whole = this.tables.whole_words && this.ids.get(Array.from(bytes, (byte) => this.characters[byte]).join(""));
    const ids = typeof whole === "number" ? [whole] : this.#join(Array.from(bytes, (byte) => this.tables.bytes[byte]));
    if (word.length <= 64) {
      if (this.known.size >= MOST_REMEMBERED) this.known.clear();
      this.known.set(word, ids);
    }
    return ids;
  }

  /**
   * Join neighbours until no pair is left that may be joined.
   * @param {number[]} ids @returns {number[]}
   */
  #join(ids) {
    const next = ids.map((_, i) => i + 1);
    const last = ids.map((_, i) => i - 1);
    const queue = new Queue();
    const offer = (/** @type {number} */ i) => {
      if (i < 0 || next[i] >= ids.length) return;
      const merge = this.merges.get(ids[i] * this.size + ids[next[i]]);
      if (merge) queue.push(merge[0], i, merge[1]);
    };
    ids.forEach((_, i) => offer(i));
    for (let best = queue.pop(); best; best = queue.pop()) {
      const [rank, i, joined] = best;
      // One of the two was joined to another meanwhile.
      const merge = ids[i] < 0 || next[i] >= ids.length ? null : this.merges.get(ids[i] * this.size + ids[next[i]]);
      if (!merge || merge[0] !== rank) continue;
      ids[i] = joined;
      ids[next[i]] = -1;
      next[i] = next[next[i]];
      if (next[i] < ids.length) last[next[i]] = i;
      offer(last[i]);
      offer(i);
    }
    return ids.filter((id) => id >= 0);
  }

  /** The text of token ids; what is no UTF-8 becomes �. @param {number[]} ids @returns {string} */
  decode(ids) {
    const [parts, bytes] = [/** @type {string[]} */ ([]), /** @type {number[]} */ ([])];
    const flush = () =>
      parts.push(new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(bytes.splice(0))));
    for (const id of ids) {
      const added = this.added.get(id) ?? (typeof this.tables.tokens[id] === "string" ? undefined : "\ufffd");
      if (added === undefined) bytes.push(...this.bytesOf(id));
      else flush(), parts.push(added);
    }
    flush();
    return parts.join("");
  }

  /** Is a token no part of the text, such as its end? @param {number} id */
  isSpecial(id) {
    return this.special.has(id) || (!this.added.has(id) && typeof this.tables.tokens[id] !== "string");
  }

  /** The bytes of a token. @param {number} id @returns {Uint8Array} */
  bytesOf(id) {
    const known = this.bytes.get(id);
    if (known) return known;
    const token = this.added.get(id) ?? this.tables.tokens[id] ?? `<id ${id}>`;
    const codes = Array.from(token, (character) => this.byteOf.get(character) ?? -1);
    const bytes = codes.includes(-1) || this.added.has(id) ? new TextEncoder().encode(token) : Uint8Array.from(codes);
    this.bytes.set(id, bytes);
    return bytes;
  }
}

/** The smallest rank first, and of equal ranks the leftmost. */
class Queue {
  constructor() {
    /** @type {[number, number, number][]} rank, place, result */
    this.heap = [];
  }

  /** @param {number} rank @param {number} place @param {number} joined */
  push(rank, place, joined) {
    const { heap } = this;
    let at = heap.length;
    const one = /** @type {[number, number, number]} */ ([rank, place, joined]);
    heap.push(one);
    for (let up = (at - 1) >> 1; at > 0 && isBefore(one, heap[up]); up = (at - 1) >> 1) {
      heap[at] = heap[up];
      at = up;
    }
    heap[at] = one;
  }

  pop() {
    const { heap } = this;
    const [first, end] = [heap[0], heap.pop()];
    if (!end || !heap.length) return end;
    let at = 0;
    for (let child = 1; child < heap.length; child = 2 * at + 1) {
      if (child + 1 < heap.length && isBefore(heap[child + 1], heap[child])) child++;
      if (!isBefore(heap[child], end)) break;
      heap[at] = heap[child];
      at = child;
    }
    heap[at] = end;
    return first;
  }
}

/** @param {number[]} a @param {number[]} b */
function isBefore(a, b) {
  return a[0] < b[0] || (a[0] === b[0] && a[1] < b[1]);
}

/**
 * What a pattern finds in a text, and what is between; no pattern: the whole text.
 * @param {string} text @param {RegExp | null} pattern @returns {Generator<[string, boolean]>} part, is it a match?
 */
function* cut(text, pattern) {
  let end = 0;
  for (const match of pattern ? text.matchAll(pattern) : []) {
    if (!match[0]) continue;
    if (match.index > end) yield [text.slice(end, match.index), false];
    yield [match[0], true];
    end = match.index + match[0].length;
  }
  if (end < text.length) yield [text.slice(end), false];
}

/** The character that a vocabulary writes for each byte: itself where it can be seen, else one from U+0100 on. */
function byteCharacters() {
  let other = 256;
  return Array.from({ length: 256 }, (_, byte) => {
    const isSeen = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
    return String.fromCharCode(isSeen ? byte : other++);
  });
}

/** @param {string} text */
function wellFormed(text) {
  return text.replace(/\p{Surrogate}/gu, "\ufffd");
}

/** @param {string} text */
function escaped(text) {
  return text.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&");
}
