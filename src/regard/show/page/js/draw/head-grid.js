// Where each head stands in the view of all heads: layers down, heads across, those that share a key head together.

import { floor, max, min } from "../data/math.js";

/** @import { LayerInfo, Report } from "../data/page-data.js" */
/** @typedef {{layer: number, head: number}} Place */
/** @typedef {{text: string, x: number, y: number, width: number, kind: "layer" | "group"}} Title a line above heads */
/** @typedef {{columns: number, step: number, down: number}} GridSizes down: pixels from row to row */

const NARROWEST = 80; // pixels of a column, for heads that share a key head and should fit into a row
const ABOVE = 6; // pixels above the first row, for the bars that are coloured by a statistic
const TITLE = 22; // pixels of a line above heads

/**
 * The heads that share each key head; one group for each head where none is shared.
 * @param {LayerInfo} layer
 * @returns {number} how many heads share one
 */
export function sharing(layer) {
  return layer.kv_heads > 0 ? max(1, floor(layer.heads.length / layer.kv_heads)) : 1;
}

/**
 * "heads 0–3 share key head 0".
 * @param {number} first the first of them
 * @param {number} count
 */
export function sharedText(first, count) {
  return `heads ${first}–${first + count - 1} share key head ${floor(first / count)}`;
}

/**
 * What a layer is, where layers of a model read different texts; "" where all are alike.
 * @param {Report} report @param {number} layer
 */
export function layerText(report, layer) {
  const kind = (/** @type {LayerInfo} */ { queries, keys, across, T, S }) => [queries, keys, across, T, S].join(" ");
  const info = report.layers[layer];
  if (report.layers.every((one) => kind(one) === kind(info))) return "";
  const reads = info.across ? `: ${info.T} tokens look at ${info.S} of another text` : `: ${info.T} tokens`;
  return `${layer} · ${info.name}${reads}`;
}

/**
 * What is assumed or unknown, each thing once, with the layers that it is said of.
 * @param {Report} report @returns {string[]}
 */
export function markNotes(report) {
  /** @type {Map<string, number[]>} */
  const layers = new Map();
  report.layers.forEach((layer, l) => {
    for (const mark of layer.marks ?? []) layers.set(mark, [...(layers.get(mark) ?? []), l]);
  });
  return [...layers].map(([mark, those]) => `* layer${those.length > 1 ? "s" : ""} ${those.join(", ")}: ${mark}`);
}

/**
 * How many columns of heads fit; heads that share a key head are not torn apart where they fit into a row.
 * @param {Report} report
 * @param {number} width in pixels
 * @param {number} least pixels of a column
 */
export function columnsFor(report, width, least) {
  const most = max(1, ...report.layers.map((layer) => layer.heads.length));
  const columns = max(2, min(most, floor(width / least)));
  const group = max(1, ...report.layers.map(sharing));
  if (group === 1 || columns % group === 0) return columns;
  if (columns > group) return columns - (columns % group);
  if (group * NARROWEST <= width) return group;
  const even = columns - [...Array(columns - 1).keys()].findIndex((less) => group % (columns - less) === 0);
  return even <= columns ? even : columns;
}

/**
 * Heads by layer, with a line above layers that differ and above heads that share a key head.
 * @param {Report} report @param {GridSizes} sizes
 */
export function byLayer(report, { columns, step, down }) {
  /** @type {(Place & {x: number, y: number})[]} */
  const places = [];
  /** @type {Title[]} */
  const titles = [];
  const plain = report.layers.every((layer, l) => sharing(layer) === 1 && !layerText(report, l));
  let [y, column] = [0, 0];
  report.layers.forEach((layer, l) => {
    const group = sharing(layer);
    const flows = plain && columns < layer.heads.length; // layers follow each other without a break
    if (column && !flows) [y, column] = [y + down, 0];
    const text = layerText(report, l);
    if (text) titles.push({ text, x: 0, y, width: columns * step, kind: "layer" });
    if (text) y += TITLE;
    for (let head = 0; head < layer.heads.length; head++) {
      const starts = group > 1 && head % group === 0;
      if (column >= columns || (starts && column + group > columns && column)) [y, column] = [y + down, 0];
      if (starts && !column) y += TITLE; // the room above a row of groups
      const width = min(group, columns) * step - 10;
      if (starts) titles.push({ text: sharedText(head, group), x: column * step, y: y - TITLE, width, kind: "group" });
      places.push({ layer: l, head, x: column * step, y });
      column++;
    }
  });
  return { places, titles, height: y + (column ? down : 0) };
}

/** Heads in an order of their own. @param {Place[]} heads @param {GridSizes} sizes */
export function inOrder(heads, { columns, step, down }) {
  const places = heads.map((one, i) => ({ ...one, x: (i % columns) * step, y: ABOVE + floor(i / columns) * down }));
  const rows = floor((heads.length - 1) / columns) + 1;
  return { places, titles: /** @type {Title[]} */ ([]), height: ABOVE + rows * down };
}
