// The steps of a layer from live numbers: regard/show/page/live.py describes them once for each layer, as a trace of a
// short text has them, and here they get the sizes of the text that is read, and its numbers.

/** @import { Reading } from "./engine.js" */
/** @import { StepInfo } from "../data/page-data.js" */
/** @typedef {{steps: StepInfo[], length: number}} LayerSteps length: tokens of the text that was traced */

/**
 * A layer's steps for a text of T tokens. A step with numbers of its own has them in a block, by its name.
 * @param {StepInfo[]} steps as described: `length` is the number of tokens there @param {number} length
 * @param {number} T @param {string} key of the blocks @returns {StepInfo[]}
 */
export function describeSteps(steps, length, T, key) {
  const number = new RegExp(`\\b${length}\\b`, "g");
  const isToken = (/** @type {string} */ axis) => axis === "query" || axis === "key";
  return steps.map((one) => {
    const sizes = one.sizes.map((size, i) => (isToken(one.axes[i]) ? T : size));
    return {
      ...one,
      sizes,
      shape: one.shape.replace(number, String(T)),
      operation: one.operation.replace(number, String(T)),
      strides: stridesOf(one, sizes),
      bytes: 4,
      block: one.block && `${key}.${one.block}`,
    };
  });
}

/**
 * Tensors are in the order token, head, width; maps, which are computed, in the order head, query, key.
 * @param {StepInfo} step @param {number[]} sizes
 */
function stridesOf({ axes }, sizes) {
  const isMap = axes.includes("query") && axes.includes("key");
  const [width, head] = [sizes[sizes.length - 1], axes.indexOf("head")];
  if (isMap) return axes.map((axis) => ({ head: width * sizes[sizes.length - 2], query: width, key: 1 })[axis] ?? 0);
  const row = head < 0 ? width : sizes[head] * width;
  return axes.map((axis) => ({ head: width, query: row, key: row })[axis] ?? 1);
}

/**
 * The numbers of a recorded layer, as blocks of four planes of bytes.
 * @param {Reading} reading @param {string} key @returns {Map<string, Uint8Array>}
 */
export function stepsOf(reading, key) {
  return new Map([...reading.tensors].map(([name, rows]) => [`${key}.${name}`, planes(rows)]));
}

/**
 * float32 as js/data/step-tensors.js reads it: first all upper bytes, then all that follow.
 * @param {Float32Array[]} rows
 */
function planes(rows) {
  const count = rows.reduce((sum, row) => sum + row.length, 0);
  const bytes = new Uint8Array(4 * count);
  let at = 0;
  for (const row of rows) {
    const bits = new Uint32Array(row.buffer, row.byteOffset, row.length);
    for (const one of bits) {
      for (let plane = 0; plane < 4; plane++) bytes[plane * count + at] = (one >>> (24 - 8 * plane)) & 255;
      at += 1;
    }
  }
  return bytes;
}
