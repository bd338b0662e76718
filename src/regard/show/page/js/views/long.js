// A long text: a map to zoom, the largest weights of the word in focus in their context, and the text.

import { LongHead } from "../data/long-head.js";
import { ceil, floor, isMissing, max, min } from "../data/math.js";
import { weightScale } from "../draw/color.js";
import { attributes, fill, h, styles } from "../draw/dom.js";
import { byName, LargestWeights } from "../draw/largest-weights.js";
import { TextLine } from "../draw/text-line.js";
import { ZoomMap } from "../draw/zoom-map.js";
import { brokenRows } from "../words/broken.js";
import { Names, number, precise } from "../words/names.js";
import { chosen, listed, placeOf, quiet, receives, withoutNumbers } from "../words/questions.js";

/** @import { App } from "../shell/app.js" */
/** @import { Spot } from "../draw/zoom-map.js" */
/** @import { Looked } from "../draw/largest-weights.js" */

const LONG_FROM = 65; // tokens from which a text has this view, and opens in it
const COLUMN = 860; // pixels of the page, up to which everything is in one column
const PAGE = 600; // tokens of the text that are shown at a time
const ROWS = 8; // largest weights
const LEAST_SHOWN = 5e-4; // weight of a row

/** @type {import("./list.js").ListedView} */
export const longView = {
  name: "long",
  label: "Long",
  make: (app) => new LongView(app),
  shows: ({ T, S }) => max(T, S) >= LONG_FROM,
  instead: "head",
};

/** The view of one head of a long text. */
class LongView {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.ownText = true; // the page's own line of text would be too long
    this.page = -1; // of the text
    this.pagedFor = ""; // the text and focus that the page was chosen for
    /** @type {{weights: import("../data/page-data.js").Weights, long: LongHead} | null} */
    this.made = null;
    /** @type {Spot | null} */
    this.spot = null;
    this.map = new ZoomMap({
      label: "weights: a row for each word that looks, a column for each word that is looked at",
      point: (spot) => {
        this.spot = spot;
        app.point("query", spot.query, spot.key);
      },
      pick: (spot) => app.pick("query", spot.query),
      leave: () => {
        this.spot = null;
        app.leave();
      },
      moved: () => this.focus(),
    });
    this.select = /** @type {HTMLSelectElement} */ (
      h("select", { "aria-label": "head", onchange: () => this.#pickHead() })
    );
    this.about = h("span");
    const zoom = (/** @type {string} */ text, /** @type {string} */ label, /** @type {() => void} */ act) =>
      h("button", { "aria-label": label, title: label, onclick: act }, text);
    const tools = h(
      "span.zooms",
      zoom("−", "zoom out", () => this.map.zoom(1 / 1.5)),
      zoom("+", "zoom in", () => this.map.zoom(1.5)),
      zoom("all", "all of the text", () => this.map.whole()),
    );
    this.cells = h("span.cells");
    this.readout = h("p.num.readout-line");
    this.scale = h("div.scale");
    const keys = { wheel: "zoom", drag: "move", click: "pin", Esc: "unpin", "[ ]": "head" };
    this.foot = h(
      "p.foot",
      ...Object.entries(keys).flatMap(([key, does]) => [h("span.keys", h("kbd", key), does), " "]),
    );
    this.looked = new LargestWeights(ROWS);
    this.text = new TextLine({
      point: (unit) => app.point("query", this.#first() + unit),
      pick: (unit) => app.pick("query", this.#first() + unit),
      leave: () => app.leave(),
    });
    this.range = h("span");
    const turn = (/** @type {string} */ text, /** @type {number} */ by) =>
      h("button", { onclick: () => this.#turn(by) }, text);
    this.turns = h("span.turns", turn("earlier", -1), turn("later", 1));
    this.textTitle = h("h2", "The text ", this.range, this.turns);
    this.main = h(
      "div.long-map",
      this.map.el,
      this.readout,
      h("p.long-zoom", tools, this.cells),
      this.scale,
      this.foot,
    );
    this.words = h("section.long-text", this.textTitle, this.text.el);
    this.el = h(
      "div.long",
      h("p.long-head", "head ", this.select, this.about),
      this.main,
      h("div.long-right", this.looked.el, this.words),
    );
  }

  /** The head: from the page where the text is long, else made of its weights. */
  get head() {
    const { long, weights } = this.app;
    if (long) return long;
    if (!weights) return null;
    if (this.made?.weights !== weights) this.made = { weights, long: LongHead.fromWeights(weights) };
    return this.made.long;
  }

  draw() {
    const { app, head } = this;
    const { state } = app.store;
    this.#drawHeads();
    if (!head) return;
    const narrow = app.width <= COLUMN;
    const room = narrow ? app.width - 80 : min(app.width * 0.46, max(360, app.height - 354));
    const size = max(220, floor(min(860, room)));
    const layer = app.report.layers[state.layer];
    this.map.draw(head, {
      size,
      theme: app.theme,
      triangle: layer.encoding?.triangle ?? false,
      bar: app.color("--tick"),
      broken: layer.broken?.[state.head]?.rows ?? [],
    });
    const info = layer.heads[state.head];
    const entropy = info.means.entropy;
    const facts = [
      ...(entropy === null || entropy === undefined
        ? []
        : [`entropy ${number(entropy)} of at most ${number(layer.most.entropy)}`]),
      app.report.precision,
    ];
    attributes(this.about, { text: facts.join(" · ") });
    fill(
      this.scale,
      h(
        "p",
        head.block > 1
          ? "How much of the attention of a row of tokens is in each cell; a row adds up to 1."
          : "A row is a word; its cells add up to 1.",
      ),
      ...weightScale(app.theme),
    );
    styles(this.scale, { width: min(320, size) });
    this.words.hidden = !app.rows.known;
    this.focus();
  }

  focus() {
    const { app, head } = this;
    if (!head) return;
    const { side, unit, other } = app.shown;
    this.#choosePage();
    const list = this.#looked().filter(({ weight }) => weight >= LEAST_SHOWN);
    const isQuery = side === "query";
    const keys = isQuery ? list.map((one) => ({ key: one.unit, weight: one.weight })) : [];
    const said = this.#sentence(head);
    this.map.focus(isQuery ? unit : -1, other >= 0 ? other : (keys[0]?.key ?? 0), keys, said);
    attributes(this.readout, { text: said || " " });
    attributes(this.cells, { text: this.#cellsText(head) });
    this.looked.draw(list, app);
    this.#shadeText(list);
    if (app.chosen && said) app.frame.say(said);
  }

  /** @returns {import("../words/questions.js").Ask} */
  ask() {
    const { app, head } = this;
    const { side, unit } = app.shown;
    const names = side === "query" ? app.rows : app.cols;
    if (!head || unit < 0 || unit >= names.size) return { question: ["Where does each word look?"], answer: [] };
    const word = chosen(names, unit);
    const list = this.#looked();
    const others = side === "query" ? app.cols : app.rows;
    const groups = byName(list, others).slice(0, 3);
    const answer = listed(
      groups.map((one) =>
        one.times > 1 ? { ...one, after: ` in ${one.times} places` } : { ...one, sup: placeOf(others, one.unit) },
      ),
    );
    if (side === "query" && answer.length) answer.unshift("At ");
    const size = `${side === "query" ? head.S : head.T} ${app.store.state.words && !app.long ? "words" : "tokens"}`;
    if (side === "key") {
      const sum = quiet(`${answer.length ? ". " : ""}${receives(head.received[unit], head.times[unit])}`);
      return { question: ["Who looks at ", word, `, among ${size}?`], answer: [...answer, sum] };
    }
    if (brokenRows(app.report.layers[app.store.state.layer], app.store.state.head, app.rows).has(unit))
      return withoutNumbers({ question: ["Where does ", word, ` look, among ${size}?`], answer }, app);
    if (!answer.length) answer.push("Nowhere: the mask hides every key");
    const held = list.reduce((sum, one) => sum + one.weight, 0);
    answer.push(".", quiet(list.length > 1 ? ` The ${list.length} largest weights hold ${number(held)}.` : ""));
    return { question: ["Where does ", word, ` look, among ${size}?`], answer };
  }

  figure() {
    return this.map.el;
  }

  shade() {
    return { values: null, unit: -1 };
  }

  /** The largest weights of the word in focus. @returns {Looked[]} */
  #looked() {
    const { app, head } = this;
    const { side, unit } = app.shown;
    if (!head || unit < 0 || unit >= (side === "query" ? head.T : head.S)) return [];
    if (side === "query") return head.top(unit, ROWS).map(({ key, weight }) => ({ unit: key, weight }));
    return head.lookers(unit).map(({ query, weight }) => ({ unit: query, weight }));
  }

  /** What is pointed at, in words. @param {LongHead} head */
  #sentence(head) {
    const { app, spot } = this;
    const { rows, cols } = app;
    if (!spot || app.hover.unit < 0) return "";
    const { query, key, queries, keys } = spot;
    if (queries[1] - queries[0] > 1 || keys[1] - keys[0] > 1) {
      const { row, col } = head.cell(queries[0], keys[0]);
      const { factor } = this.map;
      const mass = head.level(factor).at(floor(row / factor), floor(col / factor));
      const range = (/** @type {[number, number]} */ [first, after]) =>
        after - first > 1 ? `${first}–${after - 1}` : String(first);
      if (isMissing(mass)) return `tokens ${range(queries)} → ${range(keys)}: hidden by the mask`;
      return `tokens ${range(queries)} → ${range(keys)}: ${precise(mass, 1e-5)} of their attention`;
    }
    const found = head.top(query).find((one) => one.key === key);
    const exact = head.block === 1 ? head.mass.at(query, key) : (found?.weight ?? head.exact?.at(query, key));
    if (exact !== undefined && isMissing(exact)) return `${rows.said(query)} → ${cols.said(key)}: hidden by the mask`;
    const error = head.block === 1 ? head.mass.errorAt(query, key) : found ? 1e-5 : (head.exact?.info.error ?? 1e-5);
    const weight = exact === undefined ? "not among its 8 largest" : precise(exact, error);
    return `${rows.said(query)} → ${cols.said(key)}: ${weight}`;
  }

  /** @param {LongHead} head */
  #cellsText(head) {
    if (this.map.single && this.map.factor === 1) {
      if (head.exact) return `a cell for each weight, ±${head.exact.info.error.toPrecision(1)}`;
      return head.block > 1 ? "single tokens; of each row its 8 largest weights" : "a cell for each weight";
    }
    const size = head.block * this.map.factor;
    return `cells of ${size} × ${size} tokens; zoom in for single weights`;
  }

  #drawHeads() {
    const { app } = this;
    const { layer, head } = app.store.state;
    if (this.select.dataset.report !== String(app.store.state.report)) {
      this.select.dataset.report = String(app.store.state.report);
      fill(
        this.select,
        ...app.report.order.map(([l, i]) =>
          h("option", { value: `${l}.${i}` }, `${l}.${i} ${app.report.layers[l].heads[i].role}`),
        ),
      );
    }
    this.select.value = `${layer}.${head}`;
  }

  #pickHead() {
    const [layer, head] = this.select.value.split(".").map(Number);
    this.app.choose(layer, head);
  }

  /** The page of the text follows what is pinned, never the pointer. */
  #choosePage() {
    const { app } = this;
    const { state } = app.store;
    const key = `${state.report} ${state.words} ${state.pinned ? state.focus : app.opening}`;
    if (this.pagedFor === key) return;
    this.pagedFor = key;
    const { side, unit } = app.shown;
    const at = state.pinned ? unit : app.opening;
    this.page = floor(max(0, side === "query" || !state.pinned ? at : unit) / PAGE);
    this.#drawText();
  }

  #first() {
    return max(0, this.page) * PAGE;
  }

  /** @param {number} by */
  #turn(by) {
    const last = ceil(this.app.rows.size / PAGE) - 1;
    this.page = min(last, max(0, this.page + by));
    this.#drawText();
    this.#shadeText(this.#looked());
  }

  #drawText() {
    const { rows } = this.app;
    if (!rows.known) return;
    const first = this.#first();
    this.text.draw(rows, first, PAGE);
    const part = rows.size > PAGE ? `tokens ${first}–${min(rows.size, first + PAGE) - 1} of ${rows.size}, ` : "";
    const outlined = this.app.shown.side === "query" ? "where this word looks" : "who looks at it";
    attributes(this.range, {
      text: `${part}shaded: words that receive more than 1, the mean of all; outlined: ${outlined}`,
    });
    this.turns.hidden = rows.size <= PAGE;
    [...this.turns.children].forEach((button, i) =>
      attributes(button, { disabled: i ? first + PAGE >= rows.size : first === 0 }),
    );
  }

  /** @param {Looked[]} list */
  #shadeText(list) {
    const { app, head } = this;
    if (!head || !app.rows.known) return;
    const first = this.#first();
    const { side, unit } = app.shown;
    const same = Names.same(app.rows, app.cols);
    const values = same
      ? head.received.slice(first, first + this.text.units.length).map((sum) => shadeOf(sum, this.map.most))
      : null;
    this.text.shade(values, unit - first, app.store.state.pinned, app.theme);
    const marks = new Map(
      same || side === "key"
        ? list.filter((one) => one.weight >= 0.01).map((one) => [one.unit - first, one.weight])
        : [],
    );
    this.text.units.forEach((node, i) => {
      const weight = marks.get(i);
      attributes(node, { "data-looked": weight === undefined ? null : number(weight).replace(/^0/, "") });
    });
  }
}

/**
 * The shade of a word that receives so much weight, on a log scale; none up to 1, which is the mean of all words.
 * @param {number} sum @param {number} most
 */
function shadeOf(sum, most) {
  return sum > 1.05 ? max(0.012, Math.log(sum) / Math.log(max(4, most))) * 0.5 : 0;
}
