// Pictures: every head as a small map, drawn from one atlas.

import { ceil, floor, isMissing, max, min, round, sqrt } from "../data/math.js";
import { weightColor } from "./color.js";

/** @import { Reports } from "../data/page-data.js" */
/** @import { Theme } from "./color.js" */
/**
 * @typedef {{image: OffscreenCanvas, places: Map<string, {x: number, y: number, rows: number, cols: number}>}} Atlas
 */

const ACROSS = 16; // pictures in a row of the atlas

/**
 * All heads of a report as one image, and where each is in it.
 * @param {Reports} reports @param {number} report @param {Theme} theme @returns {Promise<Atlas>}
 */
export async function atlas(reports, report, theme) {
  const pictures = await codes(reports, report);
  const widest = max(1, ...pictures.map((one) => one.cols));
  const highest = max(1, ...pictures.map((one) => one.rows));
  const image = new OffscreenCanvas(widest * ACROSS, highest * ceil(pictures.length / ACROSS));
  const context = /** @type {OffscreenCanvasRenderingContext2D} */ (image.getContext("2d"));
  const colors = Array.from({ length: 255 }, (_, code) => weightColor((code / 254) ** 2, theme));
  const places = new Map();
  pictures.forEach(({ layer, head, rows, cols, bytes }, i) => {
    const pixels = new ImageData(max(1, cols), max(1, rows));
    for (let at = 0; at < rows * cols; at++) {
      if (bytes[at] === 255) continue;
      const [r, g, b] = colors[bytes[at]];
      pixels.data.set([r, g, b, 255], at * 4);
    }
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
        const bytes = Uint8Array.from(values, (weight) => (isMissing(weight) ? 255 : round(sqrt(weight) * 254)));
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
  if (!place) return;
  context.imageSmoothingEnabled = place.cols > size; // a short text has fewer cells than the picture has pixels
  context.drawImage(atlas.image, place.x, place.y, place.cols, place.rows, x, y, size, size);
}
