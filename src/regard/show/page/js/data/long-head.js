// A head of a long text. A grid says how much of the attention of a block of queries is on a block of keys; the
// largest weights of every query are exact. Of a text that is short enough for all weights, the grid is the weights.

import { decodeExact, fromHalf } from "./exact-weights.js";
import { ceil, floor, isMissing, max, min } from "./math.js";
import { decodeWeights, HIDDEN, largest, Weights } from "./page-data.js";
import { PromiseCache } from "./promise-cache.js";

/** @import { LayerInfo, Reports } from "./page-data.js" */

const RANKS = 8; // exact weights of each query
const REMEMBERED = 16; // decoded heads

/** One head of a long text. */
export class LongHead {
  /**
   * @param {{T: number, S: number, mass: Weights, keys: Int32Array, weights: Float32Array, entropy: Float32Array,
   *   received: Float32Array, times: Float32Array}} parts times: what a key receives ÷ what even weights would give
   *   it; keys and weights: rank by rank, T each; key -1 is none
   */
  constructor(parts) {
    this.T = parts.T;
    this.S = parts.S;
    this.mass = parts.mass;
    this.keys = parts.keys;
    this.weights = parts.weights;
    this.entropy = parts.entropy;
    this.received = parts.received;
    this.times = parts.times;
    /** Every weight, where the page holds queries and keys. @type {import("./exact-weights.js").ExactHead | null} */
    this.exact = null;
    /** @type {Map<number, Weights>} */
    this.levels = new Map([[1, this.mass]]);
  }

  /** How many tokens a cell of the grid covers, at most. */
  get block() {
    return max(ceil(this.T / this.mass.T), ceil(this.S / this.mass.S));
  }

  /**
   * The largest weights of a query, largest first.
   * @param {number} query @param {number} [count] @returns {{key: number, weight: number}[]}
   */
  top(query, count = RANKS) {
    const found = [];
    for (let rank = 0; rank < min(count, RANKS); rank++) {
      const key = this.keys[rank * this.T + query];
      if (key >= 0) found.push({ key, weight: this.weights[rank * this.T + query] });
    }
    return found;
  }

  /**
   * The queries that give most to a key, of those that have it among their largest.
   * @param {number} key @returns {{query: number, weight: number}[]}
   */
  lookers(key) {
    const given = new Float32Array(this.T);
    for (let at = 0; at < this.keys.length; at++) if (this.keys[at] === key) given[at % this.T] = this.weights[at];
    return largest(given, RANKS, 1e-4).map(({ index, value }) => ({ query: index, weight: value }));
  }

  /**
   * The grid with `factor` cells in one, each way: sums over keys, means over queries, so rows still add up to 1.
   * @param {number} factor @returns {Weights}
   */
  level(factor) {
    let level = this.levels.get(factor);
    if (!level) {
      level = coarser(this.mass, factor, this.T);
      this.levels.set(factor, level);
    }
    return level;
  }

  /** The grid cell that holds a query and a key. @param {number} query @param {number} key */
  cell(query, key) {
    return { row: cellOf(query, this.T, this.mass.T), col: cellOf(key, this.S, this.mass.S) };
  }

  /**
   * A query of a block: the one with the largest weight on the key block, else the first.
   * @param {[number, number]} queries first, and after the last
   * @param {[number, number]} keys
   */
  tellingQuery(queries, keys) {
    let [best, most] = [queries[0], 0];
    for (let query = queries[0]; query < queries[1]; query++) {
      for (const { key, weight } of this.top(query)) {
        if (key >= keys[0] && key < keys[1] && weight > most) [best, most] = [query, weight];
      }
    }
    return best;
  }

  /** A head whose weights are all known. @param {Weights} exact @returns {LongHead} */
  static fromWeights(exact) {
    const { T, S } = exact;
    const keys = new Int32Array(T * RANKS).fill(-1);
    const weights = new Float32Array(T * RANKS);
    const entropy = new Float32Array(T);
    const even = new Float32Array(S);
    for (let query = 0; query < T; query++) {
      exact.top(query, RANKS, 1e-9).forEach(({ key, weight }, rank) => {
        keys[rank * T + query] = key;
        weights[rank * T + query] = weight;
      });
      const row = exact.row(query);
      const visible = row.reduce((count, p) => (isMissing(p) ? count : count + 1), 0);
      row.forEach((p, key) => {
        if (p > 0) entropy[query] -= p * Math.log(p);
        if (!isMissing(p)) even[key] += 1 / visible;
      });
    }
    const received = exact.received();
    const times = received.map((sum, key) => (even[key] ? sum / even[key] : NaN));
    return new LongHead({ T, S, mass: exact, keys, weights, entropy, received, times });
  }
}

/** Heads of long texts, decoded when they are needed. */
export class LongHeads {
  /** @param {Reports} reports */
  constructor(reports) {
    this.reports = reports;
    /** @type {PromiseCache<LongHead>} */
    this.decoded = new PromiseCache(REMEMBERED);
  }

  /** @param {number} report @param {number} layer @param {number} head @returns {Promise<LongHead>} */
  get(report, layer, head) {
    const key = `${report}.${layer}.${head}`;
    const info = this.reports.page.reports[report].layers[layer];
    return this.decoded.get(key, () => this.#decode(key, info, info.exact[head]));
  }

  /** @param {string} key @param {LayerInfo} info @param {import("./page-data.js").ExactInfo | undefined} exact */
  async #decode(key, info, exact) {
    const { transport } = this.reports;
    const [bytes, parts] = await Promise.all([transport(`long.${key}`), exact ? transport(`exact.${key}`) : null]);
    const head = decodeLong(bytes, info);
    if (exact && parts) head.exact = decodeExact(parts, info.T, info.S, exact);
    return head;
  }
}

/**
 * A head from bytes; show/page/long.py documents their order.
 * @param {Uint8Array} bytes @param {LayerInfo} info @returns {LongHead}
 */
export function decodeLong(bytes, info) {
  const { T, S, grid, encoding } = info;
  if (!grid || !encoding) throw new Error(`${info.name} has no grid.`);
  let start = (encoding.triangle ? (grid.rows * (grid.rows + 1)) / 2 : grid.rows * grid.cols) * 2;
  const mass = decodeWeights(bytes.subarray(0, start), grid.rows, grid.cols, encoding);
  const planes = (/** @type {number} */ length) => {
    const codes = new Uint16Array(length);
    for (let i = 0; i < length; i++) codes[i] = bytes[start + i] * 256 + bytes[start + length + i];
    start += 2 * length;
    return codes;
  };
  const steps = planes(T * RANKS);
  const weights = Float32Array.from(planes(T * RANKS), (code) => code / 65535);
  const keys = Int32Array.from(steps, (step, at) => (weights[at] ? ((at % T) + S - T - step) & 0xffff : -1));
  const floats = (/** @type {number} */ length) => Float32Array.from(planes(length), fromHalf);
  return new LongHead({ T, S, mass, keys, weights, entropy: floats(T), received: floats(S), times: floats(S) });
}

/**
 * The first token of a cell, of `cells` over `size` tokens.
 * @param {number} cell @param {number} size @param {number} cells
 */
export function firstOf(cell, size, cells) {
  return floor((cell * size) / cells);
}

/** The cell that holds a token. @param {number} token @param {number} size @param {number} cells */
export function cellOf(token, size, cells) {
  let cell = min(cells - 1, floor((token * cells) / size));
  while (cell + 1 < cells && firstOf(cell + 1, size, cells) <= token) cell++;
  return cell;
}

/**
 * A grid with `factor` cells in one, each way.
 * @param {Weights} grid
 * @param {number} factor
 * @param {number} T the queries that it covers
 * @returns {Weights}
 */
export function coarser(grid, factor, T) {
  const [rows, cols] = [ceil(grid.T / factor), ceil(grid.S / factor)];
  const sums = new Float64Array(rows * cols);
  const seen = new Uint8Array(rows * cols);
  const queries = new Float64Array(rows);
  for (let r = 0; r < grid.T; r++) {
    const size = firstOf(r + 1, T, grid.T) - firstOf(r, T, grid.T);
    const row = floor(r / factor);
    let counts = false;
    for (let c = 0; c < grid.S; c++) {
      const value = grid.at(r, c);
      if (isMissing(value)) continue;
      counts = true;
      const at = row * cols + floor(c / factor);
      sums[at] += value * size;
      seen[at] = 1;
    }
    if (counts) queries[row] += size;
  }
  return new Weights(
    rows,
    cols,
    Float32Array.from(sums, (sum, at) => (seen[at] ? sum / queries[floor(at / cols)] : HIDDEN)),
  );
}
