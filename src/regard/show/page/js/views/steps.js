// Steps: from x to out for one head, one word that looks and one that is looked at, with one number to follow.

import { floor, max, min } from "../data/math.js";
import { loadSteps } from "../data/step-tensors.js";
import { attributes, fill, finish, h, s } from "../draw/dom.js";
import { HeadPicker } from "../draw/head-picker.js";
import { KeyHeadings } from "../draw/key-headings.js";
import { drawPaths } from "../draw/step-paths.js";
import { StepItem } from "../draw/step-row.js";
import { shortNumber } from "../words/equations.js";
import { Names } from "../words/names.js";
import { chosen, figure } from "../words/questions.js";
import { Flow, keyColumns } from "../words/step-sentences.js";

/** @import { App } from "../shell/app.js" */
/** @import { Choice } from "../data/step-tensors.js" */

const ONE_COLUMN = 860; // pixels, below which a step is laid out downwards
const COLUMN = 40; // the fewest pixels of a key's column
const LARGE = { from: 2000, column: 52, high: 44 }; // a window from this width on has larger type
const HOW = [
  ["boxed", "the number we follow: in a step’s picture, its bars and its sentence"],
  ["bars", "up is above zero, down is below"],
  ["q k v", "the paths of queries, keys and values: they meet in scores and in context"],
];

/** @type {import("./list.js").ListedView} */
export const stepsView = { name: "steps", label: "Steps", make: (app) => new StepsView(app) };

/** The view of a layer's steps. */
class StepsView {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.picker = new HeadPicker((layer, head) => app.choose(layer, head));
    this.how = h("dl.how");
    const heads = h("section", h("h2", "Heads ", h("span", "a row for each layer")), this.picker.el);
    this.reading = h("section", h("h2", "How to read"), this.how);
    const side = h("aside.side", heads, this.reading);
    this.missing = h("div.error");
    this.titles = h("div.step.step-titles", { "aria-hidden": true });
    this.lanes = s("svg.lanes", { "aria-hidden": true });
    this.list = h("ol.step-rows");
    this.keyNames = new KeyHeadings((key) => this.#pin(key, this.pinned.number));
    this.pieces = h("p.note", "Steps are those of tokens: of a word in pieces, the first piece is shown.");
    this.stage = h("div.steps", this.pieces, this.titles, this.lanes, this.list);
    this.el = h("div.columns", side, h("div.main", this.missing, this.stage));
    /** @type {Map<string, Flow>} */
    this.flows = new Map();
    /** @type {Flow | null} */
    this.shown = null;
    /** @type {StepItem[]} */
    this.items = [];
    /** @type {number[]} */
    this.keys = [];
    this.names = { rows: new Names(null, 0, false), cols: new Names(null, 0, false) };
    this.most = 1; // columns that fit
    this.sizes = { whole: 0, high: 0, part: 0, column: COLUMN };
    this.pointedKey = -1;
    this.pointedNumber = -1;
    this.list.addEventListener("keydown", (event) => this.#numberDown(event));
    this.list.addEventListener("pointermove", (event) => this.#point(event));
    this.list.addEventListener("pointerleave", () => this.#leave());
    this.list.addEventListener("click", (event) => this.#pick(event));
  }

  /** The key and the number that the person pinned; -1 is none. */
  get pinned() {
    const [key, number] = this.app.store.state.step.split(".").map((text) => (/^\d+$/.test(text) ? Number(text) : -1));
    return { key, number: number ?? -1 };
  }

  draw() {
    const { app } = this;
    const { report, layer, head } = app.store.state;
    if (app.atlas) this.picker.draw(app.report, app.atlas, 212, app.color("--ink3"));
    this.picker.choose(layer, head);
    const info = app.report.layers[layer];
    this.names = Names.of(app.report, info, false);
    const key = `${report}.${layer}`;
    const flow = info.steps ? this.flows.get(key) : undefined;
    this.stage.hidden = !flow;
    this.pieces.hidden = !app.store.state.words;
    this.missing.hidden = Boolean(info.steps);
    this.reading.hidden = !info.steps;
    if (!info.steps) return this.#drawMissing(info.without_steps);
    if (!flow) {
      this.missing.hidden = false;
      fill(this.missing, h("p", { role: "status" }, `Computing the steps of layer ${layer}…`));
      return void this.#load(key);
    }
    if (this.shown !== flow) {
      this.shown = flow;
      const hasPaths = flow.byName.has("queries");
      const how = HOW.filter(([term]) => term !== "q k v" || hasPaths);
      fill(this.how, ...how.flatMap(([term, text]) => [h("dt", term), h("dd", text)]));
      const known = new Set(app.reports.page.reports[report - 1]?.layers[layer]?.steps?.map(({ name }) => name));
      this.items = flow.steps.map((tensor, i) => {
        const before = flow.steps[i - 1]?.info;
        const again = before?.operation === tensor.info.operation && before.shape === tensor.info.shape;
        const item = new StepItem(tensor, again && / (keys|values)$/.test(tensor.name));
        // of runs of other code, as on a ladder, what is new in each
        if (known.size && !known.has(tensor.name)) item.markNew();
        return item;
      });
      fill(this.list, ...this.items.map((item) => item.el));
    }
    this.#layOut(flow);
    this.focus();
    drawPaths(
      this.lanes,
      flow,
      this.items.map((item) => item.middle),
    );
    this.el.dataset.ready = `${key}.${head}`;
  }

  /** @param {string} key */
  async #load(key) {
    const { app } = this;
    const [report, layer] = key.split(".").map(Number);
    const { steps, heads } = app.reports.page.reports[report].layers[layer];
    const current = () => app.view === this && key === `${app.store.state.report}.${app.store.state.layer}`;
    try {
      this.flows.set(key, new Flow(await loadSteps(steps ?? [], heads.length, app.reports.transport)));
      if (!current()) return;
      this.draw();
      app.frame.ask.show(this.ask());
    } catch (error) {
      if (!current()) return;
      this.missing.hidden = false;
      fill(this.missing, h("p", { role: "alert" }, error instanceof Error ? error.message : String(error)));
    }
  }

  /** @param {string} text */
  #drawMissing(text) {
    const { app } = this;
    const there = app.report.layers.flatMap((layer, i) => (layer.steps ? [i] : []));
    const button = (/** @type {number} */ layer) => {
      const head = min(app.store.state.head, app.report.layers[layer].heads.length - 1);
      return h("button.close", { onclick: () => app.choose(layer, head) }, `layer ${layer}`);
    };
    const others = there.flatMap((layer, i) => [i ? ", " : "", button(layer)]);
    fill(this.missing, h("p", text), there.length ? h("p", "In this file: ", ...others) : "");
    this.el.dataset.ready = "";
  }

  /** @param {Flow} flow */
  #layOut(flow) {
    const { app } = this;
    const narrow = app.width < ONE_COLUMN;
    const large = app.width >= LARGE.from;
    const { layer, head } = app.store.state;
    const part = `one word’s part of it${flow.steps.some((one) => one.H > 1) ? `, in head ${layer}.${head}` : ""}`;
    const right = h("span.step-line", h("span"), h("span", part), h("span", "the number we follow"));
    fill(
      this.titles,
      h("span.step-name", "step"),
      h("span.step-whole", "the whole tensor"),
      h("span.step-lines", right),
    );
    const first = this.items[0];
    if (!first) return;
    const width = max(120, floor(first.partWidth()));
    this.most = max(3, floor(width / (large ? LARGE.column : COLUMN)));
    const count = min(this.most, this.names.cols.size);
    const column = min(80, floor(width / max(1, count)));
    this.sizes = {
      whole: narrow ? 120 : floor(first.whole.clientWidth),
      high: large ? LARGE.high : 34,
      part: width,
      column,
    };
    for (const item of this.items) item.draw(app.theme, this.sizes);
  }

  /** What is chosen: the word in focus, its strongest key or the one pointed at, and the number to follow. */
  #choice() {
    const { app } = this;
    const flow = this.shown;
    const { rows, cols } = app;
    const { side, unit, other } = app.shown;
    const { weights } = app;
    let query = max(0, rows.first[unit] ?? 0);
    let key = -1;
    if (side === "key" && unit >= 0 && weights) {
      const column = weights.column(unit);
      const best = column.reduce((most, weight, i) => (weight > (column[most] || 0) ? i : most), 0);
      [query, key] = [rows.first[best] ?? 0, cols.first[unit] ?? 0];
    }
    if (other >= 0) key = cols.unit[this.pointedKey] === other ? this.pointedKey : (cols.first[other] ?? 0);
    else if (this.pinned.key >= 0 && this.pinned.key < this.names.cols.size) key = this.pinned.key;
    const choice = { head: app.store.state.head, query, key: max(0, key), number: 0 };
    const row = this.#weights(choice);
    const best = row.reduce((most, weight, i) => (weight > row[most] ? i : most), 0);
    if (key < 0) choice.key = best;
    const number = this.pointedNumber >= 0 ? this.pointedNumber : this.pinned.number;
    choice.number = flow ? (number >= 0 && number < flow.width ? number : flow.telling(choice)) : 0;
    return { choice, weights: row, best };
  }

  /** @param {Choice} choice */
  #weights(choice) {
    const { app } = this;
    const tensor = this.shown?.byName.get("weights");
    if (tensor && app.report.layers[app.store.state.layer].steps) return tensor.row(choice);
    const row = app.weights?.row(app.rows.unit[choice.query]) ?? new Float32Array();
    return Float32Array.from(app.cols.unit, (unit) => row[unit] || 0);
  }

  focus() {
    const { app, names } = this;
    const flow = this.shown;
    if (!flow || this.stage.hidden) return;
    const { choice, weights, best } = this.#choice();
    const { query, key } = choice;
    const scores = flow.beforeSoftmax?.row(choice) ?? weights;
    this.keys = keyColumns(
      weights,
      scores,
      [best, query < names.cols.size ? query : -1, this.pinned.key, this.keys.includes(key) ? -1 : key],
      this.most,
    );
    if (!this.keys.includes(key)) this.keys = keyColumns(weights, scores, [key, best], this.most);
    const written = { query: names.rows.names[query], key: names.cols.names[key] };
    const rows = flow.rows(choice, { query: names.rows.label(query), key: names.cols.label(key), names: written });
    rows.forEach((row, i) => this.items[i].focus(row, choice, this.keys, app.theme));
    // Once, above the scores.
    const line = this.items.find((one) => one.made.at(-1)?.kind === "keys")?.made.at(-1);
    const short = app.width < ONE_COLUMN;
    if (line)
      this.keyNames.draw(line.body, { keys: this.keys, key, names: names.cols, column: this.sizes.column, short });
    this.#drawSlider(choice, flow);
    if (app.chosen || this.pinned.key >= 0)
      app.frame.say(`${names.rows.label(query)} → ${names.cols.label(key)}, weight ${shortNumber(weights[key])}`);
  }

  /**
   * The products of the scores are where the keyboard chooses the number to follow.
   * @param {Choice} choice @param {Flow} flow
   */
  #drawSlider(choice, flow) {
    const products = this.items.find((one) => one.tensor.name === "scores")?.made;
    if (!products || products.length < 2) return;
    const said = products[0].el.querySelector(".said .num")?.textContent ?? "";
    attributes(products[0].body, {
      role: "slider",
      tabindex: 0,
      "aria-label": "number to follow",
      "aria-valuemin": 0,
      "aria-valuemax": flow.width - 1,
      "aria-valuenow": choice.number,
      "aria-valuetext": `number ${choice.number}: ${said}`,
    });
  }

  /** @returns {import("../words/questions.js").Ask} */
  ask() {
    const { names, app } = this;
    const info = app.report.layers[app.store.state.layer];
    const { choice, weights } = this.#choice();
    const [query, key] = [chosen(names.rows, choice.query), chosen(names.cols, choice.key)];
    const hidden = this.shown && info.steps && this.shown.beforeSoftmax?.row(choice)[choice.key] === -Infinity;
    if (hidden) {
      const why = ["The mask hides it: ", figure("−∞"), " becomes weight ", figure("0"), "."];
      return { question: ["Why does ", query, " not look at ", key, "?"], answer: why };
    }
    const answer = info.steps
      ? ["Follow the boxed number from top to bottom: weight ", figure(shortNumber(weights[choice.key])), "."]
      : [info.without_steps.split(". ")[0], "."];
    return { question: ["How does ", query, " come to look at ", key, "?"], answer };
  }

  figure() {
    return this.stage;
  }

  shade() {
    const { app } = this;
    if (!app.weights) return { values: null, unit: -1 };
    const unit = app.rows.unit[this.#choice().choice.query] ?? -1;
    return { values: unit >= 0 ? app.weights.row(unit) : null, unit };
  }

  /** Which key or number an event is at. @param {Event} event */
  #at(event) {
    const target = /** @type {Element} */ (event.target);
    const cell = target.closest("[data-key]");
    if (cell) return { key: Number(cell.getAttribute("data-key")), number: -1 };
    const svg = target.closest("svg.bars");
    if (!svg || !this.shown || !(event instanceof MouseEvent)) return { key: -1, number: -1 };
    const [step, from, count] = ["data-step", "data-from", "data-count"].map((name) => Number(svg.getAttribute(name)));
    const at = floor((event.clientX - svg.getBoundingClientRect().left) / step) - from;
    const isPart = count === this.shown.width;
    return { key: -1, number: isPart && at >= 0 && at < this.shown.width ? at : -1 };
  }

  /** @param {Event} event */
  #point(event) {
    const { key, number } = this.#at(event);
    if (key >= 0) this.#pointKey(key);
    if (number === this.pointedNumber) return;
    this.pointedNumber = number;
    this.focus();
  }

  /** @param {number} key */
  #pointKey(key) {
    const { app } = this;
    const query = this.#choice().choice.query;
    const changed = this.pointedKey !== key;
    this.pointedKey = key;
    app.point("query", app.rows.unit[query], app.cols.unit[key]);
    if (changed && app.cols.unit.length !== app.cols.size) {
      // two pieces of one word: the page sees no change
      this.focus();
      app.frame.ask.show(this.ask());
    }
  }

  #leave() {
    this.pointedKey = -1;
    const number = this.pointedNumber;
    this.pointedNumber = -1;
    if (this.app.hover.unit >= 0) this.app.leave();
    else if (number >= 0) this.focus();
  }

  /** @param {Event} event */
  #pick(event) {
    const { key, number } = this.#at(event);
    if (key >= 0) this.#pin(key === this.pinned.key ? -1 : key, this.pinned.number);
    else if (number >= 0) this.#pin(this.pinned.key, number === this.pinned.number ? -1 : number);
  }

  /** Keep a key, a number or both; the word that looks is kept with them. @param {number} key @param {number} number */
  #pin(key, number) {
    const { query } = this.#choice().choice;
    const step = key < 0 && number < 0 ? "" : `${key < 0 ? "" : key}.${number < 0 ? "" : number}`;
    this.app.store.set({ step, side: "query", focus: query, pinned: true });
  }

  /** @param {KeyboardEvent} event */
  #numberDown(event) {
    if (!this.shown || !(/** @type {Element} */ (event.target).matches("[role=slider]"))) return;
    const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[event.key];
    if (by === undefined) return;
    finish(event);
    this.#pin(this.pinned.key, min(this.shown.width - 1, max(0, this.#choice().choice.number + by)));
  }
}
