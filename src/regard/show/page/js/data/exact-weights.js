// Exact weights of a long text: computed from queries and keys when they are looked at.

/** @import { ExactInfo } from "./page-data.js" */

/** The queries and keys of one head. A weight is exp(scale · q·k − lse). */
export class ExactHead {
  /**
   * @param {number} T
   * @param {number} S
   * @param {ExactInfo} info
   * @param {Float32Array} q
   * @param {Float32Array} k
   * @param {Float32Array} lse
   */
  constructor(T, S, info, q, k, lse) {
    this.T = T;
    this.S = S;
    this.info = info;
    this.q = q;
    this.k = k;
    this.lse = lse;
  }

  /** The weight of a key; NaN where the mask hides it. @param {number} query @param {number} key @returns {number} */
  at(query, key) {
    const { width, scale, causal } = this.info;
    if ((causal && key > query + this.S - this.T) || !Number.isFinite(this.lse[query])) return NaN;
    let sum = 0;
    for (let i = query * width, j = key * width, end = i + width; i < end; i++, j++) sum += this.q[i] * this.k[j];
    return Math.exp(scale * sum - this.lse[query]);
  }
}

/**
 * q and k as 16-bit floats, then lse as 32-bit ones, little-endian.
 * @param {Uint8Array} bytes @param {number} T @param {number} S @param {ExactInfo} info @returns {ExactHead}
 */
export function decodeExact(bytes, T, S, info) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let start = 0;
  const halves = (/** @type {number} */ length) => {
    const values = new Float32Array(length);
    for (let i = 0; i < length; i++) values[i] = fromHalf(view.getUint16(start + 2 * i, true));
    start += 2 * length;
    return values;
  };
  const [q, k] = [halves(T * info.width), halves(S * info.width)];
  const lse = Float32Array.from({ length: T }, (_, i) => view.getFloat32(start + 4 * i, true));
  return new ExactHead(T, S, info, q, k, lse);
}

/** A 16-bit float. @param {number} code @returns {number} */
export function fromHalf(code) {
  const [sign, exponent, part] = [code & 0x8000 ? -1 : 1, (code >> 10) & 31, code & 1023];
  if (exponent === 31) return part ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + part / 1024) : 2 ** -14 * (part / 1024));
}
