// While the model writes: every head as a map that grows, and below it the newest row. Only the new row is drawn.

import { ceil, floor, max, min } from "../data/math.js";
import { css, weightColor } from "../draw/color.js";
import { attributes, h, sizedContext } from "../draw/dom.js";

/** @import { Theme } from "../draw/color.js" */

const SHADES = 64;
const LEAST = 0.01; // weights below it are as pale as none
const NEWEST = 6; // pixels of the newest row
const LABEL = 16;
const GAP = 12;
const LARGEST = 132; // pixels of a map
const LEAST_SIZE = 48;
const WIDEST_STEP = 1.7; // from a map to the next one, in sizes of a map
const DOWN = NEWEST + LABEL + 6; // pixels from a map to the next one below

/** A canvas with all heads. */
export class WritingBoard {
  constructor() {
    this.canvas = /** @type {HTMLCanvasElement} */ (h("canvas", { role: "img" }));
    this.el = h("div.board", this.canvas);
    this.el.hidden = true;
    /** @type {{layer: number, head: number, x: number, y: number}[]} */
    this.places = [];
    this.longest = 1;
    this.size = 0;
    this.step = 0; // from a map to the next one in its row
    this.across = 1;
    /** @type {string[]} */
    this.colors = [];
  }

  /**
   * Begin with the rows that are there.
   * @param {number[]} heads of each layer @param {number} longest tokens that there may be
   * @param {{theme: Theme, ink: string, height: number}} look ink: of labels; height: pixels that it should fit in
   * @param {(layer: number, head: number) => Float32Array} triangle the rows of a head, one after another
   */
  begin(heads, longest, { theme, ink, height }, triangle) {
    this.el.hidden = false;
    const width = this.el.clientWidth || 900;
    this.across = max(...heads);
    // a layer is a row of heads; where they would be too small to see, it goes on below
    while (this.across > 4 && width / this.across < 40) this.across = ceil(this.across / 2);
    const layers = heads.reduce((sum, count) => sum + ceil(count / this.across), 0);
    this.size = floor(min(LARGEST, width / this.across - GAP, max(LEAST_SIZE, height / layers - DOWN)));
    this.step = floor(min(width / this.across, this.size * WIDEST_STEP));
    this.colors = Array.from({ length: SHADES + 1 }, (_, i) => css(weightColor(i / SHADES, theme)));
    const places = this.#places(heads);
    Object.assign(this, { longest, places });
    const down = max(...places.map(({ y }) => y)) + this.size + NEWEST + LABEL;
    this.context = sizedContext(this.canvas, width, down);
    this.context.clearRect(0, 0, width, down);
    this.context.font = "11px ui-monospace, Menlo, Consolas, monospace";
    this.context.fillStyle = ink;
    for (const { x, y, layer, head } of places) this.context.fillText(`${layer}.${head}`, x, y - 4);
    places.forEach(({ layer, head }, i) => {
      const all = triangle(layer, head);
      for (let row = 0, at = 0; at < all.length; at += ++row) this.#row(i, all.subarray(at, at + row + 1));
    });
  }

  /** A row for every head, one after the other. @param {Float32Array} rows @param {string} token for readers */
  add(rows, token) {
    const count = this.places.length;
    const length = rows.length / count;
    for (let i = 0; i < count; i++) this.#row(i, rows.subarray(i * length, (i + 1) * length), true);
    attributes(this.canvas, { "aria-label": `the rows of all heads so far; the newest token is ${token}` });
  }

  end() {
    this.el.hidden = true;
  }

  /** @param {number[]} heads of each layer */
  #places(heads) {
    let top = LABEL;
    return heads.flatMap((count, layer) => {
      const start = top;
      top += ceil(count / this.across) * (this.size + DOWN);
      return Array.from({ length: count }, (_, head) => ({
        layer,
        head,
        x: (head % this.across) * this.step,
        y: start + floor(head / this.across) * (this.size + DOWN),
      }));
    });
  }

  /** @param {number} number of the head among all @param {Float32Array} row @param {boolean} [isNewest] */
  #row(number, row, isNewest = false) {
    const { context, size, longest, colors } = this;
    if (!context) return;
    const { x, y } = this.places[number];
    const cell = size / longest;
    const [top, high] = [y + (row.length - 1) * cell, max(cell, 0.75)];
    context.fillStyle = colors[0];
    context.fillRect(x, top, row.length * cell, high);
    if (isNewest) context.fillRect(x, y + size + 3, size, NEWEST);
    const wide = size / row.length;
    for (let key = 0; key < row.length; key++) {
      const weight = row[key];
      if (!(weight >= LEAST)) continue;
      context.fillStyle = colors[ceil(weight * SHADES)];
      context.fillRect(x + key * cell, top, max(cell, 0.75), high);
      if (isNewest) context.fillRect(x + key * wide, y + size + 3, max(wide, 1), NEWEST);
    }
  }
}
