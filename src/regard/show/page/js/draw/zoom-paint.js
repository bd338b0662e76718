// How the map of a long text is painted: blocks of tokens, single weights, and the margins.

import { ceil, floor, isMissing, max, min } from "../data/math.js";
import { css, weightColor } from "./color.js";
import { sizedContext } from "./dom.js";

/** @import { LongHead } from "../data/long-head.js" */
/** @import { Theme } from "./color.js" */
/**
 * @typedef {{size: number, theme: Theme, triangle: boolean, bar: string, broken?: [number, number][]}} ZoomOptions bar:
 *   the colour of the margins; broken: rows [first, last] whose weights are no numbers
 */
/** @typedef {{row: number, col: number, span: number}} ZoomPart what is shown, as parts of the text: span each way */

export const RIBBON = 36; // pixels of a margin

/**
 * The largest weights of each query, on pale cells.
 * @param {CanvasRenderingContext2D} context
 * @param {LongHead} long
 * @param {ZoomPart} part
 * @param {ZoomOptions} options
 * @param {number} scale pixels of a token
 */
export function paintSingle(context, long, part, { theme, triangle, size }, scale) {
  const first = floor(part.row * long.T);
  const last = min(long.T, ceil((part.row + part.span) * long.T));
  const gap = scale >= 8 ? 1 : 0;
  for (let query = first; query < last; query++) {
    const y = (query - part.row * long.T) * scale;
    context.fillStyle = css(weightColor(0, theme));
    const end = triangle ? (query + 1 + long.S - long.T - part.col * long.S) * scale : size;
    if (end > 0) context.fillRect(0, y, min(size, end), scale - gap);
    for (const { key, weight } of singles(long, query, part)) {
      context.fillStyle = css(weightColor(weight, theme));
      context.fillRect((key - part.col * long.S) * scale, y, scale - gap, scale - gap);
    }
  }
}

/**
 * The weights of a query that are drawn: all that are shown where they can be computed, else its largest.
 * @param {LongHead} long @param {number} query @param {ZoomPart} part
 */
function singles(long, query, part) {
  const { exact } = long;
  if (!exact) return long.top(query);
  const first = floor(part.col * long.S);
  const last = min(long.S, ceil((part.col + part.span) * long.S));
  const shown = [];
  for (let key = first; key < last; key++) {
    const weight = exact.at(query, key);
    if (weight >= 0.0005) shown.push({ key, weight }); // below it the colour is that of 0
  }
  return shown;
}

/**
 * A bar for each token, or the mean of those that share a pixel.
 * @param {HTMLCanvasElement} canvas
 * @param {Float32Array} values
 * @param {ZoomOptions} options
 * @param {{from: number, span: number, most: number, down: boolean}} how from: the part of the text that
 *   comes before; span: the part that is shown; most: the value of the longest bar; down: are tokens below each other?
 */
export function paintRibbon(canvas, values, { size, bar }, { from, span, most, down }) {
  const context = sizedContext(canvas, down ? RIBBON : size, down ? size : RIBBON);
  context.clearRect(0, 0, size, size);
  context.fillStyle = bar;
  const token = (/** @type {number} */ pixel) => floor((from + (pixel / size) * span) * values.length + 1e-6);
  for (let pixel = 0; pixel < size; pixel++) {
    const first = token(pixel);
    const last = max(first + 1, token(pixel + 1));
    let [sum, count] = [0, 0];
    for (let i = first; i < min(last, values.length); i++) {
      if (!isMissing(values[i])) [sum, count] = [sum + values[i], count + 1];
    }
    const length = count ? min(1, max(0, sum / count / most)) * RIBBON : 0;
    if (down) context.fillRect(0, pixel, length, 1);
    else context.fillRect(pixel, 0, 1, length);
  }
}
