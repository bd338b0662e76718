// The engine: a language model that runs in the page, from the list of operations that regard/gpt/portable.py writes.
//
// A `Reading` is a text as far as it was read: keys and values of every layer, and the weights of every head. Reading
// on costs only the new tokens, and of an edited text all before the edit is kept.

import { ACTIVATIONS, chanceOf, normalize, rotate, softmax } from "./functions.js";
import { plainLinear } from "./linear.js";
import { Memory } from "./memory.js";
import { Rows } from "./rows.js";
import { readSafetensors } from "./safetensors.js";

/**
 * @typedef {{kind: "layer" | "rms", weight: string, bias: string | null, eps: number}} Norm
 * @typedef {{weight: string, bias: string | null}} LinearNames
 * @typedef {{kind: "product", norm: Norm | null, weights: LinearNames[], activation: string | null, gate: LinearNames |
 *   null, residual: boolean}} Product
 * @typedef {{kind: "attend", heads: number, kv_heads: number, head_dim: number, scale: number, window: number | null,
 *   rotary: {waves: number[], interleaved: boolean} | null, query_norm: Norm | null, key_norm: Norm | null}} Attend
 * @typedef {{format: number, vocabulary: number, context: number, width: number, ends: number[], tokens: string,
 *   positions: string | null, operations: (Product | Attend)[]}} Plan
 * @typedef {{heads?: [number, number][], edges?: [number, number, number, number][]}} Cut heads: [layer, head]; edges:
 *   [layer, head, query, key]
 */

const ROWS = 32; // tokens that are read at once: between two of these, a newer request can stop the older one
const FORMAT = 1;

export class Model {
  /**
   * @param {Plan} plan @param {Uint8Array} weights a safetensors file
   * @param {{memory: WebAssembly.Memory, linear: import("./linear.js").Linear} | null} wasm null: plain JavaScript
   */
  constructor(plan, weights, wasm = null) {
    if (plan.format !== FORMAT) throw new Error(`This page reads models of format ${FORMAT}, not ${plan.format}.`);
    this.plan = plan;
    this.memory = new Memory(wasm?.memory);
    this.linear = wasm?.linear ?? plainLinear(this.memory);
    this.tensors = readSafetensors(weights);
    /** @type {Map<string, {offset: number, shape: number[]}>} */
    this.loaded = new Map();
    const numbers = [...this.tensors.values()].reduce((sum, { count }) => sum + count + 4, 0);
    this.memory.reserve(numbers);
    this.layers = /** @type {Attend[]} */ (plan.operations.filter((one) => one.kind === "attend"));
    this.operations = plan.operations.map((one) => (one.kind === "attend" ? one : this.#product(one)));
    this.tokens = this.#tensor(plan.tokens);
    this.positions = plan.positions === null ? null : this.#tensor(plan.positions);
    this.norms = this.layers.map((one) => ({
      query: one.query_norm && this.#norm(one.query_norm),
      key: one.key_norm && this.#norm(one.key_norm),
    }));
    this.tensors.clear();
    const widest = this.operations.map((one) => ("weights" in one ? one.outputs : one.heads * one.head_dim));
    const most = Math.max(plan.width, ...widest);
    this.stream = this.memory.take(ROWS * plan.width);
    this.normed = this.memory.take(ROWS * plan.width);
    this.results = [this.memory.take(ROWS * most), this.memory.take(ROWS * most)];
    this.gated = this.memory.take(ROWS * most);
    this.scores = this.memory.take(ROWS * plan.context);
    this.logits = this.memory.take(plan.vocabulary);
    /** @type {number[][]} keys and values of readings that ended */
    this.free = [];
  }

  /** @param {Product} one */
  #product(one) {
    if (one.activation !== null && !ACTIVATIONS[one.activation])
      throw new Error(`This page does not know the activation ${one.activation}.`);
    const weights = one.weights.map((names) => this.#linear(names));
    return {
      ...one,
      weights,
      gate: one.gate && this.#linear(one.gate),
      norm: one.norm && this.#norm(one.norm),
      outputs: weights.reduce((sum, { shape }) => sum + shape[0], 0),
    };
  }

  /** @param {LinearNames} names */
  #linear({ weight, bias }) {
    return { ...this.#tensor(weight), bias: bias === null ? -1 : this.#tensor(bias).offset };
  }

  /** @param {Norm} norm */
  #norm({ kind, weight, bias, eps }) {
    const [scale, shift] = [this.#tensor(weight), bias === null ? -1 : this.#tensor(bias).offset];
    return { kind, eps, width: scale.shape[0], weight: scale.offset, bias: shift };
  }

  /** @param {string} name */
  #tensor(name) {
    const known = this.loaded.get(name);
    if (known) return known;
    const tensor = this.tensors.get(name);
    if (!tensor) throw new Error(`The model in this page is damaged: it has no ${name}.`);
    const offset = this.memory.take(tensor.count);
    tensor.read(this.memory.floats.subarray(offset, offset + tensor.count));
    const loaded = { offset, shape: tensor.shape };
    this.loaded.set(name, loaded);
    return loaded;
  }

  /**
   * An empty reading.
   * @param {Cut} [cut] @param {number} [recorded] the layer whose tensors are kept, by name @returns {Reading}
   */
  read(cut = {}, recorded = -1) {
    return new Reading(this, cut, recorded);
  }

  /** Room for the keys and values of every layer. @returns {number[]} */
  takeCache() {
    const { context } = this.plan;
    return this.free.pop() ?? this.layers.map((one) => this.memory.take(2 * context * one.kv_heads * one.head_dim));
  }
}

export class Reading {
  /** @param {Model} model @param {Cut} cut @param {number} recorded */
  constructor(model, cut, recorded) {
    this.model = model;
    this.cut = cut;
    this.recorded = recorded;
    /** The tensors of the recorded layer, token by token. @type {Map<string, Float32Array[]>} */
    this.tensors = new Map();
    /** @type {number[]} */
    this.ids = [];
    this.cache = model.takeCache();
    /** Of each layer and head, a row of weights for each token, from the first key on. */
    this.weights = model.layers.map((one) => Array.from({ length: one.heads }, () => new Rows()));
    /** What follows the last token: a score for each token of the vocabulary. @type {Float32Array} */
    this.logits = new Float32Array(0);
    /** Of each token, the vector that the last product is of. @type {Float32Array[]} */
    this.vectors = [];
  }

  /** The memory of this reading may be used by another; it cannot go on. */
  end() {
    this.model.free.push(this.cache);
    this.cache = [];
  }

  /** Forget the tokens from this one on. @param {number} length */
  keep(length) {
    this.ids.length = Math.min(this.ids.length, length);
    for (const heads of this.weights) for (const rows of heads) rows.length = this.ids.length;
    this.vectors.length = this.ids.length;
  }

  /** How likely each token was after those before it; of the first nothing is known. @returns {Float64Array} */
  chances() {
    const { ids, model, vectors } = this;
    const { memory, plan, normed, linear, logits } = model;
    const chances = new Float64Array(ids.length).fill(Number.NaN);
    const last = model.operations[model.operations.length - 1];
    if (!("weights" in last)) return chances;
    const [{ offset, bias, shape }] = last.weights;
    for (let t = 1; t < ids.length; t++) {
      memory.floats.set(vectors[t - 1], normed);
      linear(normed, shape[1], offset, shape[1], bias, logits, shape[0], 1, shape[1], shape[0]);
      chances[t] = chanceOf(memory.floats.subarray(logits, logits + plan.vocabulary), ids[t]);
    }
    return chances;
  }

  /**
   * Read tokens, some at a time, so that others can run in between.
   * @param {number[]} ids @returns {Generator<number, void>} the number of tokens read so far
   */
  *add(ids) {
    const { context, vocabulary } = this.model.plan;
    if (this.ids.length + ids.length > context)
      throw new Error(`${this.ids.length + ids.length} tokens do not fit this model, which reads ${context}.`);
    const wrong = ids.find((id) => !(Number.isInteger(id) && id >= 0 && id < vocabulary));
    if (wrong !== undefined) throw new Error(`Token ${wrong} is not among the ${vocabulary} of this model.`);
    for (let at = 0; at < ids.length; at += ROWS) {
      this.#step(ids.slice(at, at + ROWS));
      yield this.ids.length;
    }
  }

  /** Read tokens at once. @param {number[]} ids @returns {Reading} this */
  addAll(ids) {
    for (const _ of this.add(ids));
    return this;
  }

  /** @param {number[]} ids at most ROWS */
  #step(ids) {
    const { model } = this;
    const { memory, plan, stream, normed, results } = model;
    const [start, T, E] = [this.ids.length, ids.length, plan.width];
    this.#embed(ids, start);
    /** Offset and width of each result of the operation before. @type {[number, number][]} */
    let before = [];
    let into = 0; // which of the two rooms for results is written next
    let layer = 0;
    model.operations.forEach((one, number) => {
      if (!("weights" in one)) {
        before = [[this.#attend(layer++, before, results[into], start, T), one.heads * one.head_dim]];
        into = 1 - into;
        return;
      }
      const f = memory.floats;
      const isLast = number === model.operations.length - 1;
      const [isBefore, isAfter] = [1, -1].map((by) => model.operations[number + by]?.kind === "attend");
      let rows = T;
      let [x, width] = before[0] ?? [stream, E];
      if (one.norm) {
        for (let t = 0; t < T; t++) normalizeBy(one.norm, f, stream + t * E, normed + t * E);
        [x, width] = [normed, E];
      }
      if (isLast) {
        for (let t = 0; t < T; t++) this.vectors.push(f.slice(x + t * width, x + (t + 1) * width));
        [x, rows] = [x + (T - 1) * width, 1]; // only what follows the last token is asked for
      }
      if (isBefore) this.#record(layer, "x", x, width, rows);
      let out = isLast ? model.logits : results[into];
      before = one.weights.map((weight) => {
        const O = weight.shape[0];
        model.linear(x, width, weight.offset, width, weight.bias, out, O, rows, width, O);
        out += rows * O;
        return [out - rows * O, O];
      });
      this.#activate(one, x, width, before[0], rows);
      if (isAfter) this.#record(layer - 1, "out", before[0][0], before[0][1], rows);
      if (one.residual) add(memory.floats, stream, before[0][0], T * E);
      into = 1 - into;
    });
    this.ids.push(...ids);
    const [at] = before[0];
    this.logits = memory.floats.slice(at, at + plan.vocabulary);
  }

  /**
   * Keep rows of a tensor of the recorded layer.
   * @param {number} layer @param {string} name @param {number} x @param {number} width @param {number} rows
   */
  #record(layer, name, x, width, rows) {
    if (layer !== this.recorded) return;
    const kept = this.tensors.get(name) ?? [];
    this.tensors.set(name, kept);
    for (let t = 0; t < rows; t++) kept.push(this.model.memory.floats.slice(x + t * width, x + (t + 1) * width));
  }

  /** The vectors of tokens and positions. @param {number[]} ids @param {number} start */
  #embed(ids, start) {
    const { memory, plan, stream, tokens, positions } = this.model;
    const [f, E] = [memory.floats, plan.width];
    ids.forEach((id, t) => {
      f.copyWithin(stream + t * E, tokens.offset + id * E, tokens.offset + (id + 1) * E);
      if (positions) add(f, stream + t * E, positions.offset + (start + t) * E, E);
    });
  }

  /**
   * activation(out), or activation(gate(x)) · out.
   * @param {any} one @param {number} x @param {number} width @param {[number, number]} result @param {number} rows
   */
  #activate(one, x, width, [out, O], rows) {
    if (one.activation === null) return;
    const { memory, gated, linear } = this.model;
    const activation = ACTIVATIONS[one.activation];
    if (one.gate) linear(x, width, one.gate.offset, width, one.gate.bias, gated, O, rows, width, O);
    const f = memory.floats;
    if (one.gate) for (let i = 0; i < rows * O; i++) f[out + i] *= activation(f[gated + i]);
    else for (let i = 0; i < rows * O; i++) f[out + i] = activation(f[out + i]);
  }

  /**
   * Attention of one layer: new keys and values are kept, and new queries look at all keys so far.
   * @param {number} layer @param {[number, number][]} qkv @param {number} out @param {number} start @param {number} T
   * @returns {number} the offset of the context of every token
   */
  #attend(layer, qkv, out, start, T) {
    const { model } = this;
    const { memory, plan, linear, scores } = model;
    const { heads: H, kv_heads: shared, head_dim: D, scale, window, rotary } = model.layers[layer];
    const f = memory.floats;
    const [[q], [k], [v]] = qkv;
    const norms = model.norms[layer];
    for (const [name, x, count, norm] of /** @type {[string, number, number, any][]} */ ([
      ["queries", q, H, norms.query],
      ["keys", k, shared, norms.key],
    ])) {
      const suffix = name === "keys" ? " keys" : "";
      this.#record(layer, name, x, count * D, T);
      for (let at = x; norm && at < x + T * count * D; at += D) normalizeBy(norm, f, at, at);
      if (norm) this.#record(layer, `normed${suffix}`, x, count * D, T);
      for (let row = 0; rotary && row < T * count; row++)
        rotate(f, x + row * D, rotary.waves, rotary.interleaved, start + Math.floor(row / count));
      if (rotary) this.#record(layer, `turned${suffix}`, x, count * D, T);
    }
    this.#record(layer, "values", v, shared * D, T);
    // Keys are rows, values are columns: both are then the rows of w in a product x · wᵀ.
    const [C, S] = [plan.context, start + T];
    const keys = this.cache[layer];
    const values = keys + C * shared * D;
    for (let head = 0; head < shared; head++) {
      for (let t = 0; t < T; t++) {
        const from = (t * shared + head) * D;
        f.copyWithin(keys + (head * C + start + t) * D, k + from, k + from + D);
        for (let d = 0; d < D; d++) f[values + (head * D + d) * C + start + t] = f[v + from + d];
      }
    }
    const cutHeads = new Set((this.cut.heads ?? []).flatMap(([one, head]) => (one === layer ? [head] : [])));
    for (let head = 0; head < H; head++) {
      const group = Math.floor((head * shared) / H);
      linear(q + head * D, H * D, keys + group * C * D, D, -1, scores, S, T, D, S);
      for (const [ofLayer, ofHead, query, key] of this.cut.edges ?? [])
        if (ofLayer === layer && ofHead === head && query >= start && query < S && key <= query)
          f[scores + (query - start) * S + key] = Number.NEGATIVE_INFINITY;
      for (let t = 0; t < T; t++) {
        const end = start + t + 1;
        const first = window === null ? 0 : Math.max(0, end - window);
        softmax(f, scores + t * S, S, first, end, scale);
        this.weights[layer][head].add(f, scores + t * S);
      }
      linear(scores, S, values + group * D * C, C, -1, out + head * D, H * D, T, S, D);
      if (cutHeads.has(head))
        for (let t = 0; t < T; t++) f.fill(0, out + (t * H + head) * D, out + (t * H + head + 1) * D);
    }
    return out;
  }
}

/** @param {any} norm @param {Float32Array} f @param {number} x @param {number} out */
function normalizeBy(norm, f, x, out) {
  normalize(norm.kind, f, x, out, norm.width, norm.weight, norm.bias, norm.eps);
}

/** @param {Float32Array} f @param {number} x @param {number} other @param {number} count */
function add(f, x, other, count) {
  for (let i = 0; i < count; i++) f[x + i] += f[other + i];
}
