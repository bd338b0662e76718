// One head: the words and the lines between them, and the exact map beside them, row by row on one axis.

import { ceil, floor, isMissing, max, min } from "../data/math.js";
import { largest } from "../data/page-data.js";
import { AttentionLines } from "../draw/attention-lines.js";
import { weightScale } from "../draw/color.js";
import { attributes, fill, fitText, h, s, styles, textWidth } from "../draw/dom.js";
import { sharedText, sharing } from "../draw/head-grid.js";
import { HeadPicker, roleMark } from "../draw/head-picker.js";
import { Strips } from "../draw/statistic-strips.js";
import { LABEL_FONT, WeightMap } from "../draw/weight-map.js";
import { isolated, number } from "../words/names.js";
import { askHead } from "../words/questions.js";

/** @import { Side } from "../data/page-data.js" */
/** @import { App } from "../shell/app.js" */

const NARROW = 860; // pixels, below which everything is in one column
const LARGE = 2000; // pixels, from which words are larger
const SIDE = 212;
const LEGEND = 260;

/** @type {import("./list.js").ListedView} */
export const headView = {
  name: "head",
  label: "Head",
  make: (app) => new HeadView(app),
  shows: (layer) => !layer.grid,
  instead: "long",
};

/** The view of one head. */
class HeadView {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.narrow = false;
    const events = {
      point: (/** @type {Side} */ side, /** @type {number} */ unit) => app.point(side, unit),
      pick: (/** @type {Side} */ side, /** @type {number} */ unit) => app.pick(side, unit),
      leave: () => app.leave(),
    };
    this.lines = new AttentionLines(events);
    this.map = new WeightMap({
      label: "weights: a row for each word that looks, a column for each word that is looked at",
      point: (row, col) => app.point("query", row, col),
      pick: (row) => app.pick("query", row),
      leave: () => app.leave(),
    });
    this.readout = s("text.readout");
    this.map.over.append(this.readout);
    this.picker = new HeadPicker((layer, head) => app.choose(layer, head));
    this.role = h("section.role");
    this.strips = new Strips("This head among all", null);
    this.legend = h("div.scale");
    this.table = h("table.for-readers");
    this.stage = h("div.stage", this.lines.el, this.map.el, this.legend);
    const side = h(
      "aside.side",
      h("section", h("h2", "Heads ", h("span", "a row for each layer")), this.picker.el),
      this.role,
      this.strips.el,
    );
    const keys = { click: "pin", Esc: "unpin", "← →": "word", "[ ]": "head", "/": "find" };
    this.foot = h(
      "p.foot",
      "Point at a word at the right: where it looks. Point at a word at the left: who looks at it. ",
      ...Object.entries(keys).map(([key, does]) => h("span.keys", h("kbd", key), does)),
    );
    this.el = h("div.columns", side, h("div.main", this.stage, this.foot, this.table));
  }

  /** Draw everything: another head, text, theme or width. */
  draw() {
    const { app } = this;
    const { weights, rows, cols, report, theme } = app;
    const { layer, head } = app.store.state;
    if (app.atlas) this.picker.draw(report, app.atlas, SIDE, app.color("--ink3"));
    this.picker.choose(layer, head);
    this.strips.draw(report, app.reports.page.statistics);
    this.strips.choose(layer, head, "");
    this.#drawRole();
    if (!weights) return;
    const width = this.stage.parentElement?.clientWidth || 900;
    const narrow = app.width < NARROW;
    this.narrow = narrow;
    const font = narrow || app.width >= LARGE ? LABEL_FONT.replace("11px", "13px") : LABEL_FONT;
    const label = ceil(min(120, max(24, ...[...rows.names, ...cols.names].map((name) => textWidth(name, font))))) + 14;
    const lines = narrow ? width : 44 + 2 * label + min(200, max(120, width * 0.18));
    const rest = narrow ? width : width - lines - 8;
    // lines: both sides
    const most = narrow ? 40 : max(2, floor(max(440, app.height - 340) / max(weights.T, weights.S)));
    const caption = this.#triangular() ? 30 : 150;
    const cell = max(2, min(44, most, floor((rest - (narrow ? label : caption)) / weights.S)));
    const diagonalLabels = narrow && this.#triangular();
    this.map.draw(weights, rows, cols, {
      cell,
      theme,
      rowLabels: false,
      diagonalLabels,
      font: narrow ? LABEL_FONT : font,
    });
    const row = narrow ? max(cell, min(26, 2600 / weights.T)) : cell;
    this.lines.draw(weights, rows, cols, { row, top: narrow ? 28 : this.map.top, width: lines, theme, label, font });
    styles(
      this.map.el,
      narrow
        ? { position: "relative", left: "0", top: "20px" }
        : { position: "absolute", left: `${lines + 6}px`, top: "0" },
    );
    const height = narrow ? "auto" : `${max(this.map.top + max(weights.T, weights.S) * cell, 120) + 8}px`;
    styles(this.stage, { height });
    this.#drawLegend(narrow, width, lines, cell);
    this.focus();
  }

  /** Show another focus: only lines, outline and numbers change. */
  focus() {
    const { weights, cols, shown } = this.app;
    if (!weights) return;
    const { side, unit, other } = shown;
    this.lines.focus(side, unit);
    const [row, col] = side === "query" ? [unit, other] : [-1, unit];
    this.map.focus(row, col);
    const best = side === "query" && unit >= 0 && unit < weights.T ? weights.top(unit, 3, 0.02) : [];
    let last = weights.S - 1;
    if (best.length) while (last > 0 && isMissing(weights.at(unit, last))) last--;
    attributes(this.readout, {
      x: this.map.left + (last + 1) * this.map.size + 8,
      y: this.map.top + (unit + 0.5) * this.map.size + 4,
      visibility: best.length && !this.narrow ? "visible" : "hidden", // a phone has the words there
    });
    fill(
      this.readout,
      ...best.map(({ key, weight }, i) =>
        s(
          "tspan",
          { class: i ? "quiet" : "" },
          `${i ? "  " : ""}${isolated(fitText(cols.names[key], 120, LABEL_FONT))} ${number(weight)}`,
        ),
      ),
    );
    this.#drawTable();
    const at = other >= 0 ? other : best[0]?.key;
    if (this.app.chosen && side === "query" && at !== undefined) this.app.frame.say(this.map.describe(unit, at));
  }

  ask() {
    const { weights, rows, cols, shown } = this.app;
    return weights ? askHead(weights, rows, cols, shown.side, shown.unit) : { question: [], answer: [] };
  }

  shade() {
    const { weights, shown } = this.app;
    const { side, unit } = shown;
    if (!weights || unit < 0) return { values: null, unit: -1 };
    return { values: weights.line(side, unit), unit, side };
  }

  #triangular() {
    const { state } = this.app.store;
    return this.app.report.layers[state.layer].encoding?.triangle ?? false;
  }

  #drawRole() {
    const { layer, head } = this.app.store.state;
    const info = this.app.report.layers[layer]?.heads[head];
    if (!info) return;
    const ofLayer = this.app.report.layers[layer];
    const shared = sharing(ofLayer);
    const key = `${this.app.store.state.report}.${layer}.${head}.${info.role}`;
    if (this.role.dataset.key === key) return;
    this.role.dataset.key = key;
    const { cut } = this.app;
    const place = `${layer}.${head}`;
    fill(
      this.role,
      h(
        "h2.role-name",
        h("span.num", `${layer}.${head}${ofLayer.marks ? "*" : ""}`),
        roleMark(this.app.reports.role(info.role)),
        info.role,
      ),
      h("p.note", capital(info.evidence)),
      shared > 1 ? h("p.note", capital(sharedText(head - (head % shared), shared))) : null,
      ofLayer.across ? h("p.note", `${ofLayer.name}: words look at another text.`) : null,
      ...(ofLayer.marks ?? []).map((mark) => h("p.note", `* ${mark}`)),
      cut ? h("p.note", h("button.cut", { onclick: () => cut(place) }, `cut ${place}`), " and see what changes") : null,
    );
  }

  /**
   * @param {boolean} narrow
   * @param {number} width of all that is beside the panel; asking the document again would lay it out once more
   * @param {number} lines
   * @param {number} cell
   */
  #drawLegend(narrow, width, lines, cell) {
    const { app } = this;
    const { theme, weights, report } = app;
    if (!weights) return;
    fill(
      this.legend,
      h("p", `A row is a ${app.rows.known ? "word" : "position"}; its cells add up to 1.`),
      ...weightScale(theme),
      h("p", weights.values.some(isMissing) ? "No cell: hidden by the mask." : ""),
      h("p.quiet", report.precision),
    );
    const bottom = this.map.top + weights.T * cell;
    const size = weights.S * cell;
    const room = width - lines - size;
    const place = narrow
      ? "flow"
      : room >= LEGEND + 40 + (this.#triangular() ? 0 : 140) || (this.#triangular() && size > 1.9 * LEGEND)
        ? "beside"
        : "below";
    const left = room >= LEGEND + 40 ? lines + 26 + size + (this.#triangular() ? 0 : 140) : lines + size - LEGEND;
    const styles = {
      flow: { position: "relative", left: "0", top: "24px", marginBottom: "32px" },
      beside: { position: "absolute", left: `${left}px`, top: `${this.map.top + 4}px`, marginBottom: "0" },
      below: { position: "absolute", left: `${lines + 6}px`, top: `${bottom + 16}px`, marginBottom: "0" },
    };
    Object.assign(this.legend.style, { width: `${LEGEND}px` }, styles[place]);
    if (place === "below") this.stage.style.height = `${max(bottom + 110, parseFloat(this.stage.style.height))}px`;
  }

  /** The same numbers as a table, for screen readers. */
  #drawTable() {
    const { weights, rows, cols, shown } = this.app;
    if (!weights || shown.unit < 0) return;
    const isQuery = shown.side === "query";
    const names = isQuery ? cols : rows;
    const best = largest(weights.line(shown.side, shown.unit), 8, 0.005);
    const title = isQuery ? `Where ${rows.said(shown.unit)} looks` : `Who looks at ${cols.said(shown.unit)}`;
    const line = (/** @type {string} */ tag, /** @type {string[]} */ cells) =>
      h("tr", ...cells.map((text) => h(tag, text)));
    fill(
      this.table,
      h("caption", title),
      h(
        "tbody",
        line("th", ["word", "weight"]),
        ...best.map(({ index, value }) => line("td", [names.said(index), number(value)])),
      ),
    );
  }
}

/** @param {string} text */
function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");
}
