// Strips: a row for each head of a layer, a column for each word, on one axis with the row of all heads.

import { ceil, floor, isMissing, max, min } from "../data/math.js";
import { css, inkOn, pixelImage } from "./color.js";
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

/** @import { Rgb } from "./color.js" */
/** @import { Names } from "../words/names.js" */
/**
 * name: what stands before a row; values: a number for each word, NaN where there is none; note: what stands behind it.
 * @typedef {{name: string, note?: string, values: ArrayLike<number>}} Strip
 * @typedef {{names: Names, width: number, left: number, right: number, high: number, labels: boolean, font: string,
 *   color: (value: number) => Rgb, text: (value: number) => string, chosen: number, focus: number}} StripOptions
 *   chosen: the row that is outlined; focus: the column; left, right: room for names and notes; text: of a cell
 */

const APART = 6; // pixels between the heads and the row of all
const LONGEST = 110;
const NUMBERS_FROM = 30; // pixels of a cell that carries its number
const LABEL = 13; // pixels between labels

/** Rows of cells; the last one, of all heads, stands apart. */
export class HeadStrips {
  /**
   * @param {string} label
   * @param {{point: (row: number, col: number) => void, pick: (row: number, col: number) => void, leave: () => void,
   *   describe: (row: number, col: number) => string}} events
   */
  constructor(label, events) {
    this.events = events;
    this.canvas = /** @type {HTMLCanvasElement} */ (h("canvas"));
    this.labels = s("svg.labels", { "aria-hidden": true });
    this.outline = s("rect.outline", { visibility: "hidden" });
    this.spot = s("rect.spot", { visibility: "hidden" });
    this.over = s("svg.over", { "aria-hidden": true }, this.outline, this.spot);
    this.cell = h("span.map-cell", { role: "gridcell", tabindex: "0" });
    this.grid = mapGrid(this.cell, label);
    this.el = h("div.map.strips", this.labels, this.canvas, this.over, this.grid);
    this.grid.addEventListener("pointermove", (event) => this.#pointer(event, events.point));
    this.grid.addEventListener("pointerleave", () => events.leave());
    this.grid.addEventListener("click", (event) => this.#pointer(event, events.pick));
    this.cell.addEventListener("keydown", (event) => this.#key(event));
    this.rows = 0;
    this.cols = 0;
    this.step = 1;
    this.high = 20;
    this.left = 0;
    this.top = 0;
    this.at = { row: 0, col: 0 };
  }

  /** @param {Strip[]} strips @param {StripOptions} options */
  draw(strips, options) {
    const { names, width, left, right, high, labels, font } = options;
    this.rows = strips.length;
    this.cols = names.size;
    this.left = left;
    this.high = high;
    const room = max(60, width - left - right);
    this.step = min(44, room / max(1, this.cols));
    if (this.step > 4) this.step = floor(this.step * 2) / 2;
    const widest = max(8, ...names.names.map((name) => textWidth(name, font)));
    const flat = this.step >= min(LONGEST, widest) + 8;
    this.top = labels ? (flat ? 20 : ceil(min(LONGEST, widest)) + 10) : 0;
    const [wide, tall] = [this.cols * this.step, this.#y(this.rows) - this.top];
    this.#cells(strips, options, wide, tall);
    styles(this.canvas, { left, top: this.top });
    styles(this.grid, { left, top: this.top, width: wide, height: tall });
    attributes(this.grid, { "aria-rowcount": this.rows, "aria-colcount": this.cols });
    for (const layer of [this.labels, this.over])
      attributes(layer, { width: left + wide + right, height: this.top + tall });
    styles(this.el, { width: left + wide + right, height: this.top + tall });
    styles(this.labels, { font });
    const label = (/** @type {Strip} */ { name, note = "" }, /** @type {number} */ row) => {
      const y = this.#y(row) + this.high / 2 + 4;
      const of = { "data-at": row, y, class: row === options.chosen ? "row on" : "row" };
      const behind = note && fitText(note, right - 16, font);
      return [
        s("text", { ...of, x: left - 8, "text-anchor": "end" }, fitText(name, left - 10, font)),
        s("text.note", { y, x: left + wide + 10 }, leftToRight(behind)),
      ];
    };
    fill(this.labels, ...strips.flatMap(label), ...(labels ? this.#columnLabels(strips, options, flat) : []));
    this.focus(options.chosen, options.focus);
  }

  /** Outline a row, and a cell of it; -1 is none. @param {number} row @param {number} col */
  focus(row, col) {
    const isRow = row >= 0 && row < this.rows;
    const isCol = col >= 0 && col < this.cols;
    const wide = max(3, this.step);
    attributes(this.outline, {
      visibility: isRow ? "visible" : "hidden",
      x: this.left - 0.5,
      y: this.#y(max(0, row)) - 0.5,
      width: this.cols * this.step,
      height: this.high,
    });
    attributes(this.spot, {
      visibility: isCol ? "visible" : "hidden",
      x: this.left + col * this.step - 0.5,
      y: (isRow ? this.#y(row) : this.top) - 0.5,
      width: wide,
      height: isRow ? this.high : this.#y(this.rows) - this.top,
    });
    this.at = { row: max(0, row), col: max(0, col) };
    styles(this.cell, {
      left: this.at.col * this.step,
      top: this.#y(this.at.row) - this.top,
      width: wide,
      height: this.high,
    });
    attributes(this.cell, {
      "aria-rowindex": this.at.row + 1,
      "aria-colindex": this.at.col + 1,
      "aria-label": this.events.describe(this.at.row, this.at.col),
    });
  }

  /** Where a row begins. @param {number} row */
  #y(row) {
    return this.top + row * this.high + (this.rows > 1 && row >= this.rows - 1 ? APART : 0);
  }

  /** @param {Strip[]} strips @param {StripOptions} options @param {number} wide @param {number} tall */
  #cells(strips, { color, text }, wide, tall) {
    const context = sizedContext(this.canvas, max(1, wide), max(1, tall));
    context.clearRect(0, 0, wide, tall);
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.font = "10px ui-monospace, Menlo, Consolas, monospace";
    const { step, high, top } = this;
    strips.forEach(({ values }, row) => {
      const y = this.#y(row) - top;
      if (step < 3) {
        // Columns that are narrower than a pixel are drawn by their largest value.
        const count = min(values.length, floor(wide));
        const pooled = Float32Array.from({ length: count }, () => NaN);
        for (let i = 0; i < values.length; i++) {
          const at = floor((i * count) / values.length);
          if (!(pooled[at] >= values[i]) && !isMissing(values[i])) pooled[at] = values[i];
        }
        const image = pixelImage(count, 1, pooled, (value) => (isMissing(value) ? null : color(value)));
        context.drawImage(image, 0, 0, count, 1, 0, y, wide, high - 1);
        return;
      }
      for (let i = 0; i < values.length; i++) {
        if (isMissing(values[i])) continue;
        const paint = color(values[i]);
        context.fillStyle = css(paint);
        context.fillRect(i * step, y, step - (step >= 8 ? 1 : 0.5), high - 1);
        if (step < NUMBERS_FROM || high < 16) continue;
        context.fillStyle = inkOn(paint);
        context.fillText(text(values[i]), (i + 0.5) * step, y + high / 2);
      }
    });
  }

  /**
   * The column in focus and those with the largest numbers have their labels first, as many as there is room for.
   * @param {Strip[]} strips @param {StripOptions} options @param {boolean} flat
   */
  #columnLabels(strips, { names, font, focus }, flat) {
    const most = Float32Array.from({ length: this.cols }, (_, i) =>
      i === focus ? Infinity : max(...strips.map(({ values }) => values[i] || 0)),
    );
    const order = [...most.keys()].sort((a, b) => most[b] - most[a] || a - b);
    /** @type {number[]} */
    const placed = [];
    for (const i of order) if (placed.every((other) => Math.abs(other - i) * this.step >= LABEL)) placed.push(i);
    return placed.map((i) => {
      const name = leftToRight(fitText(names.names[i], LONGEST, font));
      const x = this.left + (i + 0.5) * this.step;
      const place = flat
        ? { x, y: this.top - 6, "text-anchor": "middle" }
        : { transform: `translate(${x + 3.5} ${this.top - 6}) rotate(-90)`, "text-anchor": "start" };
      return s(
        "text",
        { class: i === focus ? "col on" : "col", "data-at": i, "data-padding": names.padding[i], ...place },
        name,
      );
    });
  }

  /** @param {MouseEvent} event @param {(row: number, col: number) => void} act */
  #pointer(event, act) {
    const box = this.grid.getBoundingClientRect();
    const col = floor((event.clientX - box.left) / this.step);
    const y = event.clientY - box.top;
    const last = this.#y(this.rows - 1) - this.top;
    const row = y >= last ? this.rows - 1 : min(this.rows - 2, floor(y / this.high));
    if (row >= 0 && col >= 0 && col < this.cols) act(row, col);
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (!isPlain(event)) return;
    const { row, col } = this.at;
    const isPick = event.key === "Enter" || event.key === " ";
    const to = isPick ? [row, col] : moveIn(event.key, row, col, this.cols - 1);
    if (!to) return;
    finish(event);
    const [r, c] = [min(this.rows - 1, max(0, to[0])), min(this.cols - 1, max(0, to[1]))];
    (isPick ? this.events.pick : this.events.point)(r, c);
  }
}
