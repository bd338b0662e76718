// The keys of one word in two heads, before and after.

import { moved } from "../data/head-changes.js";
import { max, min } from "../data/math.js";
import { HIDDEN } from "../data/page-data.js";
import { KeyRows } from "../draw/before-after.js";
import { fill, h } from "../draw/dom.js";

/** @import { Side } from "../data/page-data.js" */
/** @import { App } from "../shell/app.js" */
/** @import { ComparedHead } from "./compared-head.js" */

const KEYS = 8; // of the word in focus
const NARROW = 860; // pixels of a page, below which fewer keys are shown

/** A question, and a row for each key. */
export class ComparedKeys {
  constructor() {
    this.rows = new KeyRows();
    this.asked = h("h2");
    this.el = h("section.keys-compared", this.asked, this.rows.el);
  }

  /**
   * @param {App} app
   * @param {ComparedHead} after
   * @param {{side: Side, unit: number, where: string, room: number}} focus where: the heads, in words; room: pixels
   */
  draw(app, after, { side, unit, where, room }) {
    const { weights } = app;
    const { match, weights: second } = after;
    this.el.hidden = !weights || !second || !match || unit < 0;
    if (!weights || !second || !match || unit < 0) return;
    const isQuery = side === "query";
    const count = app.width < NARROW ? KEYS / 2 : KEYS;
    const partners = isQuery ? match.cols : match.rows;
    const line = weights.line(side, unit).map((weight, i) => (partners[i] < 0 ? HIDDEN : weight));
    const list = moved(line, match.line(second, side, unit), count);
    fill(
      this.asked,
      isQuery ? "Where does " : "Who looks at ",
      h("em", bothNames(app, after, isQuery, unit)),
      isQuery ? ` look, ${where}?` : `, ${where}?`,
    );
    const named = list.map((one) => ({ ...one, name: bothNames(app, after, !isQuery, one.index) }));
    this.rows.draw(named, max(120, min(620, room - 260)), count);
  }
}

/**
 * A word, and the one that stands for it where that is another.
 * @param {App} app @param {ComparedHead} after @param {boolean} isRow @param {number} unit
 */
function bothNames(app, after, isRow, unit) {
  const [mine, theirs] = isRow ? [app.rows, after.rows] : [app.cols, after.cols];
  const to = (isRow ? after.match?.rows : after.match?.cols)?.[unit] ?? -1;
  const same = to < 0 || theirs.names[to] === mine.names[unit];
  return same ? mine.label(unit) : `${mine.label(unit)} / ${theirs.label(to)}`;
}
