// Tensors: the steps of a layer, from x to out, each with the meaning of its axes and its numbers.

import { computeStep } from "./computed-steps.js";
import { floor, max } from "./math.js";

/** @import { StepInfo, Transport } from "./page-data.js" */
/**
 * Which head, query and key, and which number of a head.
 * @typedef {{head: number, query: number, key: number, number: number}} Choice
 */

/** One step: its description, and its numbers, read with strides from a block that steps may share. */
export class StepTensor {
  /**
   * @param {StepInfo} info
   * @param {Float32Array | null} values null where they are not in the page
   * @param {number} H heads of the layer
   */
  constructor(info, values, H) {
    this.info = info;
    this.name = info.name;
    this.axes = info.axes;
    this.sizes = info.sizes;
    this.strides = info.strides;
    this.values = values;
    this.H = H;
  }

  /** Are these the numbers of keys? Then the row of a word is that of the key. */
  get ofKeys() {
    return this.axes.includes("key") && !this.axes.includes("query");
  }

  /** How many numbers a head has: the last axis, or its part of it. */
  get width() {
    return (this.sizes.at(-1) ?? 0) / this.info.heads;
  }

  /**
   * The numbers of one word, along the last axis. With heads in an axis of their own: of one head.
   * @param {Choice} choice @returns {Float32Array}
   */
  row(choice) {
    const last = this.sizes.length - 1;
    const [start, stride, size] = [this.#start(choice), this.strides[last], this.sizes[last]];
    if (this.values && stride === 1) return this.values.subarray(start, start + size);
    const row = new Float32Array(size);
    for (let i = 0; i < size; i++) row[i] = this.#read(start + i * stride);
    return row;
  }

  /** The numbers of one word in one head. @param {Choice} choice @returns {Float32Array} */
  part(choice) {
    const row = this.row(choice);
    const at = this.at(choice.head) * this.width;
    return this.info.heads > 1 ? row.subarray(at, at + this.width) : row;
  }

  /** The numbers of one word in all heads, one head after the other. @param {Choice} choice @returns {Float32Array} */
  all(choice) {
    const axis = this.axes.indexOf("head");
    if (axis < 0) return this.row(choice);
    const [count, width] = [this.sizes[axis], this.width];
    const all = new Float32Array(count * width);
    for (let head = 0; head < count; head++)
      all.set(this.row({ ...choice, head: (head * this.H) / count }), head * width);
    return all;
  }

  /**
   * The head of this tensor that a head of the layer uses: with grouped queries, several share one.
   * @param {number} head
   */
  at(head) {
    const axis = this.axes.indexOf("head");
    const count = axis >= 0 ? this.sizes[axis] : this.info.heads;
    return floor((head * count) / max(1, this.H));
  }

  /** @param {Choice} choice */
  #start(choice) {
    let start = 0;
    this.axes.forEach((axis, i) => {
      if (i === this.axes.length - 1) return;
      if (axis === "head") start += this.at(choice.head) * this.strides[i];
      else if (axis === "query") start += choice.query * this.strides[i];
      else if (axis === "key") start += choice.key * this.strides[i];
    });
    return start;
  }

  /** @param {number} at */
  #read(at) {
    return this.values ? this.values[at] : NaN;
  }

  /**
   * The tensor as pictures side by side, one for each head: what is at a row and a column of one of them.
   * @returns {{blocks: number, rows: number, cols: number, at: (block: number, row: number, col: number) => number}}
   */
  grid() {
    const { axes, sizes, strides } = this;
    const last = sizes.length - 1;
    if (sizes.length < 2)
      return { blocks: 1, rows: 1, cols: sizes[0] ?? 1, at: (_, __, col) => this.#read(col * (strides[0] ?? 0)) };
    const tokens = axes.findIndex((axis, i) => i < last && (axis === "query" || axis === "key"));
    const row = tokens >= 0 ? tokens : last - 1;
    const rest = axes.map((_, i) => i).filter((i) => i !== row && i !== last);
    const blocks = rest.reduce((count, i) => count * sizes[i], 1);
    return {
      blocks,
      rows: sizes[row],
      cols: sizes[last],
      at: (block, r, c) => {
        let at = r * strides[row] + c * strides[last];
        let left = block;
        for (let n = rest.length - 1; n >= 0; n--) {
          at += (left % sizes[rest[n]]) * strides[rest[n]];
          left = floor(left / sizes[rest[n]]);
        }
        return this.#read(at);
      },
    };
  }
}

/**
 * The steps of a layer with their numbers.
 * @param {StepInfo[]} steps @param {number} H @param {Transport} transport @returns {Promise<StepTensor[]>}
 */
export async function loadSteps(steps, H, transport) {
  /** @type {Map<string, Promise<Float32Array>>} */
  const blocks = new Map();
  /** @type {Map<string, Promise<Uint8Array>>} */
  const masks = new Map();
  for (const { block, bytes } of steps) {
    if (block && !blocks.has(block))
      blocks.set(
        block,
        transport(block).then((content) => fromPlanes(content, bytes)),
      );
  }
  for (const { made } of steps) {
    if (made?.hidden && !masks.has(made.hidden)) masks.set(made.hidden, transport(made.hidden));
  }
  /** @type {StepTensor[]} */
  const loaded = [];
  for (const info of steps)
    loaded.push(new StepTensor(info, (info.block && (await blocks.get(info.block))) || null, H));
  /** @type {Map<string, Float32Array>} */
  const computed = new Map(); // several steps may read one mix
  for (const tensor of loaded) {
    const { made, sizes } = tensor.info;
    if (!made || made.of.some((number) => !loaded[number].values)) continue; // more numbers than a page holds
    const key = JSON.stringify(made);
    const hidden = (made.hidden && (await masks.get(made.hidden))) || null;
    tensor.values = computed.get(key) ?? computeStep(made, loaded, sizes, H, hidden);
    computed.set(key, tensor.values);
  }
  return loaded;
}

/**
 * float32 numbers from their upper bytes: first all upper ones, then all that follow.
 * @param {Uint8Array} bytes
 * @param {number} count of bytes in each number
 * @returns {Float32Array}
 */
export function fromPlanes(bytes, count) {
  const length = bytes.length / count;
  const bits = new Uint32Array(length);
  for (let plane = 0; plane < count; plane++) {
    for (let i = 0; i < length; i++) bits[i] |= bytes[plane * length + i] << (24 - 8 * plane);
  }
  return new Float32Array(bits.buffer);
}
