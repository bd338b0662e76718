// The map: every head as a cell of one canvas, with what it does in how many rows, or with one number.

import { floor, max, min, round } from "../data/math.js";
import { css, weightColor } from "../draw/color.js";
import { attributes, finish, h, isPlain, moveIn, sizedContext, styles } from "../draw/dom.js";
import { number } from "../words/names.js";

/** @import { RoleInfo } from "./atlas-data.js" */
/** @import { Theme } from "../draw/color.js" */
/**
 * A head of an atlas, or of a run at some step.
 * @typedef {{name: string, layer: number, head: number, role: string, info: {jobs: Record<string, number>},
 *   number: (name: string) => number | undefined}} MapHead
 */
/**
 * Heads as a map shows them. sizes: those of each layer. scale: how far along a statistic's range a head is.
 * @template {MapHead} T
 * @typedef {{heads: T[], roles: Map<string, RoleInfo>, most: number, sizes: number[],
 *   scale?: (name: string) => (head: T) => number}} Heads
 */
/**
 * @template {MapHead} T
 * @typedef {{head: T, x: number, y: number}} Cell
 */

const LEFT = 22; // pixels for the numbers of layers
const TOP = 16; // pixels for the numbers of heads
const LEAST = 13; // pixels of a column
const NAMED = 40; // pixels of a column from which a cell has the number of its head
const DRAWN = 22; // pixels from which it has the shape of its role
const COUNTED = 70; // pixels from which it has a number beside its name
const TALL = 700; // pixels of a sorted map up to which cells have numbers
const BAR = 8; // pixels of a bar below a shape
const SHADES = { light: { ink: "#1a1c20", quiet: "#6b7078", wash: "#f4f4f1", bar: "#2a63b5" } };
/** @type {Record<Theme, typeof SHADES.light>} */
const INKS = { ...SHADES, dark: { ink: "#eceef0", quiet: "#8e949c", wash: "#1a1d21", bar: "#6aa6ef" } };

/**
 * Layers down and heads across; sorted, the heads one after another.
 * @template {MapHead} T
 */
export class HeadMap {
  /** @param {(head: T) => void} pick @param {(head: T | null) => void} point */
  constructor(pick, point) {
    this.pick = pick;
    this.canvas = /** @type {HTMLCanvasElement} */ (h("canvas", { "aria-hidden": true }));
    this.mark = h("span.picked");
    this.cell = h("span.picker-cell", { role: "gridcell" });
    const options = { role: "grid", "aria-label": "heads", tabindex: "0", "aria-readonly": true };
    this.el = h("div.picker", options, this.canvas, h("div", { role: "row" }, this.cell), this.mark);
    this.el.addEventListener("pointermove", (event) => point(this.#under(event)));
    this.el.addEventListener("pointerleave", () => point(null));
    this.el.addEventListener("click", (event) => {
      const head = this.#under(event);
      if (head) pick(head);
    });
    this.el.addEventListener("keydown", (event) => this.#key(event));
    /** @type {Cell<T>[]} */
    this.cells = [];
    /** @type {T | null} */
    this.chosen = null;
    this.columns = 1;
    this.step = LEAST;
    this.down = LEAST;
    this.left = LEFT;
    this.gap = 3;
  }

  /**
   * @param {Heads<T>} atlas @param {T[]} found the heads of the query, in order @param {string} sort
   * @param {number} width @param {Theme} theme @param {string} shown the number that bars show; "layer" for the jobs
   */
  draw(atlas, found, sort, width, theme, shown = sort) {
    const byLayer = sort === "layer";
    this.left = byLayer ? LEFT : 0;
    const room = max(120, width) - this.left;
    const fitting = (/** @type {number} */ least) => max(1, floor(room / least));
    const wide = fitting(COUNTED);
    const isFew = Math.ceil(found.length / wide) * 40 <= TALL;
    this.columns = byLayer ? min(atlas.most, fitting(LEAST)) : isFew ? wide : min(2 * atlas.most, fitting(LEAST));
    this.step = min(96, floor(room / this.columns));
    this.gap = this.step >= COUNTED ? 10 : 3;
    this.down = this.step >= NAMED ? 40 : max(LEAST + 1, this.step);
    this.cells = byLayer ? this.#byLayer(atlas) : found.map((head, i) => this.#at(head, floor(i / this.columns), i));
    const height = (this.cells.at(-1)?.y ?? 0) + this.down;
    const context = sizedContext(this.canvas, width, height);
    context.clearRect(0, 0, width, height);
    const inks = INKS[theme];
    if (byLayer) this.#drawNumbers(context, inks.quiet);
    const those = new Set(found);
    const scale = atlas.scale?.(shown) ?? scaleOf(atlas, shown);
    for (const one of this.cells) {
      context.globalAlpha = those.has(one.head) ? 1 : 0.13;
      if (shown === "layer") this.#drawJobs(context, one, atlas, theme);
      else this.#drawNumber(context, one, scale(one.head), one.head.number(shown), inks, theme);
      this.#drawName(context, one, atlas, inks, theme);
    }
    context.globalAlpha = 1;
    styles(this.el, { width, height });
    attributes(this.el, { "aria-rowcount": this.#rowOf(this.cells.at(-1)) + 1, "aria-colcount": this.columns });
    this.choose(this.chosen);
  }

  /** @param {T | null} head */
  choose(head) {
    this.chosen = head;
    const cell = this.cells.find((one) => one.head === head);
    this.mark.hidden = !cell;
    const [width, height] = [this.step - this.gap, this.down - 3];
    if (cell) styles(this.mark, { left: cell.x, top: cell.y, width, height });
    styles(this.cell, { left: cell?.x ?? 0, top: cell?.y ?? 0, width, height });
    attributes(this.cell, {
      "aria-rowindex": this.#rowOf(cell) + 1,
      "aria-colindex": cell ? this.#columnOf(cell) + 1 : 1,
      "aria-label": head ? `head ${head.name}, ${head.role}` : "no head",
      "aria-selected": Boolean(cell),
    });
  }

  /** Width and height of a cell, and the height of its bar. */
  #sizes() {
    const [width, height] = [this.step - this.gap, this.down - 3];
    return [width, height, this.step < DRAWN ? height : this.step < NAMED ? 5 : BAR];
  }

  /** @param {Heads<T>} atlas @returns {Cell<T>[]} */
  #byLayer(atlas) {
    const lines = atlas.sizes.map((size) => Math.ceil(size / this.columns));
    const before = lines.map((_, layer) => lines.slice(0, layer).reduce((a, b) => a + b, 0));
    return atlas.heads.map((head) => this.#at(head, before[head.layer] + floor(head.head / this.columns), head.head));
  }

  /** @param {T} head @param {number} row @param {number} i @returns {Cell<T>} */
  #at(head, row, i) {
    return {
      head,
      x: this.left + (i % this.columns) * this.step,
      y: (this.left ? TOP : 0) + row * this.down,
    };
  }

  /** @param {Cell<T> | undefined} cell */
  #rowOf(cell) {
    return cell ? round((cell.y - (this.left ? TOP : 0)) / this.down) : 0;
  }

  /** @param {Cell<T>} cell */
  #columnOf(cell) {
    return round((cell.x - this.left) / this.step);
  }

  /** @param {CanvasRenderingContext2D} context @param {string} ink */
  #drawNumbers(context, ink) {
    context.fillStyle = ink;
    context.font = `10px ${getComputedStyle(this.el).getPropertyValue("--mono") || "monospace"}`;
    const every = this.step < 18 ? 4 : 1;
    for (let i = 0; i < this.columns; i += every) context.fillText(String(i), this.left + i * this.step, TOP - 5);
    let last = -1;
    for (const { head, x, y } of this.cells) {
      if (x !== this.left || head.head || (last >= 0 && head.layer % (this.down < 16 ? 2 : 1))) continue;
      context.fillText(String(head.layer), 0, y + (this.down - 3) / 2 + 3.5);
      last = head.layer;
    }
  }

  /** The jobs of a head, as parts of a bar. @param {CanvasRenderingContext2D} context @param {Cell<T>} cell
   * @param {Heads<T>} atlas @param {Theme} theme */
  #drawJobs(context, { head, x, y }, atlas, theme) {
    const [width, height, thick] = this.#sizes();
    const alpha = context.globalAlpha;
    let at = x;
    for (const [job, share] of Object.entries(head.info.jobs)) {
      const role = atlas.roles.get(job);
      if (!role) continue;
      context.fillStyle = role[theme];
      context.globalAlpha = alpha * (role.clear ? 1 : role.name === "mixed" ? 0.16 : 0.36);
      context.fillRect(at, y + height - thick, width * share, thick);
      at += width * share;
    }
    context.globalAlpha = alpha;
  }

  /**
   * A number of a head, as a bar.
   * @param {CanvasRenderingContext2D} context @param {Cell<T>} cell @param {number} share
   * @param {number | undefined} value
   * @param {typeof SHADES.light} inks @param {Theme} theme
   */
  #drawNumber(context, { x, y }, share, value, inks, theme) {
    const [width, height, thick] = this.#sizes();
    context.fillStyle = inks.wash;
    context.fillRect(x, y + height - thick, width, thick);
    context.fillStyle = this.step < DRAWN ? css(weightColor(share, theme)) : inks.bar;
    context.fillRect(x, y + height - thick, this.step < DRAWN ? width : width * share, thick);
    if (this.step < COUNTED || value === undefined) return;
    context.fillStyle = inks.quiet;
    context.textAlign = "right";
    context.font = "10.5px ui-monospace, Menlo, 'DejaVu Sans Mono', monospace";
    context.fillText(number(value), x + width, y + height - thick - 5);
    context.textAlign = "left";
  }

  /** The number and the shape of a head's role, where there is room. @param {CanvasRenderingContext2D} context
   * @param {Cell<T>} cell @param {Heads<T>} atlas @param {typeof SHADES.light} inks @param {Theme} theme */
  #drawName(context, { head, x, y }, atlas, inks, theme) {
    if (this.step < DRAWN) return;
    const base = y + this.down - 3 - (this.step < NAMED ? 5 + 3 : BAR + 6);
    const role = atlas.roles.get(head.role);
    if (role) drawGlyph(context, role.glyph, role[theme], x, base - 11);
    if (this.step < NAMED) return;
    context.fillStyle = inks.ink;
    context.font = "600 11.5px ui-monospace, Menlo, 'DejaVu Sans Mono', monospace";
    context.fillText(head.name, x + 16, base);
  }

  /** @param {MouseEvent} event @returns {T | null} */
  #under(event) {
    const box = this.el.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const inside = (/** @type {Cell<T>} */ one) =>
      x >= one.x && x < one.x + this.step && y >= one.y && y < one.y + this.down;
    return this.cells.find(inside)?.head ?? null;
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const here = this.cells.find((one) => one.head === this.chosen) ?? this.cells[0];
    if (!here || !isPlain(event)) return;
    const to = moveIn(event.key, this.#rowOf(here), this.#columnOf(here), this.columns - 1);
    const cell = to && this.cells.find((one) => this.#rowOf(one) === to[0] && this.#columnOf(one) === to[1]);
    if (!cell) return;
    finish(event);
    this.pick(cell.head);
  }
}

/**
 * How far a head's number is from 0, or the smallest, to the largest of all heads.
 * @template {MapHead} T
 * @param {Heads<T>} atlas @param {string} name
 */
function scaleOf(atlas, name) {
  const values = atlas.heads.map((one) => one.number(name) ?? 0);
  const [low, high] = [min(0, ...values), max(1e-9, ...values)];
  return (/** @type {T} */ head) => ((head.number(name) ?? 0) - low) / (high - low);
}

/**
 * @param {CanvasRenderingContext2D} context @param {string} glyph @param {string} color
 * @param {number} x @param {number} y
 */
function drawGlyph(context, glyph, color, x, y) {
  context.save();
  context.translate(x, y);
  context.strokeStyle = context.fillStyle = color;
  context.lineWidth = 0.6;
  context.stroke(new Path2D("M.5 .5v11h11z"));
  context.lineWidth = 1.8;
  const shape = new Path2D(glyph);
  if (glyph.endsWith("z")) context.fill(shape);
  else context.stroke(shape);
  context.restore();
}
