// A small picture of every head, to choose one by, and the mark of a role.

import { ceil, floor, max, min } from "../data/math.js";
import { attributes, finish, h, isPlain, moveIn, s, sizedContext, styles } from "./dom.js";
import { drawPicture } from "./head-pictures.js";

/** @import { Report, RoleInfo } from "../data/page-data.js" */
/** @import { Atlas } from "./head-pictures.js" */

/** The mark of a role: its shape on a map. @param {RoleInfo} role */
export function roleMark({ glyph, light, dark }) {
  const mark = s(
    "svg.glyph",
    { viewBox: "0 0 12 12", width: 12, height: 12, "aria-hidden": true },
    s("path.frame", { d: "M.5 .5v11h11z" }),
    s("path", { class: glyph.endsWith("z") ? "shape area" : "shape", d: glyph }),
  );
  mark.style.setProperty("--light", light);
  mark.style.setProperty("--dark", dark);
  return mark;
}

/** All heads, layers down and heads across, one of them chosen. */
export class HeadPicker {
  /** @param {(layer: number, head: number) => void} pick */
  constructor(pick) {
    this.pick = pick;
    this.canvas = /** @type {HTMLCanvasElement} */ (h("canvas"));
    this.mark = h("span.picked");
    this.el = h("div.picker", { role: "grid", "aria-label": "heads", tabindex: "0" }, this.canvas, this.mark);
    this.cell = h("span.picker-cell", { role: "gridcell" });
    this.el.append(h("div", { role: "row" }, this.cell));
    this.el.addEventListener("click", (event) => {
      const box = this.el.getBoundingClientRect();
      const head = floor((event.clientX - box.left - this.left) / this.step);
      const layer = floor((event.clientY - box.top) / this.step);
      if (this.report?.layers[layer]?.heads[head]) pick(layer, head);
    });
    this.el.addEventListener("keydown", (event) => this.#key(event));
    /** @type {Report | null} */
    this.report = null;
    /** @type {Atlas | null} */
    this.atlas = null;
    this.width = 0;
    this.left = 14; // room for the numbers of layers
    this.step = 24;
    this.size = 20;
    this.layer = 0;
    this.head = 0;
  }

  /** @param {Report} report @param {Atlas} atlas @param {number} width @param {string} ink */
  draw(report, atlas, width, ink) {
    if (this.report === report && this.atlas === atlas && this.width === width) return;
    Object.assign(this, { report, atlas, width });
    const most = max(1, ...report.layers.map((layer) => layer.heads.length));
    this.step = max(6, min(24, floor((width - this.left) / most)));
    const size = max(4, this.step - (this.step > 12 ? 4 : 1));
    const height = report.layers.length * this.step;
    const context = sizedContext(this.canvas, width, height);
    context.clearRect(0, 0, width, height);
    context.imageSmoothingEnabled = true;
    context.fillStyle = ink;
    context.font = "9px ui-monospace, Menlo, Consolas, monospace";
    const every = max(1, ceil(10 / this.step));
    report.layers.forEach((layer, l) => {
      if (l % every === 0) context.fillText(String(l), 0, l * this.step + size / 2 + 3);
      for (let i = 0; i < layer.heads.length; i++) {
        drawPicture(context, atlas, `${l}.${i}`, this.left + i * this.step, l * this.step, size);
      }
    });
    styles(this.el, { width: width, height: height });
    attributes(this.el, { "aria-rowcount": report.layers.length, "aria-colcount": most });
    this.size = size;
    this.choose(this.layer, this.head);
  }

  /** @param {number} layer @param {number} head */
  choose(layer, head) {
    Object.assign(this, { layer, head });
    const info = this.report?.layers[layer]?.heads[head];
    styles(this.mark, {
      left: this.left + head * this.step,
      top: layer * this.step,
      width: this.size,
      height: this.size,
    });
    attributes(this.cell, {
      "aria-rowindex": layer + 1,
      "aria-colindex": head + 1,
      "aria-label": `head ${layer}.${head}${info ? `, ${info.role}` : ""}`,
    });
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const report = this.report;
    if (!report || !isPlain(event)) return;
    const to = moveIn(event.key, this.layer, this.head, report.layers[this.layer].heads.length - 1);
    if (!to || event.key.startsWith("Page")) return;
    finish(event);
    const [layer, head] = to;
    if (report.layers[layer]?.heads[head]) this.pick(layer, head);
  }
}
