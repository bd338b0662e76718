// The list beside two maps: the heads of two reports, or the statistics of two heads, the largest change first.

import { changes, isChanged, isOnAverage, pairs, THRESHOLD } from "../data/head-changes.js";
import { max, min } from "../data/math.js";
import { Names } from "../words/names.js";
import { dot, pairCells, scaleHeading, weightCells } from "./before-after.js";
import { attributes, fill, finish, h, isPlain } from "./dom.js";
import { isSquare, roleMark } from "./head-picker.js";

/** @import { App } from "../shell/app.js" */
/** @import { WordChanges } from "../data/word-changes.js" */
/** @import { Change } from "../data/head-changes.js" */

/** A row for each statistic of two heads, below one scale. @param {import("../data/head-changes.js").Pair[]} list */
export function statisticRows(list) {
  const row = (/** @type {import("../data/head-changes.js").Pair} */ one) =>
    h("div.change.plain", { "data-statistic": one.name }, ...pairCells(one));
  return [scaleHeading(), ...list.map(row)];
}

/** A heading, and a row for each change. */
export class ChangeList {
  /** @param {App} app @param {WordChanges} words */
  constructor(app, words) {
    this.app = app;
    this.words = words;
    this.all = false; // show every head
    this.drawn = ""; // what the rows are of
    this.heading = h("h2");
    this.el = h("div.changes");
    this.el.addEventListener("keydown", (event) => this.#key(event));
  }

  /**
   * The heads of two reports, the most changed first.
   * @param {number} second the number of the other report
   */
  drawChanges(second) {
    const { state } = this.app.store;
    const now = `${state.report} ${second} ${this.all} ${this.app.theme} ${this.words.found.size}`;
    if (this.drawn !== now) {
      this.drawn = now;
      this.#drawRows(second);
    }
    const rows = this.#rows();
    const chosen = rows.find((row) => row.dataset.head === `${state.layer}.${state.head}`);
    for (const row of rows)
      attributes(row, { "aria-selected": row === chosen, tabindex: row === (chosen ?? rows[0]) ? 0 : -1 });
  }

  /** @param {number} second */
  #drawRows(second) {
    const { app } = this;
    const { reports, averaged } = app.reports.page;
    const { report } = app.store.state;
    const list = changes(app.report, reports[second], averaged, (l, i) => this.words.at(report, second, l, i));
    fill(this.heading, "Heads ", h("span", list ? "the most changed first" : ""));
    if (!list) {
      const count = (/** @type {number} */ i) => reports[i].layers.map((layer) => layer.heads.length).join(" + ");
      const counts = `these have ${count(report)} and ${count(second)} heads.`;
      const text = `Only reports of the same heads can be compared head by head; ${counts}`;
      return fill(this.el, h("p.note", text));
    }
    const changed = list.filter(isChanged);
    const rest = list.length - changed.length;
    const all = this.words.known(report, second) ? ", on average and for every word" : ", in the same role";
    const more = h(
      "button.more",
      {
        onclick: () => {
          this.all = !this.all;
          this.drawChanges(second);
        },
      },
      this.all
        ? `only those that changed by ${THRESHOLD} or more`
        : `${rest} more changed by less than ${THRESHOLD}${all}`,
    );
    const rows = (this.all ? list : changed).map((one) => this.#change(one));
    fill(
      this.el,
      h("p.key", dot(0), ` ${reports[report].title}  `, dot(1), ` ${reports[second].title}`),
      scaleHeading("head", "role"),
      h("div", { role: "listbox", "aria-label": "heads, the most changed first" }, ...rows),
      ...(rest ? [more] : []),
    );
  }

  /** @param {Change} change */
  #change(change) {
    const { layer, head, roles, largest, word } = change;
    const { rows, cols } = Names.of(this.app.report, this.app.report.layers[layer], false);
    const cells =
      word && !isOnAverage(change)
        ? weightCells(`${rows.label(word.query)} at ${cols.label(word.key)}`, word)
        : largest
          ? pairCells(largest, 40)
          : [];
    const role =
      roles[0] === roles[1]
        ? h("span.role-of.quiet", roles[0])
        : h("span.role-of", `${roles[0]} `, h("br"), `→ ${roles[1]}`);
    return h(
      "button.change",
      { role: "option", "data-head": `${layer}.${head}`, onclick: () => this.app.choose(layer, head) },
      h("span.num.id", `${layer}.${head}`),
      role,
      ...cells,
    );
  }

  /**
   * The statistics of the chosen head and of another, the most different first.
   * @param {{layer: number, head: number}} second
   */
  drawPairs(second) {
    const { report, store, reports } = this.app;
    this.drawn = "";
    const heads = [store.state, second].map(({ layer, head }) => ({ report, layer, head }));
    fill(this.heading, "Statistics ", h("span", "the most different first"));
    const named = heads.map(({ layer, head }, i) => {
      const { role } = report.layers[layer].heads[head];
      return h("span", dot(i), ` ${layer}.${head} `, roleMark(reports.role(role), isSquare(report)), ` ${role}  `);
    });
    fill(this.el, h("p.key", ...named), ...statisticRows(pairs(heads[0], heads[1], reports.page.averaged)));
  }

  #rows() {
    return /** @type {HTMLElement[]} */ ([...this.el.querySelectorAll("[role=option]")]);
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const rows = this.#rows();
    const at = rows.indexOf(/** @type {HTMLElement} */ (event.target));
    if (at < 0 || !isPlain(event)) return;
    const to = { ArrowUp: at - 1, ArrowDown: at + 1, Home: 0, End: rows.length - 1 }[event.key];
    if (to === undefined) return;
    finish(event);
    const next = rows[min(rows.length - 1, max(0, to))];
    next.focus();
    next.click();
  }
}
