// Pictures: every head as a small map, drawn from one atlas.

import { ceil, floor, isMissing, max, min, round, sqrt } from "../data/math.js";
import { PromiseCache } from "../data/promise-cache.js";
import { weightColor } from "./color.js";

/** @import { Reports } from "../data/page-data.js" */
/** @import { Theme } from "./color.js" */
/**
 * @typedef {{image: OffscreenCanvas, places: Map<string, {x: number, y: number, rows: number, cols: number}>}} Atlas
 */

const ACROSS = 16; // pictures in a row of the atlas
const THEMES = 2;

/** @type {WeakMap<Reports, PromiseCache<Atlas>>} */
const made = new WeakMap();

/**
 * All heads of a report as one image, and where each is in it.
 * @param {Reports} reports @param {number} report @param {Theme} theme @returns {Promise<Atlas>}
 */
export function atlas(reports, report, theme) {
  const known = made.get(reports) ?? new PromiseCache(THEMES * reports.page.reports.length);
  made.set(reports, known);
  return known.get(`${report} ${theme}`, () => makeAtlas(reports, report, theme));
}

/** @param {Reports} reports @param {number} report @param {Theme} theme @returns {Promise<Atlas>} */
async function makeAtlas(reports, report, theme) {
  const pictures = await codes(reports, report);
  const widest = max(1, ...pictures.map((one) => one.cols));
  const highest = max(1, ...pictures.map((one) => one.rows));
  const image = new OffscreenCanvas(widest * ACROSS, highest * ceil(pictures.length / ACROSS));
  const context = /** @type {OffscreenCanvasRenderingContext2D} */ (image.getContext("2d"));
  const opaque = (/** @type {import("./color.js").Rgb} */ [r, g, b]) => (255 << 24) | (b << 16) | (g << 8) | r;
  const colors = Uint32Array.from({ length: 256 }, (_, code) => opaque(weightColor((code / 254) ** 2, theme)));
  colors[255] = 0; // hidden
  const places = new Map();
  pictures.forEach(({ layer, head, rows, cols, bytes }, i) => {
    const pixels = new ImageData(max(1, cols), max(1, rows));
    const cells = new Uint32Array(pixels.data.buffer);
    for (let at = 0; at < rows * cols; at++) cells[at] = colors[bytes[at]];
    const [x, y] = [(i % ACROSS) * widest, floor(i / ACROSS) * highest];
    context.putImageData(pixels, x, y);
    places.set(`${layer}.${head}`, { x, y, rows, cols });
  });
  return { image, places };
}

/**
 * The cells of every head as bytes: 254 · the root of the weight, 255 hidden.
 * @param {Reports} reports @param {number} report
 */
async function codes(reports, report) {
  const { layers, thumbnails } = reports.page.reports[report];
  const all = layers.flatMap((layer, l) => layer.heads.map((_, head) => ({ layer: l, head, T: layer.T, S: layer.S })));
  if (!thumbnails) {
    return Promise.all(
      all.map(async ({ layer, head, T, S }) => {
        const { values } = await reports.weights(report, layer, head);
        const bytes = new Uint8Array(values.length);
        for (let at = 0; at < bytes.length; at++)
          bytes[at] = isMissing(values[at]) ? 255 : round(sqrt(values[at]) * 254);
        return { layer, head, rows: T, cols: S, bytes };
      }),
    );
  }
  const bytes = await reports.thumbnails(report);
  let start = 0;
  return all.map(({ layer, head, T, S }) => {
    const [rows, cols] = [min(T, thumbnails.rows), min(S, thumbnails.cols)];
    const part = bytes.subarray(start, start + rows * cols);
    start += rows * cols;
    return { layer, head, rows, cols, bytes: part };
  });
}

/**
 * Draw one picture.
 * @param {CanvasRenderingContext2D} context
 * @param {Atlas} atlas
 * @param {string} head "4.3"
 * @param {number} x
 * @param {number} y
 * @param {number} size
 */
export function drawPicture(context, atlas, head, x, y, size) {
  const place = atlas.places.get(head);
  if (!place || !atlas.image.width) return; // its pixels were given back
  context.imageSmoothingEnabled = place.cols > size; // a short text has fewer cells than the picture has pixels
  context.drawImage(atlas.image, place.x, place.y, place.cols, place.rows, x, y, size, size);
}
