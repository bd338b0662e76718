// A layer: where one word looks in all of its heads, and which words receive most, head by head and in all.

import { dominating, layerSums } from "../data/layer-sums.js";
import { isMissing, max, min } from "../data/math.js";
import { largest } from "../data/page-data.js";
import { PromiseCache } from "../data/promise-cache.js";
import { weightColor, weightScale } from "../draw/color.js";
import { attributes, fill, h } from "../draw/dom.js";
import { HeadPicker } from "../draw/head-picker.js";
import { HeadStrips } from "../draw/head-strips.js";
import { LABEL_FONT } from "../draw/weight-map.js";
import { Names, number } from "../words/names.js";
import { chosen, figure, listed, quiet, strong } from "../words/questions.js";

/** @import { App } from "../shell/app.js" */
/** @import { LayerSums } from "../data/layer-sums.js" */

const NARROW = 860; // pixels of a page, below which rows have no notes
const LARGE = 2000; // pixels of a page, from which words are larger
const LISTED = 8; // words that receive most
const DULL = ["mixed", "broad"]; // roles that need no name

/** @type {import("./list.js").ListedView} */
export const layerView = { name: "layer", label: "Layer", make: (app) => new LayerView(app) };

/** The view of a layer. */
class LayerView {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.picker = new HeadPicker((layer, head) => app.choose(layer, head));
    const events = (/** @type {() => ArrayLike<number>[]} */ values, /** @type {boolean} */ isWord) => ({
      point: (/** @type {number} */ row, /** @type {number} */ col) => this.#point(row, col, isWord),
      pick: (/** @type {number} */ row) => row < this.#heads && app.choose(app.store.state.layer, row),
      leave: () => this.#leave(),
      describe: (/** @type {number} */ row, /** @type {number} */ col) => this.#describe(values(), row, col, isWord),
    });
    this.looks = new HeadStrips(
      "weights: a row for each head, a column for each word",
      events(() => this.lines, true),
    );
    this.gets = new HeadStrips(
      "received: a row for each head, a column for each word",
      events(() => this.sums?.shares ?? [], false),
    );
    this.titles = [h("h2"), h("h2")];
    this.readouts = [h("p.readout.num"), h("p.readout.num")];
    this.most = h("ol.most");
    this.scale = h("div.scale");
    this.missing = h("div.error");
    const heads = h("section", h("h2", "Layers ", h("span", "a row for each; click one")), this.picker.el);
    const side = h(
      "aside.side",
      heads,
      h("section", h("h2", "Receive most ", h("span", "share, × even, head")), this.most),
    );
    const part = (/** @type {number} */ i, /** @type {HeadStrips} */ strips) =>
      h("section.layer-part", this.titles[i], strips.el, h("div.below", this.readouts[i], i ? null : this.scale));
    this.stage = h("div", part(0, this.looks), part(1, this.gets));
    this.el = h("div.columns", side, h("div.main", this.missing, this.stage));
    /** @type {PromiseCache<LayerSums>} */
    this.known = new PromiseCache(8);
    /** @type {LayerSums | null} */
    this.sums = null;
    this.of = "";
    /** What every head gives, and at last their mean: by the word in focus. @type {Float32Array[]} */
    this.lines = [];
    this.pointed = { row: -1, col: -1, isWord: true };
  }

  get #heads() {
    return this.app.report.layers[this.app.store.state.layer].heads.length;
  }

  /** Draw everything. */
  draw() {
    const { app } = this;
    const { report, layer, head, words } = app.store.state;
    if (app.atlas) this.picker.draw(app.report, app.atlas, 212, app.color("--ink3"));
    this.picker.choose(layer, head);
    const info = app.report.layers[layer];
    this.missing.hidden = info.grid === null;
    this.stage.hidden = info.grid !== null;
    this.most.parentElement?.toggleAttribute("hidden", info.grid !== null);
    if (info.grid) {
      this.sums = null;
      const why =
        `Of a text of ${info.T} tokens this page holds a map of blocks and the 8 largest weights of each word, ` +
        "head by head. What a whole layer gives to a word is not known from them. Long shows one head; " +
        "a text of up to 512 tokens has this view.";
      fill(this.missing, h("p", why));
      this.el.dataset.ready = `${report}.${layer}`;
      return;
    }
    const merge = words && app.rows.known && app.cols.known;
    const key = `${report}.${layer}.${merge}`;
    if (this.of !== key) {
      this.sums = null;
      this.of = key;
      const units = merge ? { rows: app.rows.unit, cols: app.cols.unit } : null;
      this.known
        .get(key, () => layerSums(app.reports, report, layer, units))
        .then(
          (sums) => this.of === key && this.#loaded(sums),
          (error) => this.of === key && this.#failed(error),
        );
      return;
    }
    this.#drawStrips();
  }

  /** @param {LayerSums} sums */
  #loaded(sums) {
    this.sums = sums;
    if (this.app.view !== this) return;
    this.#drawStrips();
    this.app.frame.ask.show(this.ask());
    this.app.frame.shade(this.shade(), this.app.pinned !== null, this.app.theme);
  }

  /** @param {unknown} error */
  #failed(error) {
    this.stage.hidden = true;
    this.missing.hidden = false;
    this.of = "";
    fill(this.missing, h("p", { role: "alert" }, error instanceof Error ? error.message : String(error)));
  }

  #drawStrips() {
    const { app, sums } = this;
    if (!sums) return;
    const { layer, head } = app.store.state;
    const { theme } = app;
    const narrow = app.width < NARROW;
    const font = app.width >= LARGE ? LABEL_FONT.replace("11px", "13px") : LABEL_FONT;
    const heads = app.report.layers[layer].heads;
    const { names } = this.#side();
    this.#lines();
    const width = this.stage.clientWidth || 900;
    const high = heads.length > 16 ? 14 : app.width >= LARGE ? 30 : heads.length > 8 ? 20 : 24;
    const options = { width, high, font, left: narrow ? 44 : 136, right: narrow ? 4 : 150 };
    const name = (/** @type {number} */ i) => {
      if (i === heads.length) return narrow ? "mean" : "mean of the heads";
      return narrow || DULL.includes(heads[i].role) ? `${layer}.${i}` : `${heads[i].role}  ${layer}.${i}`;
    };
    const top = (/** @type {ArrayLike<number>} */ line, /** @type {import("../words/names.js").Names} */ of) => {
      const [best] = largest(line, 1, 1e-9);
      return best && !narrow ? `${of.said(best.index)} ${number(best.value)}` : "";
    };
    const strips = this.lines.map((values, i) => ({ name: name(i), note: top(values, names), values }));
    const short = (/** @type {number} */ value) => (value < 0.005 ? "" : value.toFixed(2).replace(/^0/, ""));
    const spot = this.pointed.isWord ? this.pointed.col : -1;
    this.looks.draw(strips, {
      ...options,
      names,
      labels: true,
      chosen: head,
      focus: spot,
      color: (value) => weightColor(value, theme),
      text: short,
    });
    const received = sums.shares.map((values, i) => ({ name: name(i), note: top(values, app.cols), values }));
    this.gets.draw(received, {
      ...options,
      names: app.cols,
      labels: !Names.same(app.rows, app.cols), // else they are those above
      chosen: head,
      focus: this.pointed.isWord ? -1 : this.pointed.col,
      color: (value) => weightColor(value, theme),
      text: short,
    });
    this.#drawTitles();
    this.#drawMost();
    fill(this.scale, ...weightScale(theme));
    this.#readout();
    this.el.dataset.ready = this.of;
  }

  /** The word in focus is shown by all heads: as one that looks, or as one that is looked at. */
  #side() {
    const { app } = this;
    const { side, unit } = app.shown;
    const isQuery = side === "query";
    return { isQuery, names: isQuery ? app.cols : app.rows, of: isQuery ? app.rows : app.cols, side, unit };
  }

  #lines() {
    const { side, unit, of } = this.#side();
    if (!this.sums) return;
    const { heads, mean } = this.sums;
    const at = min(max(0, unit), of.size - 1);
    this.lines = [...heads, mean].map((one) => one.line(side, at));
  }

  #drawTitles() {
    const { isQuery, unit, of } = this.#side();
    const word = unit >= 0 ? of.said(unit) : "";
    const { layer } = this.app.store.state;
    const looks = isQuery ? `Where ${word} looks ` : `Who looks at ${word} `;
    fill(this.titles[0], looks, h("span", isQuery ? "in each head; a row adds up to 1" : "in each head"));
    const what = "of all the weight of a head; a row adds up to 1";
    fill(this.titles[1], `What each ${of.known ? "word" : "position"} receives in layer ${layer} `, h("span", what));
  }

  #drawMost() {
    const { app, sums } = this;
    const [all, ratios] = [sums?.shares.at(-1), sums?.ratios.at(-1)];
    if (!sums || !all || !ratios) return;
    const { layer } = app.store.state;
    const pick = (/** @type {number} */ unit) => () => app.pick("key", unit);
    const rows = largest(all, LISTED, 1e-9).map(({ index, value }) => {
      const by = dominating(sums.shares.slice(0, -1), index);
      const button = h(
        "button",
        {
          onclick: pick(index),
          title: `${layer}.${by} gives it most: ${number(sums.shares[by][index])} of its weight`,
        },
        h("b", app.cols.said(index)),
        h("span.num", number(value)),
        h("span.num.quiet", `× ${ratios[index] < 9.95 ? ratios[index].toFixed(1) : ratios[index].toFixed(0)}`),
        h("span.num.quiet", `${layer}.${by}`),
      );
      return h("li", button);
    });
    fill(this.most, ...rows);
  }

  /** Show another word or cell. */
  focus() {
    if (!this.sums || this.stage.hidden) return;
    this.#drawStrips();
  }

  #readout() {
    const { layer } = this.app.store.state;
    const { row, col, isWord } = this.pointed;
    const values = [this.lines, this.sums?.shares ?? []];
    for (const i of [0, 1]) {
      const on = row >= 0 && isWord === (i === 0);
      attributes(this.readouts[i], { text: on ? this.#describe(values[i], row, col, i === 0) : " " });
    }
    if (row >= 0) this.app.frame.say(this.#describe(values[isWord ? 0 : 1], row, col, isWord));
    else if (this.app.chosen) this.app.frame.say(`layer ${layer}`);
  }

  /** @param {ArrayLike<number>[]} values @param {number} row @param {number} col @param {boolean} isWord */
  #describe(values, row, col, isWord) {
    const { layer } = this.app.store.state;
    const { isQuery, names, of, unit } = this.#side();
    const who = row === values.length - 1 ? "mean of the heads" : `${layer}.${row}`;
    const value = values[row]?.[col];
    if (value === undefined || unit < 0) return who;
    if (!isWord) {
      const ratio = number(this.sums?.ratios[row][col] ?? NaN);
      return `${who}: ${this.app.cols.said(col)} receives ${value.toFixed(4)} of all weight, × ${ratio} of uniform`;
    }
    const pair = isQuery ? [of.said(unit), names.said(col)] : [names.said(col), of.said(unit)];
    const what = isMissing(value) ? "hidden by the mask" : value.toFixed(4);
    return `${who}: ${pair[0]} → ${pair[1]} ${what}`;
  }

  /** @param {number} row @param {number} col @param {boolean} isWord */
  #point(row, col, isWord) {
    const { pointed } = this;
    if (pointed.row === row && pointed.col === col && pointed.isWord === isWord) return;
    this.pointed = { row, col, isWord };
    const { head } = this.app.store.state;
    this.looks.focus(isWord ? row : head, isWord ? col : -1);
    this.gets.focus(isWord ? head : row, isWord ? -1 : col);
    this.#readout();
  }

  #leave() {
    this.pointed = { row: -1, col: -1, isWord: true };
    const { head } = this.app.store.state;
    this.looks.focus(head, -1);
    this.gets.focus(head, -1);
    this.#readout();
  }

  /** @returns {import("../words/questions.js").Ask} */
  ask() {
    const { app, sums } = this;
    const { layer } = app.store.state;
    if (app.report.layers[layer].grid)
      return { question: [`What does layer ${layer} look at?`], answer: ["That is not known of so long a text."] };
    const { isQuery, names, of, unit } = this.#side();
    if (unit < 0) return { question: [`What does layer ${layer} look at?`], answer: [] };
    const word = chosen(of, unit);
    const question = isQuery
      ? ["Where does ", word, ` look in layer ${layer}?`]
      : ["Who looks at ", word, ` in layer ${layer}?`];
    if (!sums) return { question, answer: [] };
    const { side } = this.#side();
    const lines = [...sums.heads, sums.mean].map((one) => one.line(side, min(unit, of.size - 1)));
    const best = largest(lines[lines.length - 1], 3, 0.01);
    if (!best.length) return { question, answer: ["Nowhere: the mask hides every key."] };
    const by = dominating(lines.slice(0, -1), best[0].index);
    const list = best.map(({ index, value }) => ({ name: names.said(index), weight: value }));
    const who = [
      ". ",
      strong(names.said(best[0].index)),
      " most by ",
      figure(`${layer}.${by}`),
      ` (${number(lines[by][best[0].index])})`,
    ];
    return { question, answer: ["Mean of the heads: ", ...listed(list), ...who, quiet(".")] };
  }

  shade() {
    const { sums } = this;
    const { side, unit, of } = this.#side();
    if (!sums || unit < 0 || unit >= of.size) return { values: null, unit: -1 };
    return { values: sums.mean.line(side, unit), unit, side };
  }
}
