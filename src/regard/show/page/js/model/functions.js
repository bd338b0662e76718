// The functions of a model that are no products: norms, activations, softmax, rotary positions. All work in place.

const { abs, cos, exp, fround, sin, sqrt, tanh } = Math;

/**
 * Normalize a vector: "layer" subtracts the mean, "rms" does not.
 * @param {"layer" | "rms"} kind @param {Float32Array} f @param {number} x @param {number} out @param {number} width
 * @param {number} weight @param {number} bias −1 for none @param {number} eps
 */
export function normalize(kind, f, x, out, width, weight, bias, eps) {
  let mean = 0;
  if (kind === "layer") {
    for (let i = 0; i < width; i++) mean += f[x + i];
    mean /= width;
  }
  let squares = 0;
  for (let i = 0; i < width; i++) squares += (f[x + i] - mean) ** 2;
  const scale = 1 / sqrt(squares / width + eps);
  for (let i = 0; i < width; i++) f[out + i] = (f[x + i] - mean) * scale * f[weight + i] + (bias < 0 ? 0 : f[bias + i]);
}

/** By the names of regard/gpt/activations.py. @type {Record<string, (x: number) => number>} */
export const ACTIVATIONS = {
  gelu: (x) => 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))),
  gelu_exact: (x) => 0.5 * x * (1 + erf(x * Math.SQRT1_2)),
  silu: (x) => x / (1 + exp(-x)),
};

/**
 * The error function, to 10⁻¹⁵: its power series near 0, and beyond that a continued fraction.
 * @param {number} x @returns {number}
 */
export function erf(x) {
  const size = abs(x);
  if (!(size < 6)) return x === x ? Math.sign(x) : x;
  if (size < 2.5) {
    let [term, sum] = [x, x];
    for (let n = 1; abs(term) > 1e-17 * abs(sum); n++) {
      term *= (-x * x) / n;
      sum += term / (2 * n + 1);
    }
    return (2 / sqrt(Math.PI)) * sum;
  }
  let tail = size;
  for (let n = 60; n > 0; n--) tail = size + n / 2 / tail;
  return Math.sign(x) * (1 - exp(-size * size) / (sqrt(Math.PI) * tail));
}

/**
 * exp(score · scale) ÷ their sum, over the keys from `first` to before `end`; every other key of the row gets 0.
 * @param {Float32Array} f @param {number} row its offset @param {number} keys @param {number} first @param {number} end
 * @param {number} scale
 */
export function softmax(f, row, keys, first, end, scale) {
  let most = Number.NEGATIVE_INFINITY;
  for (let j = first; j < end; j++) {
    const score = f[row + j] * scale;
    if (!(score <= most)) most = score; // NaN, too
  }
  if (most === Number.NEGATIVE_INFINITY) return void f.fill(0, row, row + keys); // there is nothing to see
  let sum = 0;
  for (let j = first; j < end; j++) sum += f[row + j] = exp(f[row + j] * scale - most);
  for (let j = first; j < end; j++) f[row + j] /= sum;
  f.fill(0, row, row + first);
  f.fill(0, row + end, row + keys);
}

/** The probability of one of some scores. @param {Float32Array} scores @param {number} id */
export function chanceOf(scores, id) {
  let [most, sum] = [scores[0], 0];
  for (let i = 1; i < scores.length; i++) if (scores[i] > most) most = scores[i];
  for (let i = 0; i < scores.length; i++) sum += exp(scores[i] - most);
  return exp(scores[id] - most) / sum;
}

/**
 * Turn each pair of channels of a vector by the angle of its position.
 * @param {Float32Array} f @param {number} x @param {number[]} waves @param {boolean} interleaved
 * @param {number} position
 */
export function rotate(f, x, waves, interleaved, position) {
  for (let i = 0; i < waves.length; i++) {
    const angle = fround(position * fround(waves[i]));
    const [c, s] = [cos(angle), sin(angle)];
    const [first, second] = interleaved ? [x + 2 * i, x + 2 * i + 1] : [x + i, x + i + waves.length];
    const [a, b] = [f[first], f[second]];
    f[first] = a * c - b * s;
    f[second] = a * s + b * c;
  }
}
