// Compare: two reports or two heads side by side. ○ is the first, ● the second, everywhere in this view.

import {
  changes,
  difference,
  isChanged,
  largestOf,
  mostChanged,
  moved,
  pairs,
  whyApart,
} from "../data/head-changes.js";
import { firstOf } from "../data/long-head.js";
import { floor, isMissing, max, min } from "../data/math.js";
import { arrow, dot, KeyRows, withSign } from "../draw/before-after.js";
import { ChangeList, statisticRows } from "../draw/change-list.js";
import { attributes, fill, h, styles } from "../draw/dom.js";
import { HeadPicker } from "../draw/head-picker.js";
import { WeightMap } from "../draw/weight-map.js";
import { isolated, Names, number } from "../words/names.js";
import { quiet, strong } from "../words/questions.js";
import { ComparedHead } from "./compared-head.js";

/** @import { App } from "../shell/app.js" */
/** @import { Part } from "../words/questions.js" */
/** @import { Weights } from "../data/page-data.js" */
/** @import { Chosen } from "./compared-head.js" */

const KEYS = 8; // of the word in focus
const GAP = 28; // between maps
const NARROW = 860; // pixels of a page, below which fewer keys are shown
const LARGE = 2000; // pixels of a page, from which maps are larger
const place = (/** @type {{layer: number, head: number}} */ { layer, head }) => ({ layer, head });

/** @type {import("./list.js").ListedView} */
export const compareView = { name: "compare", label: "Compare", make: (app) => new CompareView(app) };

/** The view of two reports, or of two heads. */
class CompareView {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.after = new ComparedHead();
    /** @type {Weights | null} */
    this.differences = null;
    this.apart = "";
    this.opening = -1;
    const map = (/** @type {string} */ label, /** @type {number} */ i) =>
      new WeightMap({
        label,
        point: (row, col) => this.#point(i, row, col),
        pick: (row) => (i === 1 && this.apart ? undefined : app.pick("query", this.#unit(row))),
        leave: () => (i === 1 && this.apart ? this.#point(i, -1, -1) : app.leave()),
      });
    this.maps = ["weights of the first", "weights of the second", "second minus first"].map(map);
    this.titles = this.maps.map(() => h("h2"));
    this.readouts = this.maps.map(() => h("p.num.at"));
    this.frames = this.maps.map((one, i) => h("div.compared", this.titles[i], one.el, this.readouts[i]));
    this.select = /** @type {HTMLSelectElement} */ (
      h("select", { "aria-label": "compare with", onchange: () => this.#pick(this.select.value) })
    );
    this.pickers = [
      new HeadPicker((layer, head) => app.choose(layer, head)),
      new HeadPicker((layer, head) => app.store.set({ against: `${layer}.${head}` })),
    ];
    const picker = (/** @type {number} */ i) =>
      h("div", h("h2", dot(i), i ? " the second head" : " the first head"), this.pickers[i].el);
    this.picking = h("section.two", picker(0), picker(1));
    this.list = new ChangeList(app);
    this.note = h("p.note");
    this.keyRows = new KeyRows();
    this.asked = h("h2");
    this.words = h("section.keys-compared", this.asked, this.keyRows.el);
    this.statistics = h("section");
    const left = h(
      "div.left",
      h("p.with", "compare with ", this.select),
      this.picking,
      this.list.heading,
      this.list.el,
    );
    this.stage = h("div.side-by-side", ...this.frames);
    this.right = h("div.main", this.stage, this.note, this.words, this.statistics);
    this.el = h("div.compare", left, this.right);
  }

  /** The second report or head: what was chosen, or the nearest thing to compare with. @returns {Chosen} */
  get second() {
    const { state } = this.app.store;
    const { reports } = this.app.reports.page;
    if (this.#headsOnly()) {
      const [layer, head] = state.against.split(".").map(Number);
      if (reports[state.report].layers[layer]?.heads[head]) return { number: state.report, layer, head };
      const [l, i] = this.app.report.order.find(([l, i]) => l !== state.layer || i !== state.head) ?? [
        state.layer,
        state.head,
      ];
      return { number: state.report, layer: l, head: i };
    }
    const valid = reports[state.other] && state.other !== state.report;
    return { number: valid ? state.other : (state.report + 1) % reports.length, layer: state.layer, head: state.head };
  }

  /** Draw everything. */
  draw() {
    const { app } = this;
    const { state } = app.store;
    const { reports } = app.reports.page;
    this.#drawSelect();
    const heads = this.#headsOnly();
    const second = this.second;
    this.picking.hidden = !heads;
    if (heads && app.atlas) {
      const places = [state, second];
      this.pickers.forEach((one, i) => {
        one.draw(
          app.report,
          /** @type {import("../draw/head-pictures.js").Atlas} */ (app.atlas),
          212,
          app.color("--ink3"),
        );
        one.choose(places[i].layer, places[i].head);
      });
    }
    if (heads) this.list.drawPairs(second);
    else this.list.drawChanges(second.number);
    if (!reports[second.number].layers[second.layer]?.heads[second.head]) {
      this.stage.hidden = true;
      this.words.hidden = true;
      attributes(this.note, { text: `${reports[second.number].title} has no head ${state.layer}.${state.head}.` });
      return;
    }
    this.stage.hidden = false;
    this.after.load(app, second, () => app.view === this && app.redraw());
    this.#drawMaps(second);
    this.focus();
  }

  /** Show another word: outlines, numbers and its keys. */
  focus() {
    const { app } = this;
    const first = this.#first();
    if (!first) return;
    const { weights, rows, cols } = first;
    const { side, unit: word, other } = this.#focused();
    const unit = this.#row(word);
    const [row, col] = side === "query" ? [unit, other] : [-1, unit];
    const shown = [weights, this.apart ? null : this.after.weights, this.differences];
    this.maps.forEach((map, i) => {
      const values = shown[i];
      if (!values) return this.apart && i === 1 ? undefined : attributes(this.readouts[i], { text: " " });
      map.focus(row, col);
      const line = side === "query" ? (unit >= 0 ? values.row(unit) : []) : values.column(unit);
      const names = side === "query" ? cols : rows;
      const at = other >= 0 && side === "query" ? other : largestOf(line);
      attributes(this.readouts[i], {
        text:
          at >= 0 && !isMissing(line[at])
            ? `${isolated(names.label(at))} ${i === 2 ? withSign(line[at]) : number(line[at])}`
            : " ",
      });
    });
    this.#drawKeys();
    if (app.chosen && this.differences && side === "query" && other >= 0)
      app.frame.say(this.maps[2].describe(unit, other));
  }

  /** @returns {import("../words/questions.js").Ask} */
  ask() {
    const { app } = this;
    const { state } = app.store;
    const { averaged, reports } = app.reports.page;
    const second = this.second;
    if (this.#headsOnly()) {
      const [largest] = pairs(
        { report: app.report, ...place(state) },
        { report: app.report, ...place(second) },
        averaged,
      );
      const chosen = [`${state.layer}.${state.head}`, `${second.layer}.${second.head}`].map((text) => ({
        text,
        kind: /** @type {const} */ ("chosen"),
      }));
      return {
        question: ["How do heads ", chosen[0], " and ", chosen[1], " differ?"],
        answer: largest ? [`Most in ${largest.label}: `, ...arrow(largest), "."] : [],
      };
    }
    const [from, to] = [app.report.title, reports[second.number].title];
    /** @type {Part[]} */
    const question = ["What changed from ", from, " to ", to, "?"];
    const list = this.#changes();
    if (!list) return { question, answer: ["They have different heads."] };
    const mine = list.find((one) => one.layer === state.layer && one.head === state.head);
    const changed = list.filter(isChanged).length;
    const top = list[0];
    const most = mine === top || !top?.size || !changed ? "" : `, ${top.layer}.${top.head} the most`;
    return {
      question,
      answer: [
        "Head ",
        strong(`${state.layer}.${state.head}`),
        ...(mine?.largest
          ? [`: ${mine.largest.label} `, ...arrow(mine.largest), ". "]
          : [": no statistic in common. "]),
        quiet(`${changed || "None"} of ${list.length} heads changed${most}.`),
      ],
    };
  }

  shade() {
    const { weights } = this.app;
    const { side, unit } = this.#focused();
    if (!weights || unit < 0) return { values: null, unit: -1 };
    return { values: weights.line(side, unit), unit, side };
  }

  /** The word in focus; without one, the word whose attention changed most. */
  #focused() {
    const { shown, chosen } = this.app;
    return chosen || this.opening < 0 ? shown : { side: /** @type {const} */ ("query"), unit: this.opening, other: -1 };
  }

  /** What is drawn of the first head: its weights, or of a long text its grid. */
  #first() {
    const { weights, long, rows, cols } = this.app;
    if (weights) return { weights, rows, cols };
    return (
      long && { weights: long.mass, rows: Names.blocks(long.T, long.mass.T), cols: Names.blocks(long.S, long.mass.S) }
    );
  }

  /** @param {number} unit */
  #row(unit) {
    return this.app.long && unit >= 0 ? this.app.long.cell(unit, 0).row : unit;
  }

  /** @param {number} row */
  #unit(row) {
    const { long } = this.app;
    return long && row >= 0 ? firstOf(row, long.T, long.mass.T) : row;
  }

  /** Are two heads of one report compared? */
  #headsOnly() {
    return this.app.reports.page.reports.length < 2 || this.app.store.state.against !== "";
  }

  #changes() {
    const { reports, averaged } = this.app.reports.page;
    return changes(this.app.report, reports[this.second.number], averaged);
  }

  /** @param {string} value a report's number, or "head" */
  #pick(value) {
    const { layer, head } = this.app.store.state;
    const [l, i] = this.app.report.order.find(([l, i]) => l !== layer || i !== head) ?? [layer, head];
    this.app.store.set(value === "head" ? { against: `${l}.${i}` } : { other: Number(value), against: "" });
  }

  /** @param {Chosen} second */
  #drawMaps(second) {
    const { app } = this;
    const { theme } = app;
    const first = this.#first();
    const weights = first?.weights ?? null;
    const { state } = app.store;
    const { reports } = app.reports.page;
    const other = reports[second.number];
    this.apart = whyApart({ report: app.report, ...place(state) }, { report: other, ...place(second) });
    const after = this.after.weights;
    this.differences = weights && after && !this.apart ? difference(weights, after) : null;
    this.opening = this.differences ? this.#unit(mostChanged(this.differences, app.long ? [] : app.rows.names)) : -1;
    const blocks = app.long
      ? "A cell is a block of tokens; single words are compared in texts of up to 512 tokens."
      : "";
    attributes(this.note, { text: this.after.error || this.apart || blocks });
    this.note.hidden = !this.note.textContent;
    const heads = this.#headsOnly();
    const sides = [
      { report: app.report, ...place(state) },
      { report: other, ...place(second) },
    ];
    sides.forEach(({ report, layer, head }, i) => {
      const role = report.layers[layer].heads[head].role;
      const name = heads ? `${layer}.${head}` : report.title;
      fill(this.titles[i], dot(i), ` ${name} `, h("span", role));
    });
    fill(
      this.titles[2],
      dot(1),
      " − ",
      dot(0),
      " ",
      h("span", heads ? "blue: more in the second" : "blue gained, ochre lost"),
    );
    const width = this.right.clientWidth || 800;
    const across = width >= 620 && !this.apart ? 3 : 2;
    const large = app.width >= LARGE;
    const size = floor(min(large ? 560 : 420, (width - GAP * (across - 1)) / across));
    const shown = [weights, after, this.differences];
    this.maps.forEach((map, i) => {
      const values = shown[i];
      this.frames[i].hidden = i === 2 && Boolean(this.apart);
      styles(this.frames[i], { width: size });
      if (!values || !first) return;
      const fit = min(large ? 36 : 24, size / max(values.T, values.S));
      const cell = fit >= 4 ? floor(fit) : fit;
      const names = i === 1 && this.apart ? [this.after.names, this.after.names] : [first.rows, first.cols];
      map.draw(values, names[0], names[1], { cell, theme, rowLabels: false, bare: true, signed: i === 2 });
    });
    if (this.apart && after) this.#point(1, -1, -1);
    this.#drawStatistics(sides);
    attributes(this.el, { "data-compared": after ? this.after.key : null });
  }

  /**
   * The pointer is over a map. The second of two texts has words of its own: only its map follows.
   * @param {number} i @param {number} row @param {number} col
   */
  #point(i, row, col) {
    const { app } = this;
    if (i !== 1 || !this.apart) return app.point("query", this.#unit(row), app.long ? -1 : col);
    this.maps[1].focus(row, col);
    const text = row < 0 ? " " : this.maps[1].describe(row, col);
    attributes(this.readouts[1], { text });
    if (row >= 0) app.frame.say(text);
  }

  /**
   * Where words cannot be compared, all statistics of the head in both reports.
   * @param {import("../data/head-changes.js").Place[]} sides
   */
  #drawStatistics([one, two]) {
    this.statistics.hidden = !this.apart || this.#headsOnly();
    if (this.statistics.hidden) return;
    const title = h("h2", `Head ${one.layer}.${one.head} in both `, h("span", "the most different statistic first"));
    fill(this.statistics, title, ...statisticRows(pairs(one, two, this.app.reports.page.averaged)));
  }

  #drawSelect() {
    const { reports } = this.app.reports.page;
    const { report } = this.app.store.state;
    const options = reports.flatMap(({ title }, i) =>
      i === report ? [] : [h("option", { value: i }, title || `report ${i}`)],
    );
    options.push(h("option", { value: "head" }, "another head"));
    fill(this.select, ...options);
    this.select.value = this.#headsOnly() ? "head" : String(this.second.number);
    /** @type {HTMLElement} */ (this.select.parentElement).hidden = reports.length < 2;
  }

  /** The keys of the word in focus, before and after. */
  #drawKeys() {
    const { app } = this;
    const { weights, rows, cols } = app;
    const after = this.after.weights;
    const { side, unit } = this.#focused();
    this.words.hidden = !weights || !after || Boolean(this.apart) || unit < 0;
    if (!weights || !after || this.words.hidden) return;
    const isQuery = side === "query";
    const count = app.width < NARROW ? KEYS / 2 : KEYS;
    const list = moved(weights.line(side, unit), after.line(side, unit), count);
    const [mine, theirs] = isQuery ? [rows, cols] : [cols, rows];
    const { layer, head } = app.store.state;
    const second = this.second;
    const where = this.#headsOnly()
      ? `in ${layer}.${head} and in ${second.layer}.${second.head}`
      : `in head ${layer}.${head}`;
    const width = max(120, min(620, (this.right.clientWidth || 800) - 260));
    fill(
      this.asked,
      isQuery ? "Where does " : "Who looks at ",
      h("em", mine.said(unit)),
      isQuery ? ` look, ${where}?` : `, ${where}?`,
    );
    this.keyRows.draw(
      list.map((one) => ({ ...one, name: theirs.label(one.index) })),
      width,
      count,
    );
  }
}
