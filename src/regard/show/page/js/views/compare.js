// Compare: two reports or two heads side by side. ○ is the first, ● the second, everywhere in this view.

import { changes, largestOf, mostChanged, pairs } from "../data/head-changes.js";
import { firstOf } from "../data/long-head.js";
import { floor, isMissing, max, min } from "../data/math.js";
import { WordChanges } from "../data/word-changes.js";
import { dot, withSign } from "../draw/before-after.js";
import { ChangeList, statisticRows } from "../draw/change-list.js";
import { attributes, fill, h, styles } from "../draw/dom.js";
import { HeadPicker } from "../draw/head-picker.js";
import { WeightMap } from "../draw/weight-map.js";
import { isolated, Names, number, precise } from "../words/names.js";
import { askChanged, askHeadsDiffer } from "./compare-answer.js";
import { ComparedHead, matched } from "./compared-head.js";
import { ComparedKeys } from "./compared-keys.js";
import { ComparedTexts } from "./compared-texts.js";
import { Scrub } from "./scrub.js";

/** @import { App } from "../shell/app.js" */
/** @import { LayerInfo, Weights } from "../data/page-data.js" */
/** @import { Chosen } from "./compared-head.js" */

const GAP = 28; // between maps
const LARGE = 2000; // pixels of a page, from which maps are larger
const place = (/** @type {{layer: number, head: number}} */ { layer, head }) => ({ layer, head });

/** @type {import("./list.js").ListedView} */
export const compareView = { name: "compare", label: "Compare", make: (app) => new CompareView(app) };

/** The view of two reports, or of two heads. */
class CompareView {
  #pointed = -1; // the row of the second map that is pointed at, where the first text has no such word

  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.after = new ComparedHead();
    /** @type {Weights | null} */
    this.differences = null;
    this.opening = -1;
    this.cell = 0; // pixels of one of the first map
    const map = (/** @type {string} */ label, /** @type {number} */ i) =>
      new WeightMap({
        label,
        point: (row, col) => this.#point(i, row, col),
        pick: (row) => (this.#mine(i, row) < 0 ? undefined : app.pick("query", this.#unit(this.#mine(i, row)))),
        leave: () => (this.#pointed < 0 ? app.leave() : this.#point(i, -1, -1)),
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
    const names = (/** @type {[number, number]} */ numbers, /** @type {LayerInfo[]} */ layers) =>
      numbers.map((number, i) => Names.of(app.reports.page.reports[number], layers[i], false));
    this.wordChanges = new WordChanges(app.reports, (one, two, numbers) => {
      const [first, second] = names(numbers, [one, two]);
      return matched(first, second, [one, two]).match;
    });
    this.texts = new ComparedTexts(app);
    this.list = new ChangeList(app, this.wordChanges);
    this.note = h("p.note");
    this.scrub = new Scrub(() => {
      this.#drawFirst();
      this.focus();
    });
    this.keys = new ComparedKeys();
    this.statistics = h("section");
    const left = h(
      "div.left",
      h("p.with", "compare with ", this.select),
      this.picking,
      this.list.heading,
      this.list.el,
    );
    this.stage = h("div.side-by-side", ...this.frames);
    this.right = h("div.main", this.stage, this.scrub.el, this.note, this.keys.el, this.statistics);
    this.el = h("div.compare", this.texts.el, left, this.right);
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
    else this.#drawList(second.number);
    if (!reports[second.number].layers[second.layer]?.heads[second.head]) {
      this.stage.hidden = true;
      this.keys.el.hidden = true;
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
    const { match } = this.after;
    const shown = [this.#firstShown(weights), match && this.after.weights, this.differences];
    const theirs = match && { row: match.rows[row] ?? -1, col: match.cols[col] ?? -1 };
    this.texts.focus(this.after, side, unit);
    this.maps.forEach((map, i) => {
      const values = shown[i];
      if (!values) return !match && i === 1 ? undefined : attributes(this.readouts[i], { text: " " });
      const at2 = i === 1 && theirs ? theirs : { row, col };
      map.focus(at2.row, at2.col);
      const own = side === "query" ? at2.row : at2.col;
      const line = own < 0 ? [] : values.line(side, own);
      const of = i === 1 && !app.long ? this.after : { rows, cols };
      const names = side === "query" ? of.cols : of.rows;
      const at = other >= 0 && side === "query" ? at2.col : largestOf(line);
      const written = (/** @type {number} */ weight) => (other >= 0 ? precise(weight, values.error) : number(weight));
      attributes(this.readouts[i], {
        text:
          at >= 0 && !isMissing(line[at])
            ? `${isolated(names.label(at))} ${i === 2 ? withSign(line[at]) : written(line[at])}`
            : own < 0 && i === 1
              ? "not in this text"
              : " ",
      });
    });
    const { layer, head } = app.store.state;
    const { second } = this;
    const where = this.#headsOnly()
      ? `in ${layer}.${head} and in ${second.layer}.${second.head}`
      : `in head ${layer}.${head}`;
    this.keys.draw(app, this.after, { side, unit: word, where, room: this.right.clientWidth || 800 });
    if (app.chosen && this.differences && side === "query" && other >= 0)
      app.frame.say(this.maps[2].describe(unit, other));
  }

  /** @returns {import("../words/questions.js").Ask} */
  ask() {
    const { second } = this;
    return this.#headsOnly()
      ? askHeadsDiffer(this.app, second)
      : askChanged(this.app, this.app.reports.page.reports[second.number].title, this.#changes());
  }

  figure() {
    return this.stage;
  }

  shade() {
    const { weights } = this.app;
    const { side, unit } = this.#focused();
    if (!weights || unit < 0) return { values: null, unit: -1 };
    return { values: weights.line(side, unit), unit, side };
  }

  /** The list of heads, again when the words of all heads are read. @param {number} other */
  #drawList(other) {
    const { app } = this;
    this.list.drawChanges(other);
    this.wordChanges.read(app.store.state.report, other, app.aborter.signal, () => app.view === this && app.redraw());
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

  /** The first weights as they are shown: somewhere on the way to the second. @param {Weights} weights */
  #firstShown(weights) {
    const { differences, scrub } = this;
    return differences && scrub.share ? scrub.mixed(weights, differences) : weights;
  }

  #drawFirst() {
    const first = this.#first();
    if (!first) return;
    const { theme } = this.app;
    this.scrub.say();
    const weights = this.#firstShown(first.weights);
    this.maps[0].draw(weights, first.rows, first.cols, { cell: this.cell, theme, rowLabels: false, bare: true });
  }

  /** @param {number} unit */
  #row(unit) {
    return this.app.long && unit >= 0 ? this.app.long.cell(unit, 0).row : unit;
  }

  /**
   * The row of the first head for one of a map; -1 where the second has no partner.
   * @param {number} i @param {number} row
   */
  #mine(i, row) {
    return i === 1 ? (this.after.match?.rows.indexOf(row) ?? -1) : row;
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
    const { number } = this.second;
    const { report } = this.app.store.state;
    return changes(this.app.report, reports[number], averaged, (l, i) => this.wordChanges.at(report, number, l, i));
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
    const { weights: after, match, apart, note } = this.after;
    this.differences = (weights && after && match?.difference(weights, after)) ?? null;
    this.texts.draw(this.after);
    this.opening = this.differences ? this.#unit(mostChanged(this.differences, app.long ? [] : app.rows.names)) : -1;
    const blocks = app.long
      ? "A cell is a block of tokens; single words are compared in texts of up to 512 tokens."
      : "";
    attributes(this.note, { text: [this.after.error || apart, note, blocks].filter(Boolean).join(" ") });
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
    const across = width >= 620 && !apart ? 3 : 2;
    const large = app.width >= LARGE;
    const size = floor(min(large ? 560 : 420, (width - GAP * (across - 1)) / across));
    const shown = [weights, after, this.differences];
    this.scrub.begin(this.differences !== null);
    this.maps.forEach((map, i) => {
      const values = shown[i];
      this.frames[i].hidden = i === 2 && Boolean(apart);
      styles(this.frames[i], { width: size });
      if (!values || !first) return;
      const fit = min(large ? 36 : 24, size / max(values.T, values.S));
      const cell = fit >= 4 ? floor(fit) : fit;
      if (i === 0) this.cell = cell;
      const names = i === 1 && !app.long ? [this.after.rows, this.after.cols] : [first.rows, first.cols];
      map.draw(values, names[0], names[1], { cell, theme, rowLabels: false, bare: true, signed: i === 2 });
    });
    if (apart && after) this.#point(1, -1, -1);
    this.#drawStatistics(sides);
    attributes(this.el, { "data-compared": after ? this.after.key : null });
  }

  /**
   * The pointer is over a map. The second of two texts has words of its own: only its map follows.
   * @param {number} i @param {number} row @param {number} col
   */
  #point(i, row, col) {
    const { app, after } = this;
    const own = this.#mine(i, row);
    const key = i === 1 ? (after.match?.cols.indexOf(col) ?? -1) : col;
    this.#pointed = own < 0 ? row : -1;
    if (row >= 0 && own >= 0) return app.point("query", this.#unit(own), app.long ? -1 : key);
    if (row < 0 && after.match) return this.focus();
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
    this.statistics.hidden = !this.after.apart || this.#headsOnly();
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
}
