// The text of the second report, where it is another, below that of the first; words that differ are marked in both.

import { dot } from "../draw/before-after.js";
import { attributes, h } from "../draw/dom.js";
import { TextLine } from "../draw/text-line.js";
import { differing } from "./compared-head.js";

/** @import { Side } from "../data/page-data.js" */
/** @import { App } from "../shell/app.js" */
/** @import { ComparedHead } from "./compared-head.js" */

/** A line of text. */
export class ComparedTexts {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    /** For each word of the second text, that of the first. @type {Map<number, number>} */
    this.mine = new Map();
    const mine = (/** @type {number} */ unit) => this.mine.get(unit) ?? -1;
    this.text = new TextLine(
      {
        point: (unit) => (mine(unit) < 0 ? app.leave() : app.point("query", mine(unit))),
        pick: (unit) => (mine(unit) < 0 ? undefined : app.pick("query", mine(unit))),
        leave: () => app.leave(),
      },
      "the second text",
    );
    this.el = h("section.second-text", dot(1), this.text.el);
  }

  /** @param {ComparedHead} after */
  draw({ rows, match }) {
    const { app } = this;
    const other = rows.known && JSON.stringify(rows.texts) !== JSON.stringify(app.rows.texts);
    this.el.hidden = !other;
    app.frame.mark(other && match ? differing(app.rows, rows, match.rows) : []);
    this.mine = new Map(match ? match.rows.map((to, i) => [to, i]) : []);
    if (!other) return;
    this.text.draw(rows);
    const to = rows.names.map((_, unit) => this.mine.get(unit) ?? -1);
    this.text.mark(match ? differing(rows, app.rows, to) : []);
  }

  /**
   * Shade it by what the word looks at that stands for the one in focus.
   * @param {ComparedHead} after @param {Side} side @param {number} unit of the first
   */
  focus({ match, weights }, side, unit) {
    if (this.el.hidden) return;
    const to = (side === "query" ? match?.rows : match?.cols)?.[unit] ?? -1;
    const values = weights && to >= 0 && weights.T === this.text.units.length ? weights.line(side, to) : null;
    this.text.shade(values, to, this.app.pinned !== null, this.app.theme);
    attributes(this.text.el, { "data-without": to < 0 });
  }
}
