// A small picture of every head, to choose one by, and the mark of a role.

import { ceil, floor, max, min } from "../data/math.js";
import { attributes, finish, h, isPlain, moveIn, s, sizedContext, styles } from "./dom.js";
import { drawPicture } from "./head-pictures.js";

/** @import { Report, RoleInfo } from "../data/page-data.js" */
/** @import { Atlas } from "./head-pictures.js" */

const HALF = "M.5 .5v11h11z"; // the map of a causal head
const PREVIEW = 144; // pixels of the picture of the head that is pointed at

/**
 * The mark of a role: its shape on a map.
 * @param {RoleInfo} role
 * @param {boolean} [square] do words look at later ones, too?
 */
export function roleMark({ glyph, light, dark }, square = false) {
  const [frame, shape] = square
    ? ["M.5 .5h11v11h-11z", glyph.replace("M1 1v10h10z", "M1 1h10v10h-10z")]
    : [HALF, glyph];
  const mark = s(
    "svg.glyph",
    { viewBox: "0 0 12 12", width: 12, height: 12, "aria-hidden": true },
    s("path.frame", { d: frame }),
    s("path", { class: glyph.endsWith("z") ? "shape area" : "shape", d: shape }),
  );
  mark.style.setProperty("--light", light);
  mark.style.setProperty("--dark", dark);
  return mark;
}

/** Do words of some layer look at later ones? @param {Report} report */
export function isSquare({ layers }) {
  return !layers.every((layer) => layer.encoding?.triangle);
}

/** All heads, layers down and heads across, one of them chosen. */
export class HeadPicker {
  /**
   * @param {(layer: number, head: number) => void} pick a click, and an arrow key
   * @param {(layer: number, head: number) => void} [act] a click and Enter, where an arrow key only moves
   */
  constructor(pick, act) {
    this.pick = pick;
    this.act = act;
    this.canvas = /** @type {HTMLCanvasElement} */ (h("canvas"));
    this.mark = h("span.picked");
    this.el = h("div.picker", { role: "grid", "aria-label": "heads", tabindex: "0" }, this.canvas, this.mark);
    this.cell = h("span.picker-cell", { role: "gridcell" });
    this.el.append(h("div", { role: "row" }, this.cell));
    this.large = /** @type {HTMLCanvasElement} */ (h("canvas"));
    this.named = h("span");
    this.preview = h("div.preview", { "aria-hidden": true, hidden: true }, this.large, this.named);
    this.previewed = "";
    this.el.append(this.preview);
    this.el.addEventListener("pointermove", (event) => this.#show(event));
    this.el.addEventListener("pointerleave", () => this.#hide());
    this.el.addEventListener("click", (event) => {
      const box = this.el.getBoundingClientRect();
      const head = floor((event.clientX - box.left - this.left) / this.step);
      const layer = floor((event.clientY - box.top) / this.step);
      if (this.report?.layers[layer]?.heads[head]) (act ?? pick)(layer, head);
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
    Object.assign(this, { report, atlas, width, previewed: "" });
    const most = max(1, ...report.layers.map((layer) => layer.heads.length));
    this.step = max(6, min(24, floor((width - this.left) / most)));
    const size = max(4, this.step - (this.step > 12 ? 4 : 1));
    const height = report.layers.length * this.step;
    const context = sizedContext(this.canvas, width, height);
    context.clearRect(0, 0, width, height);
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

  /** A larger picture of the head under the pointer, and its name. @param {PointerEvent} event */
  #show(event) {
    const { report, atlas } = this;
    const box = this.el.getBoundingClientRect();
    const head = floor((event.clientX - box.left - this.left) / this.step);
    const layer = floor((event.clientY - box.top) / this.step);
    const info = report?.layers[layer]?.heads[head];
    if (!atlas || !info || event.pointerType === "touch") return this.#hide();
    const key = `${layer}.${head}`;
    if (this.previewed === key && !this.preview.hidden) return;
    this.previewed = key;
    const context = sizedContext(this.large, PREVIEW, PREVIEW);
    context.clearRect(0, 0, PREVIEW, PREVIEW);
    drawPicture(context, atlas, key, 0, 0, PREVIEW);
    attributes(this.named, { text: `${key} ${info.role}` });
    styles(this.preview, { left: this.left + (head + 1) * this.step + 6, top: (layer + 1) * this.step + 6 });
    this.preview.hidden = false;
  }

  #hide() {
    if (!this.preview.hidden) this.preview.hidden = true;
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const report = this.report;
    if (!report || !isPlain(event)) return;
    if (this.act && (event.key === "Enter" || event.key === " ")) {
      finish(event);
      return this.act(this.layer, this.head);
    }
    const to = moveIn(event.key, this.layer, this.head, report.layers[this.layer].heads.length - 1);
    if (!to || event.key.startsWith("Page")) return;
    finish(event);
    const [layer, head] = to;
    if (report.layers[layer]?.heads[head]) this.pick(layer, head);
  }
}
