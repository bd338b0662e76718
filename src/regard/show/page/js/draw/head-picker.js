// The column at the side: a small picture of every head, the role of the chosen one, and its place among all heads.

import { ceil, floor, max, min } from "../data/math.js";
import { number } from "../words/names.js";
import { attributes, fill, finish, h, isPlain, moveIn, s, sizedContext, styles } from "./dom.js";
import { drawPicture, glyph } from "./head-pictures.js";

/** @import { Report, Statistic } from "../data/page-data.js" */
/** @import { Atlas } from "./head-pictures.js" */

const WIDTH = 212;

/** The mark of a role: its shape on a map. @param {string} role */
export function roleMark(role) {
  return s(
    "svg.glyph",
    { viewBox: "0 0 12 12", width: 12, height: 12, "aria-hidden": true, "data-role": role },
    s("path.frame", { d: "M.5 .5v11h11z" }),
    s("path.shape", { d: glyph(role) }),
  );
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

/** Each statistic as a line with a tick for every head, the chosen one marked. */
export class Strips {
  /**
   * @param {string} title
   * @param {((statistic: string) => void) | null} sort called when a statistic is chosen to sort by
   */
  constructor(title, sort) {
    this.sort = sort;
    /** @type {Report | null} */
    this.report = null;
    /** @type {{statistic: Statistic, low: number, high: number, value: HTMLElement, mark: SVGElement, el: HTMLElement}[]} */
    this.strips = [];
    this.heading = h("h2", title, " ", h("span.count"));
    this.body = h("div.strips");
    this.el = h("section", this.heading, this.body);
  }

  /** @param {Report} report @param {Statistic[]} statistics */
  draw(report, statistics) {
    if (this.report === report) return;
    this.report = report;
    const heads = report.layers.flatMap((layer, l) => layer.heads.map((info, i) => ({ info, place: `${l}.${i}` })));
    const count = /** @type {HTMLElement} */ (this.heading.querySelector(".count"));
    count.textContent = this.sort ? "one tick per head; click to sort" : String(heads.length);
    this.strips = [];
    for (const statistic of statistics) {
      const known = heads.flatMap(({ info, place }) => {
        const mean = info.means[statistic.name];
        return mean === null || mean === undefined ? [] : [{ mean, place }];
      });
      if (!known.length) continue;
      const [low, high] = [min(0, ...known.map((one) => one.mean)), max(1e-9, ...known.map((one) => one.mean))];
      const mark = s("rect.mark", { y: 1, width: 2.5, height: 12 });
      const ticks = known.map(({ mean }) => s("rect.tick", { x: at(mean, low, high), y: 3, width: 1, height: 8 }));
      const svg = s(
        "svg",
        { viewBox: `0 0 ${WIDTH} 14`, preserveAspectRatio: "none", "aria-hidden": true },
        s("path.axis", { d: `M0 7.5h${WIDTH}` }),
        ...ticks,
        mark,
      );
      const value = h("span.num");
      const tag = this.sort ? "button" : "div";
      const el = h(
        tag,
        { class: "strip", title: statistic.about, "data-statistic": statistic.name },
        h("span", statistic.label),
        value,
        svg,
      );
      const sort = this.sort;
      if (sort) el.addEventListener("click", () => sort(statistic.name));
      const most = known.reduce((a, b) => (b.mean > a.mean ? b : a));
      this.strips.push({ statistic, low, high, value, mark, el });
      if (sort) attributes(value, { text: `${most.place} ${number(most.mean)}` });
    }
    fill(this.body, ...this.strips.map((strip) => strip.el));
  }

  /**
   * Mark one head.
   * @param {number} layer
   * @param {number} head
   * @param {string} sorted the statistic that heads are sorted by
   */
  choose(layer, head, sorted) {
    const info = this.report?.layers[layer]?.heads[head];
    for (const { statistic, low, high, value, mark, el } of this.strips) {
      const mean = info?.means[statistic.name];
      const known = mean !== null && mean !== undefined;
      attributes(mark, { x: known ? at(mean, low, high) - 0.75 : 0, visibility: known ? "visible" : "hidden" });
      if (this.sort) attributes(el, { "aria-pressed": sorted === statistic.name });
      else attributes(value, { text: known ? number(mean) : "–" });
    }
  }
}

/** @param {number} value @param {number} low @param {number} high */
function at(value, low, high) {
  return ((value - low) / (high - low || 1)) * (WIDTH - 3) + 1;
}
