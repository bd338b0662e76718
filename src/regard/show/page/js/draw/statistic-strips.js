// The place of one head among all: each statistic as a line with a tick for every head.

import { max, min } from "../data/math.js";
import { number } from "../words/names.js";
import { attributes, fill, h, s } from "./dom.js";

/** @import { Report, Statistic } from "../data/page-data.js" */
/**
 * count: of heads; ticks: one for each of them, or one path for all.
 * @typedef {{statistic: Statistic, count: number, low: number, high: number, value: HTMLElement, mark: SVGElement,
 *   ticks: SVGElement[], el: HTMLElement}} Strip
 */

const WIDTH = 212;
const MOST = 200; // ticks that are elements of their own, so that equal ones are darker

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
    /** @type {Strip[]} */
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
    this.el.hidden = heads.length < 2; // nothing to be among
    const count = /** @type {HTMLElement} */ (this.heading.querySelector(".count"));
    count.textContent = this.sort ? "one tick per head; click to sort" : String(heads.length);
    this.strips = statistics.flatMap((statistic) => {
      const known = heads.flatMap(({ info, place }) => {
        const mean = info.means[statistic.name];
        return mean === null || mean === undefined ? [] : [{ mean, place }];
      });
      if (!known.length) return [];
      const means = known.map((one) => one.mean);
      const [low, high] = [min(0, ...means), statistic.unit === "weight" ? 1 : max(1e-9, ...means)];
      const places = means.map((mean) => at(mean, low, high));
      const strip = Object.assign(this.#strip(statistic, known.length), { low, high });
      const { ticks, value } = strip;
      if (ticks.length === known.length) places.forEach((x, i) => attributes(ticks[i], { x }));
      else attributes(ticks[0], { d: places.map((x) => `M${x.toFixed(1)} 3h1v8h-1z`).join("") });
      const most = known.reduce((a, b) => (b.mean > a.mean ? b : a));
      if (this.sort) fill(value, h("span.quiet", most.place), ` ${number(most.mean)}`);
      return [strip];
    });
    const els = this.strips.map(({ el }) => el);
    if (els.length !== this.body.children.length || els.some((el, i) => el !== this.body.children[i]))
      fill(this.body, ...els);
  }

  /**
   * That of the report before, if it has as many heads.
   * @param {Statistic} statistic @param {number} count @returns {Strip}
   */
  #strip(statistic, count) {
    const before = this.strips.find((one) => one.statistic === statistic && one.count === count);
    if (before) return before;
    const mark = s("rect.mark", { y: 1, width: 2.5, height: 12 });
    const tick = () => s("rect.tick", { y: 3, width: 1, height: 8 });
    const ticks = count > MOST ? [s("path.tick")] : Array.from({ length: count }, tick);
    const svg = s(
      "svg",
      { viewBox: `0 0 ${WIDTH} 14`, preserveAspectRatio: "none", "aria-hidden": true },
      s("path.axis", { d: `M0 7.5h${WIDTH}` }),
      ...ticks,
      mark,
    );
    const value = h("span.num");
    const { sort } = this;
    const el = h(
      sort ? "button" : "div",
      { class: "strip", title: statistic.about, "data-statistic": statistic.name },
      h("span", statistic.label),
      value,
      svg,
    );
    if (sort) el.addEventListener("click", () => sort(statistic.name));
    return { statistic, count, low: 0, high: 1, value, mark, ticks, el };
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
