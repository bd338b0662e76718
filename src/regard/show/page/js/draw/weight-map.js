// The map: a row for each query, a column for each key, a cell for each weight. Masked is no cell; zero is a pale one.

import { abs, ceil, floor, isMissing, max, min, round } from "../data/math.js";
import { Names, number } from "../words/names.js";
import { css, inkOn, paintBroken, pixelImage, signedColor, weightColor } from "./color.js";
import {
  attributes,
  fill,
  finish,
  fitText,
  h,
  isPlain,
  leftToRight,
  mapGrid,
  moveIn,
  s,
  sizedContext,
  styles,
  textWidth,
} from "./dom.js";

/** @import { Weights } from "../data/page-data.js" */
/** @import { Theme } from "./color.js" */
/**
 * @typedef {{cell: number, theme: Theme, signed?: boolean, rowLabels: boolean, diagonalLabels?: boolean, bare?:
 *   boolean, font?: string, broken?: Set<number>, triangle?: boolean}} MapOptions bare: no labels at all; font: of
 *   labels; broken: rows whose weights are no numbers; triangle: are later keys hidden from them?
 * @typedef {(row: number, col: number) => void} OnCell
 */

export const LABEL_FONT = '11px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';
const LONGEST_LABEL = 120;
const NUMBERS_FROM = 27; // pixels of a cell that carries its number
const LABELS_FROM = 13; // pixels of a cell from which every row has a label

/** A map of weights with labels, an outline around the row in focus, and one cell that the keyboard moves. */
export class WeightMap {
  /** @param {{point: OnCell, leave: () => void, pick: OnCell, label: string}} events */
  constructor(events) {
    this.events = events;
    this.canvas = /** @type {HTMLCanvasElement} */ (h("canvas"));
    this.labels = s("svg.labels", { "aria-hidden": true });
    this.outline = s("rect.outline", { visibility: "hidden" });
    this.spot = s("rect.spot", { visibility: "hidden" });
    this.over = s("svg.over", { "aria-hidden": true }, this.outline, this.spot);
    this.cell = h("span.map-cell", { role: "gridcell", tabindex: "0" });
    this.grid = mapGrid(this.cell, events.label);
    this.el = h("div.map", this.labels, this.canvas, this.over, this.grid);
    this.grid.addEventListener("pointermove", (event) => this.#pointer(event, events.point));
    this.grid.addEventListener("pointerleave", () => events.leave());
    this.grid.addEventListener("click", (event) => this.#pointer(event, events.pick));
    this.cell.addEventListener("keydown", (event) => this.#key(event));
    /** @type {Weights | null} */
    this.weights = null;
    this.rows = new Names(null, 0, false);
    this.cols = this.rows;
    this.upright = false;
    this.row = -1;
    this.col = -1;
    this.left = 0;
    this.top = 0;
    this.size = 12;
    /** @type {Set<number>} */
    this.broken = new Set();
  }

  /** @param {Weights} weights @param {Names} rows @param {Names} cols @param {MapOptions} options */
  draw(weights, rows, cols, options) {
    const { cell, font = LABEL_FONT } = options;
    this.weights = weights;
    this.rows = rows;
    this.cols = cols;
    this.size = cell;
    const widest = (/** @type {Names} */ names) =>
      min(LONGEST_LABEL, max(8, ...names.names.map((name) => textWidth(name, font))));
    this.upright = cols.size >= 15 || cell < widest(cols) + 8;
    this.top = options.diagonalLabels || options.bare ? 0 : ceil(this.upright ? widest(cols) + 10 : 20);
    this.left = options.rowLabels && !options.diagonalLabels && !options.bare ? ceil(widest(rows)) + 8 : 0;
    const [width, height] = [weights.S * cell, weights.T * cell];
    const context = sizedContext(this.canvas, width, height);
    context.clearRect(0, 0, width, height);
    if (cell >= 4) this.#cells(context, weights, options);
    else this.#pixels(context, weights, options);
    this.broken = options.broken ?? new Set();
    for (const row of this.broken)
      paintBroken(context, row * cell, cell, options.triangle ? (row + 1) * cell : width, options.theme);
    const place = { left: `${this.left}px`, top: `${this.top}px`, width: `${width}px`, height: `${height}px` };
    styles(this.canvas, { left: place.left, top: place.top });
    styles(this.grid, place);
    attributes(this.grid, { "aria-rowcount": weights.T, "aria-colcount": weights.S });
    const whole = { width: this.left + width, height: this.top + height };
    for (const layer of [this.labels, this.over]) attributes(layer, whole);
    styles(this.el, { width: whole.width, height: whole.height });
    styles(this.labels, { font });
    this.#drawLabels(rows, cols, options);
    this.focus(this.row, this.col);
  }

  /**
   * Outline a row, and a cell of it; -1 is none. Nothing else is drawn again.
   * @param {number} row @param {number} col
   */
  focus(row, col) {
    this.row = row;
    this.col = col;
    const weights = this.weights;
    if (!weights) return;
    const { size, left, top } = this;
    const isRow = row >= 0 && row < weights.T;
    const isCol = col >= 0 && col < weights.S;
    let last = weights.S - 1;
    if (isRow) while (last > 0 && isMissing(weights.at(row, last))) last--;
    attributes(this.outline, {
      visibility: isRow || isCol ? "visible" : "hidden",
      x: left + (isRow ? 0 : col * size) - 0.5,
      y: top + (isRow ? row * size : 0) - 0.5,
      width: (isRow ? (last + 1) * size : size) + 0.5,
      height: (isRow ? size : weights.T * size) + 0.5,
    });
    attributes(this.spot, {
      visibility: isRow && isCol ? "visible" : "hidden",
      x: left + col * size - 0.5,
      y: top + row * size - 0.5,
      width: size + 0.5,
      height: size + 0.5,
    });
    const [r, c] = [max(0, row), max(0, col)];
    styles(this.cell, { left: c * size, top: r * size, width: size, height: size });
    attributes(this.cell, {
      "aria-rowindex": r + 1,
      "aria-colindex": c + 1,
      "aria-label": this.describe(r, c),
      "data-weight": String(weights.at(r, c)),
    });
    for (const [axis, at] of /** @type {["row" | "col", number][]} */ ([
      ["row", row],
      ["col", col],
    ])) {
      const before = this.labels.querySelector(`text.${axis}.on`);
      if (before && Number(before.getAttribute("data-at")) !== at) before.classList.remove("on");
      this.labels.querySelector(`text.${axis}[data-at="${at}"]`)?.classList.add("on");
    }
  }

  /** "very looks at tired: 0.94". @param {number} row @param {number} col */
  describe(row, col) {
    const weight = this.weights ? this.weights.at(row, col) : NaN;
    const [from, to] = [this.rows.said(row), this.cols.said(col)];
    if (this.broken.has(row)) return `${from} → ${to}, not a number`;
    return isMissing(weight) ? `${from} → ${to}, hidden by the mask` : `${from} → ${to}, ${number(weight)}`;
  }

  /** @param {CanvasRenderingContext2D} context @param {Weights} weights @param {MapOptions} options */
  #cells(context, weights, { cell, theme, signed }) {
    const gap = cell >= 8 ? 1 : 0.5;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.font = `${min(12, round(cell * 0.32))}px ui-monospace, Menlo, Consolas, monospace`;
    for (let row = 0; row < weights.T; row++) {
      for (let col = 0; col < weights.S; col++) {
        const value = weights.at(row, col);
        if (isMissing(value)) continue;
        const color = signed ? signedColor(value, theme) : weightColor(value, theme);
        context.fillStyle = css(color);
        context.fillRect(col * cell, row * cell, cell - gap, cell - gap);
        if (cell >= NUMBERS_FROM) {
          context.fillStyle = inkOn(color);
          context.fillText(short(value), (col + 0.5) * cell - gap / 2, (row + 0.5) * cell);
        }
      }
    }
  }

  /**
   * Small cells are pixels of one image.
   * @param {CanvasRenderingContext2D} context @param {Weights} weights @param {MapOptions} options
   */
  #pixels(context, weights, { cell, theme, signed }) {
    const color = signed ? signedColor : weightColor;
    const small = pixelImage(weights.S, weights.T, weights.values, (value) =>
      isMissing(value) ? null : color(value, theme),
    );
    context.drawImage(small, 0, 0, weights.S * cell, weights.T * cell);
  }

  /** @param {Names} rows @param {Names} cols @param {MapOptions} options */
  #drawLabels(rows, cols, { cell, rowLabels, diagonalLabels, bare, font = LABEL_FONT }) {
    if (bare) return fill(this.labels);
    const every = max(1, ceil(LABELS_FROM / cell));
    const marks = [];
    if (diagonalLabels) {
      for (const i of rows.labelled(every)) {
        const name = leftToRight(fitText(rows.names[i], LONGEST_LABEL, font));
        marks.push(s("text.row", { "data-at": i, x: (i + 1) * cell + 6, y: (i + 0.5) * cell + 4 }, name));
      }
    } else {
      for (const i of cols.labelled(every)) {
        const name = leftToRight(fitText(cols.names[i], LONGEST_LABEL, font));
        const x = this.left + (i + 0.5) * cell;
        const options = this.upright
          ? { transform: `translate(${x + 3.5} ${this.top - 6}) rotate(-90)`, "text-anchor": "start" }
          : { x, y: this.top - 6, "text-anchor": "middle" };
        marks.push(s("text.col", { "data-at": i, "data-padding": cols.padding[i], ...options }, name));
      }
      for (const i of rowLabels ? rows.labelled(every) : []) {
        const name = leftToRight(fitText(rows.names[i], LONGEST_LABEL, font));
        const y = this.top + (i + 0.5) * cell + 4;
        marks.push(s("text.row", { "data-at": i, x: this.left - 6, y, "text-anchor": "end" }, name));
      }
    }
    fill(this.labels, ...marks);
  }

  /** @param {MouseEvent} event @param {OnCell} act */
  #pointer(event, act) {
    const box = this.grid.getBoundingClientRect();
    const col = floor((event.clientX - box.left) / this.size);
    const row = floor((event.clientY - box.top) / this.size);
    const weights = this.weights;
    if (weights && row >= 0 && row < weights.T && col >= 0 && col < weights.S) act(row, col);
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const weights = this.weights;
    if (!weights || !isPlain(event)) return;
    const isPick = event.key === "Enter" || event.key === " ";
    const [row, col] = [max(0, this.row), max(0, this.col)];
    const to = isPick ? [row, col] : moveIn(event.key, row, col, weights.S - 1);
    if (!to) return;
    finish(event);
    const clamp = (/** @type {number} */ at, /** @type {number} */ size) => min(size - 1, max(0, at));
    (isPick ? this.events.pick : this.events.point)(clamp(to[0], weights.T), clamp(to[1], weights.S));
  }
}

/** A weight in a cell: .94, 1, −.12; nothing where it rounds to 0. @param {number} value */
function short(value) {
  const text = abs(value)
    .toFixed(2)
    .replace(/^0/, "")
    .replace(/^1\.00$/, "1");
  if (text === ".00") return "";
  return (value < 0 ? "−" : "") + text;
}
