// One head: the words and the lines between them, and the exact map beside them, row by row on one axis.

import { ceil, floor, isMissing, max, min } from "../data/math.js";
import { largest } from "../data/page-data.js";
import { AttentionLines } from "../draw/attention-lines.js";
import { weightScale } from "../draw/color.js";
import { attributes, fill, h, s, styles, textWidth } from "../draw/dom.js";
import { sharedText, sharing } from "../draw/head-grid.js";
import { HeadPicker, isSquare, roleMark } from "../draw/head-picker.js";
import { placeReadout, rowEntries } from "../draw/readout.js";
import { Strips } from "../draw/statistic-strips.js";
import { LABEL_FONT, WeightMap } from "../draw/weight-map.js";
import { brokenRows } from "../words/broken.js";
import { number } from "../words/names.js";
import { askHead, quiet, withoutNumbers } from "../words/questions.js";

/** @import { Side } from "../data/page-data.js" */
/** @import { App } from "../shell/app.js" */

const NARROW = 860; // pixels, below which everything is in one column
const ROWS = 5; // largest weights that a phone shows above the lines
const LARGE = 2000; // pixels, from which words are larger
const SIDE = 212;
const LEGEND = 260;
const READOUT = 180; // pixels beside the map for what is written at the end of a row

const OFF = ": it is off. It still looks, but nothing of it is passed on.";

/** @type {import("./list.js").ListedView} */
export const headView = {
  name: "head",
  label: "Head",
  make: (app) => new HeadView(app),
  shows: (layer) => !layer.grid,
  instead: "long",
  stays: true,
};

/** The view of one head. */
class HeadView {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.narrow = false;
    this.room = 0; // pixels from the map's left edge to that of the page
    this.legendAt = { left: Infinity, bottom: 0 }; // seen from the map
    const events = {
      point: (/** @type {Side} */ side, /** @type {number} */ unit) => app.point(side, unit),
      pick: (/** @type {Side} */ side, /** @type {number} */ unit) => app.pick(side, unit),
      leave: () => app.leave(),
    };
    this.lines = new AttentionLines(events);
    this.map = new WeightMap({
      label: "weights: a row for each word that looks, a column for each word that is looked at",
      point: (row, col) => app.point("query", row, col),
      pick: (row, col) => this.#pickCell(row, col),
      leave: () => app.leave(),
    });
    this.cutEdge = h("p.note");
    this.cell = { row: -1, col: -1 }; // the one that was clicked
    /** The head that is described. @type {import("../data/page-data.js").HeadInfo | null} */
    this.described = null;
    this.readout = s("text.readout");
    this.map.over.append(this.readout);
    this.picker = new HeadPicker((layer, head) => app.choose(layer, head));
    this.role = h("section.role");
    this.strips = new Strips("This head among all", null);
    this.legend = h("div.scale");
    this.table = h("table.keys-of");
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
      h(
        "span.by-mouse",
        "Point at a word at the right: where it looks. Point at a word at the left: who looks at it. ",
      ),
      h("span.by-touch", "Tap a word at the right: where it looks. Tap a word at the left: who looks at it."),
      ...Object.entries(keys).map(([key, does]) => h("span.keys", h("kbd", key), does)),
    );
    this.el = h("div.columns", side, h("div.main", this.table, this.stage, this.foot));
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
    attributes(app.root, { "data-narrow": narrow });
    const font = narrow || app.width >= LARGE ? LABEL_FONT.replace("11px", "13px") : LABEL_FONT;
    const label = ceil(min(120, max(24, ...[...rows.names, ...cols.names].map((name) => textWidth(name, font))))) + 14;
    const lines = narrow ? width : 44 + 2 * label + min(200, max(120, width * 0.18));
    const rest = narrow ? width : width - lines - 8;
    // lines: both sides
    const most = narrow ? 40 : max(440, app.height - 340) / max(weights.T, weights.S);
    const caption = this.#triangular() ? 30 : READOUT;
    const fit = min(44, most, (rest - (narrow ? label + 4 : caption)) / weights.S);
    const cell = fit >= 2 ? floor(fit) : fit;
    const diagonalLabels = narrow && this.#triangular();
    this.map.draw(weights, rows, cols, {
      cell,
      theme,
      rowLabels: false,
      diagonalLabels,
      triangle: this.#triangular(),
      broken: brokenRows(report.layers[layer], head, rows),
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
    this.room = width - lines - 6;
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
    const entries = side === "query" && !this.narrow ? rowEntries(weights, cols, unit, other) : [];
    let last = weights.S - 1;
    if (entries.length) while (last > 0 && isMissing(weights.at(unit, last))) last--;
    const { map } = this;
    const [x, y] = [map.left + (last + 1) * map.size + 8, map.top + (unit + 0.5) * map.size + 4];
    // beside the legend where that is in the way, and inside of the page
    const legend = x < this.legendAt.left && y < this.legendAt.bottom ? this.legendAt.left - 12 : Infinity;
    placeReadout(this.readout, entries, { x, y, right: min(legend, this.room) });
    this.#drawTable();
    this.#drawEdge();
    const at = other >= 0 ? other : side === "query" && unit >= 0 ? weights.top(unit, 1)[0]?.key : undefined;
    if (this.app.chosen && side === "query" && at !== undefined) this.app.frame.say(this.map.describe(unit, at));
  }

  /** A click on a cell pins its row; what the cell stands for can be cut. @param {number} row @param {number} col */
  #pickCell(row, col) {
    const { app } = this;
    this.cell = { row, col };
    if (app.pinned?.side === "query" && app.pinned.unit === row && app.cut?.edges) this.focus();
    else app.pick("query", row);
  }

  /** The edge of the cell that was clicked, as long as its row is pinned. */
  #drawEdge() {
    const { app, cell } = this;
    const { rows, cols, cut, pinned } = app;
    const { layer, head } = app.store.state;
    const isShown = cut?.edges && !app.store.state.words && pinned?.side === "query" && pinned.unit === cell.row;
    this.cutEdge.hidden = !isShown;
    if (!isShown || !cut) return;
    const edge = `${layer}.${head}:${cell.row}-${cell.col}`;
    fill(this.cutEdge, cutButton(cut, edge, `${rows.label(cell.row)} → ${cols.label(cell.col)}`), " in this head only");
  }

  ask() {
    const { weights, rows, cols, shown } = this.app;
    if (!weights) return { question: [], answer: [] };
    const ask = askHead(weights, rows, cols, shown.side, shown.unit);
    if (this.narrow) ask.answer.unshift(quiet(`${this.#name()} · `)); // a phone has it far below
    return this.map.broken.has(shown.unit) && shown.side === "query" ? withoutNumbers(ask, this.app) : ask;
  }

  /** Its place and its role. */
  #name() {
    const { layer, head } = this.app.store.state;
    return `${layer}.${head} ${this.app.report.layers[layer].heads[head].role}`;
  }

  figure() {
    return this.stage;
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
    if (!info || this.described === info) return;
    this.described = info;
    const ofLayer = this.app.report.layers[layer];
    const shared = sharing(ofLayer);
    const { cut } = this.app;
    const place = `${layer}.${head}`;
    fill(
      this.role,
      h(
        "h2.role-name",
        h("span.num", `${layer}.${head}${ofLayer.marks ? "*" : ""}`),
        roleMark(this.app.reports.role(info.role), isSquare(this.app.report)),
        info.role,
      ),
      h("p.note", capital(info.evidence)),
      shared > 1 ? h("p.note", capital(sharedText(head - (head % shared), shared))) : null,
      ofLayer.across ? h("p.note", h("span.module", breakable(ofLayer.name)), ": words look at another text.") : null,
      ...(ofLayer.marks ?? []).map((mark) => h("p.note", `* ${mark}`)),
      cut ? h("p.note", cutButton(cut, place, place), cut.has(place) ? OFF : " and see what changes") : null,
      this.cutEdge,
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
      this.map.broken.size ? h("p.broken", "Red: not a number.") : null,
      h("p.quiet", report.precision),
    );
    const bottom = this.map.top + weights.T * cell;
    const size = weights.S * cell;
    const room = width - lines - size;
    const place = narrow
      ? "flow"
      : room >= LEGEND + 40 + READOUT || (this.#triangular() && size > 1.9 * LEGEND)
        ? "beside"
        : "below";
    const left = room >= LEGEND + 40 + READOUT ? lines + 26 + size + READOUT : lines + size - LEGEND;
    const styles = {
      flow: { position: "relative", left: "0", top: "24px", marginBottom: "32px" },
      beside: { position: "absolute", left: `${left}px`, top: `${this.map.top + 4}px`, marginBottom: "0" },
      below: { position: "absolute", left: `${lines + 6}px`, top: `${bottom + 16}px`, marginBottom: "0" },
    };
    this.legendAt = { left: place === "beside" ? left - lines - 6 : Infinity, bottom: this.map.top + 110 };
    Object.assign(this.legend.style, { width: `${LEGEND}px` }, styles[place]);
    if (place === "below") this.stage.style.height = `${max(bottom + 110, parseFloat(this.stage.style.height))}px`;
  }

  /** The same numbers as a table, for screen readers. */
  #drawTable() {
    const { weights, rows, cols, shown } = this.app;
    if (!weights || shown.unit < 0) return;
    const isQuery = shown.side === "query";
    const names = isQuery ? cols : rows;
    const best = largest(weights.line(shown.side, shown.unit), this.narrow ? ROWS : 8, 0.005);
    const title = isQuery ? `Where ${rows.said(shown.unit)} looks` : `Who looks at ${cols.said(shown.unit)}`;
    const bar = (/** @type {number} */ weight) =>
      h("td.bar", { "aria-hidden": true }, h("span", { style: { width: `${max(1, weight * 100)}%` } }));
    const row = (/** @type {string} */ name, /** @type {number} */ weight) =>
      h("tr", h("td", name), h("td.num", number(weight)), bar(weight));
    const count = this.narrow ? ROWS : 8; // a phone shows the table, whose height must not change
    const rest = this.narrow
      ? Array.from({ length: max(0, count - best.length) }, () => h("tr", h("td", "\u00a0")))
      : [];
    fill(
      this.table,
      h("caption", title),
      h(
        "tbody",
        h("tr", h("th", "word"), h("th", "weight")),
        ...best.map(({ index, value }) => row(names.said(index), value)),
        ...rest,
      ),
    );
  }
}

/**
 * Cuts a head or an edge, or puts it back.
 * @param {import("../shell/app.js").Cutter} cut @param {string} what @param {string} name
 */
function cutButton(cut, what, name) {
  const text = cut.has(what) ? `put ${name} back` : `cut ${name}`;
  return h("button.cut", { onclick: () => cut.toggle(what) }, text);
}

/** A module's name, which may be broken at its dots and capitals only. @param {string} name */
function breakable(name) {
  return name.replace(/(?<=[.a-z])(?=[A-Z])|(?<=\.)/g, "\u200b");
}

/** @param {string} text */
function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");
}
