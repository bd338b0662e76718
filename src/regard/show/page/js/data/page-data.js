// Data: what a page holds, and how a head's weights are read from it.
//
// The document's JSON (`Page`) names everything; weights are in blocks of bytes that a transport hands over: from the
// file itself, from a notebook's kernel or from a server. A hidden cell (masked) is NaN, which no weight is.

import { floor, max } from "./math.js";
import { PromiseCache } from "./promise-cache.js";

/**
 * @typedef {{name: string, label: string, unit: string, about: string, signed: boolean}} Statistic signed: has a mean
 *   below 0
 * @typedef {{name: string, short: string, about: string, glyph: string, light: string, dark: string}} RoleInfo what
 *   heads of a role do: glyph is the shape that they draw on a map, a path in a square of 12; light and dark are its
 *   colours
 * @typedef {{name: string, label: string}} Averaged a statistic that has a mean for each head
 * @typedef {{role: string, clear: boolean, evidence: string, means: Record<string, number | null>}} HeadInfo
 * @typedef {{pieces: string[], names: Record<string, string>, bytes: Record<string, string>, padding: number[], words:
 *   number[]}} Sequence names: of tokens that are not shown as their text: padding, and bytes of a character, 猫:2;
 *   bytes: the latter in words, byte 2 of 3 of 猫; padding: the tokens that are padding
 * @typedef {{kind: "linear16" | "root7" | "float32", triangle: boolean, highest: number, coarse: number}} Encoding
 *   coarse: how much precision was given up for size, which the reader of root7 need not know
 * @typedef {{width: number, scale: number, causal: boolean, error: number}} ExactInfo
 * @typedef {{name: string, T: number, S: number, queries: number | null, keys: number | null, across: boolean,
 *   kv_heads: number, most: Record<string, number>, encoding: Encoding | null, grid: {rows: number, cols: number} |
 *   null, exact: Record<string, ExactInfo>, heads: HeadInfo[], steps: StepInfo[] | null, without_steps: string, marks?:
 *   string[], broken?: Record<string, {rows: [number, number][], kind: string}>}} LayerInfo broken: by head, the rows
 *   [first, last] whose weights are no numbers, and what made them so; marks: what is assumed or unknown about the
 *   layer; across: keys are of another text than queries; most: the largest possible value of each mean; grid: of a
 *   layer whose text is too long for all weights; exact: its heads whose queries and keys are here
 * @typedef {{name: string, operation: string, shape: string, why: string, dtype: string, axes: string[], sizes:
 *   number[], heads: number, bytes: number, block: string | null, made?: Recipe | null, strides: number[]}} StepInfo
 *   one named tensor of a layer, for one text: axes are "head", "query", "key", "width" or "" (unknown); heads: how
 *   many are side by side in the last axis; made: how its numbers are computed
 * @typedef {{by: string, of: number[], hidden?: string | null, factor?: number | null}} Recipe of a map: by "product",
 *   "mask", "scale", "softmax" or "same"; of: the numbers of the steps that it is made from; hidden: a block of bits
 * @typedef {{title: string, precision: string, sequences: Sequence[], layers: LayerInfo[], order: [number, number][],
 *   thumbnails: {rows: number, cols: number} | null}} Report
 * start: what is shown first, parts of the state; runs: have a tab each even where there are two.
 * @typedef {{format: number, statistics: Statistic[], averaged: Averaged[], roles: RoleInfo[], reports: Report[],
 *   start?: Partial<import("../shell/state.js").State>, runs?: boolean}} Page
 * @typedef {(key: string) => Promise<Uint8Array>} Transport
 * @typedef {"query" | "key"} Side the word that looks, or the one that is looked at
 */

export const HIDDEN = NaN;
const KEPT = 64; // decoded heads
const EXACT = 8; // largest weights of a row, which are exact
const LEAST_ERROR = 0.5 / 65534; // of a weight in 16 bits

/** The weights of one head: T rows (queries) of S columns (keys); NaN where the mask hides the key. */
export class Weights {
  /** @param {number} T @param {number} S @param {Float32Array} values @param {number} [error] */
  constructor(T, S, values, error = LEAST_ERROR) {
    this.T = T;
    this.S = S;
    this.values = values;
    /** The largest difference from the weights of the model, but for the largest of each row. */
    this.error = error;
  }

  /** How far a weight may be off: the largest of each row are exact. @param {number} query @param {number} key */
  errorAt(query, key) {
    if (this.error <= LEAST_ERROR) return this.error;
    return this.top(query, EXACT).some((one) => one.key === key) ? LEAST_ERROR : this.error;
  }

  /** @param {number} query @param {number} key */
  at(query, key) {
    return this.values[query * this.S + key];
  }

  /** @param {number} query @returns {Float32Array} */
  row(query) {
    return this.values.subarray(query * this.S, (query + 1) * this.S);
  }

  /** What every query gives to this key. @param {number} key @returns {Float32Array} */
  column(key) {
    return Float32Array.from({ length: this.T }, (_, query) => this.at(query, key));
  }

  /**
   * The largest weights of a row, largest first; hidden keys and weights below the least are left out.
   * @param {number} query @param {number} count @param {number} [least] @returns {{key: number, weight: number}[]}
   */
  top(query, count, least = 0) {
    return largest(this.row(query), count, least).map(({ index, value }) => ({ key: index, weight: value }));
  }

  /**
   * What a query looks at, or what looks at a key.
   * @param {Side} side @param {number} unit @returns {Float32Array}
   */
  line(side, unit) {
    return side === "query" ? this.row(unit) : this.column(unit);
  }

  /** The sum of what each key receives. @returns {Float32Array} */
  received() {
    const sums = new Float32Array(this.S);
    for (let i = 0; i < this.values.length; i++)
      if (this.values[i] === this.values[i]) sums[i % this.S] += this.values[i];
    return sums;
  }

  /**
   * Merge tokens into words: a word's query is the mean of its tokens, its key their sum, so rows still add up to 1.
   * @param {number[]} rows the word of each query
   * @param {number[]} cols the word of each key
   * @returns {Weights}
   */
  merged(rows, cols) {
    const [T, S] = [(rows.at(-1) ?? -1) + 1, (cols.at(-1) ?? -1) + 1];
    const sums = new Float64Array(T * S);
    const seen = new Uint8Array(T * S);
    const sizes = new Float64Array(T);
    for (let i = 0; i < this.T; i++) {
      let counts = false;
      for (let j = 0; j < this.S; j++) {
        const weight = this.at(i, j);
        if (weight !== weight) continue;
        const at = rows[i] * S + cols[j];
        sums[at] += weight;
        seen[at] = 1;
        counts = true;
      }
      if (counts) sizes[rows[i]] += 1;
    }
    return new Weights(
      T,
      S,
      Float32Array.from(sums, (sum, at) => (seen[at] ? sum / sizes[floor(at / S)] : HIDDEN)),
      max(10 * LEAST_ERROR, 10 * this.error), // of a word in pieces, at most ten
    );
  }
}

/**
 * The indices of the largest numbers, largest first; NaN is left out.
 * @param {ArrayLike<number>} values
 * @param {number} count
 * @param {number} [least]
 * @returns {{index: number, value: number}[]}
 */
export function largest(values, count, least = 0) {
  /** @type {{index: number, value: number}[]} */
  const best = [];
  for (let index = 0; index < values.length; index++) {
    const value = values[index];
    if (!(value >= least) || (best.length === count && value <= best[count - 1].value)) continue;
    let at = best.length;
    while (at > 0 && best[at - 1].value < value) at--;
    best.splice(at, 0, { index, value });
    if (best.length > count) best.pop();
  }
  return best;
}

/** The reports of a page, with weights decoded when they are needed. */
export class Reports {
  /** @param {Page} page @param {Transport} transport */
  constructor(page, transport) {
    this.page = page;
    this.transport = transport;
    /** @type {PromiseCache<Weights>} */
    this.decoded = new PromiseCache(KEPT);
    /** @type {PromiseCache<Uint8Array>} */
    this.small = new PromiseCache(KEPT);
  }

  /**
   * The weights of a head.
   * @param {number} report @param {number} layer @param {number} head @returns {Promise<Weights>}
   */
  weights(report, layer, head) {
    const key = `${report}.${layer}.${head}`;
    return this.decoded.get(key, async () => {
      const { T, S, encoding, grid } = this.page.reports[report].layers[layer];
      if (!encoding || grid) throw new Error(`The weights of layer ${layer} are not in this page.`);
      return decodeWeights(await this.transport(`weights.${key}`), T, S, encoding);
    });
  }

  /** What is said of a role. @param {string} name @returns {RoleInfo} */
  role(name) {
    const { roles } = this.page;
    return roles.find((one) => one.name === name) ?? roles[roles.length - 1];
  }

  /**
   * A small picture of every head: bytes, row by row, head by head; 255 is hidden, and else the root of the weight.
   * @param {number} report @returns {Promise<Uint8Array>}
   */
  thumbnails(report) {
    return this.small.get(String(report), () => this.transport(`thumbnails.${report}`));
  }
}

/**
 * Weights from bytes.
 *
 * linear16: weight · 65534 (÷ 2^coarse), first all high bytes, then all low bytes; 65535 is hidden.
 * root7: the root of weight ÷ highest, · 126, a byte each; 127 is hidden. Then, for each query, its largest weights
 *   exactly: 8 keys (uint16) and 8 weights (uint16, · 65535); key 65535 is none.
 * float32: the rows of a triangle as they were computed; NaN is hidden.
 * A triangle holds only keys that are not after their query.
 * @param {Uint8Array} bytes
 * @param {number} T
 * @param {number} S
 * @param {Encoding} encoding
 * @returns {Weights}
 */
export function decodeWeights(bytes, T, S, encoding) {
  const values = new Float32Array(T * S).fill(HIDDEN);
  if (encoding.kind === "float32") {
    const rows = new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);
    for (let i = 0, at = 0; i < T; at += ++i) values.set(rows.subarray(at, at + i + 1), i * S);
    return new Weights(T, S, values);
  }
  const length = encoding.triangle ? (T * (T + 1)) / 2 : T * S;
  const one = 65534 >> (encoding.coarse ?? 0);
  let at = 0;
  for (let i = 0; i < T; i++) {
    const end = encoding.triangle ? i + 1 : S;
    for (let j = 0; j < end; j++, at++) {
      if (encoding.kind === "linear16") {
        const code = bytes[at] * 256 + bytes[length + at];
        if (code < 65535) values[i * S + j] = code / one;
      } else if (bytes[at] < 127) {
        values[i * S + j] = (bytes[at] / 126) ** 2 * encoding.highest;
      }
    }
  }
  if (encoding.kind === "root7") {
    const exact = new DataView(bytes.buffer, bytes.byteOffset + length);
    for (let i = 0; i < T; i++) {
      for (let n = 0; n < 8; n++) {
        const key = exact.getUint16((i * 16 + n) * 2, true);
        if (key < 65535) values[i * S + key] = exact.getUint16((i * 16 + 8 + n) * 2, true) / 65535;
      }
    }
  }
  // as Encoding.error of show/page/encode.py
  const { kind, highest, coarse } = encoding;
  const error = kind === "linear16" ? LEAST_ERROR : (highest * (126 / 2 ** (coarse / 2) + 0.25)) / 126 ** 2;
  return new Weights(T, S, values, error);
}

/**
 * A transport for blocks that are in the document: base64 of gzip, in `<script type="text/plain" id="block-KEY">`.
 * @param {Document} document @returns {Transport}
 */
export function embedded(document) {
  return (key) => blockOf(document, key);
}

/** @param {Document} document @param {string} key @returns {Promise<Uint8Array<ArrayBuffer>>} */
export async function blockOf(document, key) {
  const block = document.getElementById(`block-${key}`);
  if (!block) throw new Error(`${key} is not in this file.`);
  const packed = fromBase64(block.textContent ?? "");
  const bytes = await gunzip(packed);
  /** @type {any} */ (packed.buffer).transfer?.(0); // given back now, not when garbage is collected
  return bytes;
}

/**
 * The bytes come from a Response, not from a Blob, which a browser keeps in another process: ten times slower.
 * @param {Uint8Array<ArrayBuffer>} bytes @returns {Promise<Uint8Array<ArrayBuffer>>}
 */
export async function gunzip(bytes) {
  const body = /** @type {ReadableStream<Uint8Array<ArrayBuffer>>} */ (new Response(bytes).body);
  const stream = body.pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** @param {string} text @returns {Uint8Array<ArrayBuffer>} */
function fromBase64(text) {
  const decode = /** @type {any} */ (Uint8Array).fromBase64; // new in 2025, and three times as fast
  if (decode) return decode.call(Uint8Array, text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}
