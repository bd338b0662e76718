// The one product of the engine, out = x · wᵀ + bias, in plain JavaScript; linear-simd.ts is it in WebAssembly.
//
// x is T rows of I numbers, w is O rows of I numbers, bias is O numbers, out is T rows of O numbers. All are offsets in
// one array; a stride is the distance from row to row.

/**
 * @typedef {(x: number, xStride: number, w: number, wStride: number, bias: number, out: number, outStride: number,
 *   T: number, I: number, O: number) => void} Linear bias: −1 for none
 */

/**
 * @param {import("./memory.js").Memory} memory @returns {Linear}
 */
export function plainLinear(memory) {
  return (x, xStride, w, wStride, bias, out, outStride, T, I, O) => {
    const f = memory.floats;
    let t = 0;
    for (; t + 4 <= T; t += 4)
      fourRows(f, x + t * xStride, xStride, w, wStride, bias, out + t * outStride, outStride, I, O);
    for (; t < T; t++) oneRow(f, x + t * xStride, w, wStride, bias, out + t * outStride, I, O);
  };
}

/**
 * Four rows of x at once: each number of w is read once for them.
 * @param {Float32Array} f @param {number} x @param {number} xStride @param {number} w @param {number} wStride
 * @param {number} bias @param {number} out @param {number} outStride @param {number} I @param {number} O
 */
function fourRows(f, x, xStride, w, wStride, bias, out, outStride, I, O) {
  const [x1, x2, x3] = [x + xStride, x + 2 * xStride, x + 3 * xStride];
  for (let o = 0; o < O; o++) {
    const row = w + o * wStride;
    let [a, b, c, d] = [0, 0, 0, 0];
    for (let i = 0; i < I; i++) {
      const one = f[row + i];
      a = a + one * f[x + i];
      b = b + one * f[x1 + i];
      c = c + one * f[x2 + i];
      d = d + one * f[x3 + i];
    }
    const added = bias < 0 ? 0 : f[bias + o];
    const at = out + o;
    f[at] = a + added;
    f[at + outStride] = b + added;
    f[at + 2 * outStride] = c + added;
    f[at + 3 * outStride] = d + added;
  }
}

/**
 * One row of x, four rows of w at once.
 * @param {Float32Array} f @param {number} x @param {number} w @param {number} wStride @param {number} bias
 * @param {number} out @param {number} I @param {number} O
 */
function oneRow(f, x, w, wStride, bias, out, I, O) {
  let o = 0;
  for (; o + 4 <= O; o += 4) {
    const row = w + o * wStride;
    const [r1, r2, r3] = [row + wStride, row + 2 * wStride, row + 3 * wStride];
    let [a, b, c, d] = [0, 0, 0, 0];
    for (let i = 0; i < I; i++) {
      const one = f[x + i];
      a = a + one * f[row + i];
      b = b + one * f[r1 + i];
      c = c + one * f[r2 + i];
      d = d + one * f[r3 + i];
    }
    const at = bias + o;
    f[out + o] = bias < 0 ? a : a + f[at];
    f[out + o + 1] = bias < 0 ? b : b + f[at + 1];
    f[out + o + 2] = bias < 0 ? c : c + f[at + 2];
    f[out + o + 3] = bias < 0 ? d : d + f[at + 3];
  }
  for (; o < O; o++) {
    let sum = 0;
    for (let i = 0; i < I; i++) sum += f[x + i] * f[w + o * wStride + i];
    f[out + o] = bias < 0 ? sum : sum + f[bias + o];
  }
}
