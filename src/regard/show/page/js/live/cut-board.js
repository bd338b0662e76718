// The heads to cut: a small picture of each, where a click switches it off and on again, and what is cut now.

import { attributes, fill, h, s } from "../draw/dom.js";
import { HeadPicker } from "../draw/head-picker.js";

/** @import { Report } from "../data/page-data.js" */
/** @import { Atlas } from "../draw/head-pictures.js" */

const WIDTH = 212;

/** The heads, and a button for each cut. */
export class CutBoard {
  /** @param {{toggle: (cut: string) => void, clear: () => void}} events */
  constructor(events) {
    this.events = events;
    const toggle = (/** @type {number} */ layer, /** @type {number} */ head) => {
      this.picker.choose(layer, head);
      events.toggle(`${layer}.${head}`);
    };
    this.picker = new HeadPicker((layer, head) => this.picker.choose(layer, head), toggle);
    this.crosses = s("svg.crosses", { "aria-hidden": true });
    this.picker.el.append(this.crosses);
    attributes(this.picker.el, { "aria-label": "heads to cut" });
    this.opens = h("button.opens", { "aria-expanded": false, onclick: () => this.open() }, "cut heads");
    const title = h("h2", "Cut heads ", h("span", "a click switches one off"));
    this.heads = h("section.cut-heads", title, this.picker.el);
    this.list = h("span.cuts");
    /** @type {string[]} */
    this.cuts = [];
  }

  /** On a phone, the heads are shown when they are asked for. */
  open() {
    const isOpen = this.opens.getAttribute("aria-expanded") !== "true";
    attributes(this.opens, { "aria-expanded": isOpen });
    attributes(this.heads, { "data-open": isOpen });
  }

  /** @param {string[]} cuts @param {(cut: string) => string} name */
  draw(cuts, name) {
    this.cuts = cuts;
    const back = (/** @type {string} */ cut) =>
      h("button", { title: `put ${name(cut)} back`, onclick: () => this.events.toggle(cut) }, `${name(cut)} ×`);
    const all = h("button", { onclick: () => this.events.clear() }, "put all back");
    const buttons = [...cuts.map(back), ...(cuts.length > 1 ? [all] : [])];
    fill(this.list, ...(cuts.length ? [h("span.quiet", "without "), ...buttons] : []));
    this.#cross();
  }

  /** Show the heads of a text. @param {Report} report @param {Atlas} atlas @param {string} ink */
  show(report, atlas, ink) {
    const before = this.picker.atlas;
    if (before && before !== atlas) before.image.width = 0; // its pixels are not needed
    this.picker.draw(report, atlas, WIDTH, ink);
    this.#cross();
  }

  #cross() {
    const { left, step, size } = this.picker;
    const cross = (/** @type {string} */ cut) => {
      const [layer, head] = cut.split(".").map(Number);
      return s("path", { d: `M${left + head * step} ${layer * step}l${size} ${size}m0 ${-size}l${-size} ${size}` });
    };
    fill(this.crosses, ...this.cuts.filter((cut) => !cut.includes(":")).map(cross));
  }
}
