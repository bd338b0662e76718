// Flow: the strongest routes on which attention passes from one word to another, layer by layer.

import { layerMeans } from "../data/layer-sums.js";
import { max, min } from "../data/math.js";
import { largest } from "../data/page-data.js";
import { PromiseCache } from "../data/promise-cache.js";
import { routes, sources, tellingStart } from "../data/routes.js";
import { fill, h, s } from "../draw/dom.js";
import { drawRoutes } from "../draw/route-map.js";
import { LABEL_FONT } from "../draw/weight-map.js";
import { number } from "../words/names.js";
import { chosen, figure, quiet, strong, worth } from "../words/questions.js";

/** @import { App } from "../shell/app.js" */
/** @import { LayerMean } from "../data/layer-sums.js" */
/** @import { By, Route } from "../data/routes.js" */

const COUNT = 6; // routes
const SOURCES = 12; // words that the end may come from
const NARROW = 860;
const BY_HEADS =
  "By single heads: a step to another word is the largest weight that one head of the layer gives; to stay, in the " +
  "residual stream, is 1. A route is as strong as the product of its steps.";
const BY_MEAN =
  "By the mean of the heads, as attention rollout: half of it goes through a layer, and half stays where it is, as " +
  "the residual stream. A route is as strong as the product of its steps; its share is of all routes.";
const OF_BOTH =
  "That is where weights could carry something, not what was carried: values, output matrices and MLPs are left out. " +
  "A cut is the proof.";
const LARGE = 2000;

/** @type {import("./list.js").ListedView} */
export const flowView = { name: "flow", label: "Flow", make: (app) => new FlowView(app) };

/** The view of routes from word to word. */
class FlowView {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.svg = s("svg.routes", { role: "img" });
    this.list = h("ol.route-list");
    this.sources = h("ol.most");
    this.proof = h("pre.num");
    this.missing = h("div.error");
    this.count = h("span");
    this.source = h("span");
    this.how = h("p.note");
    const mode = (/** @type {By} */ by, /** @type {string} */ text) =>
      h("button", { "data-by": by, onclick: () => this.#choose(by) }, text);
    this.modes = h("p.order", "by ", mode("heads", "single heads"), mode("mean", "mean of the heads"));
    const side = h(
      "aside.side",
      h("section", h("h2", "It comes from ", this.source), this.sources),
      h("section", h("h2", "What this is"), this.how),
    );
    this.stage = h(
      "div",
      h("h2", "Strongest routes ", this.count),
      this.modes,
      this.svg,
      this.list,
      h("h2", "Cut this route ", h("span", "where the model is at hand, and see what changes")),
      this.proof,
    );
    this.el = h("div.columns.flow", side, h("div.main", this.missing, this.stage));
    /** @type {PromiseCache<LayerMean[]>} */
    this.known = new PromiseCache(2);
    /** @type {LayerMean[] | null} */
    this.means = null;
    this.of = "";
    /** @type {number[]} the layers that a route passes */
    this.layers = [];
    /** @type {{end: number, start: number, found: Route[], amounts: Float64Array, told: boolean} | null} */
    this.shown = null;
    this.picked = 0; // the route that is outlined
    /** @type {By} */
    this.by = "heads";
  }

  /** @param {By} by */
  #choose(by) {
    this.by = by;
    this.shown = null;
    this.app.redraw();
  }

  /** The layers that read the text of the chosen one, and why there is no flow. */
  #passed() {
    const { app } = this;
    const { layer } = app.store.state;
    const all = app.report.layers;
    const own = all[layer];
    if (own.grid) {
      const why =
        `Of a text of ${own.T} tokens this page holds the 8 largest weights of each word. Routes need all weights of ` +
        "all layers, so none are drawn. seen.rollout() in Python has no such limit.";
      return { layers: [], why };
    }
    if (own.across || own.T !== own.S)
      return {
        layers: [],
        why: `Words of ${own.name} look at another text: a route needs a text that looks at itself.`,
      };
    const layers = all.flatMap((one, i) =>
      !one.across && one.T === own.T && one.S === own.T && one.queries === own.queries && !one.grid ? [i] : [],
    );
    return { layers, why: "" };
  }

  /** Draw everything. */
  draw() {
    const { app } = this;
    const { report, words } = app.store.state;
    const { layers, why } = this.#passed();
    this.layers = layers;
    this.missing.hidden = !why;
    this.stage.hidden = Boolean(why);
    if (why) {
      this.means = null;
      fill(this.missing, h("p", why));
      fill(this.sources);
      this.el.dataset.ready = `${report}`;
      return;
    }
    const merge = words && app.rows.known && app.cols.known;
    const key = `${report}.${layers.join(",")}.${merge}`;
    if (this.of === key) return this.focus();
    Object.assign(this, { of: key, means: null, shown: null });
    const units = merge ? { rows: app.rows.unit, cols: app.cols.unit } : null;
    this.known
      .get(key, () => layerMeans(app.reports, report, layers, units))
      .then(
        (means) => {
          if (this.of !== key) return;
          this.means = means;
          if (app.view === this) app.redraw();
        },
        (error) => {
          this.of = "";
          this.missing.hidden = false;
          fill(this.missing, h("p", { role: "alert" }, error instanceof Error ? error.message : String(error)));
        },
      );
  }

  /** The word after the last layer: the one in focus. The word it comes from: the pinned key; -1 is not chosen. */
  #ends() {
    const { app, means } = this;
    if (!means) return { end: -1, start: -1 };
    const { side, unit, other } = app.shown;
    const size = means[0].mean.T;
    const pinned = /^(\d+)\./.exec(app.store.state.step);
    const key = pinned ? (app.cols.unit[Number(pinned[1])] ?? -1) : -1;
    if (side === "key") return { end: max(unit, size - 1), start: unit };
    const end = unit >= 0 && unit < size ? unit : size - 1;
    if (other >= 0) return { end, start: other };
    return { end, start: key };
  }

  #find() {
    const { means } = this;
    if (!means) return null;
    const ends = this.#ends();
    const known = this.shown;
    const isKnown = known?.end === ends.end && (ends.start < 0 ? known.told : known.start === ends.start);
    if (isKnown) return known;
    const amounts = sources(means, ends.end, this.by);
    const start = ends.start >= 0 ? ends.start : tellingStart(amounts, means, ends.end, this.by, worth(this.app.cols));
    this.picked = 0;
    const found = routes(means, start, ends.end, COUNT, this.by);
    this.shown = { end: ends.end, start, found, amounts, told: ends.start < 0 };
    return this.shown;
  }

  /** Show other words. */
  focus() {
    const { app, means } = this;
    const shown = this.#find();
    if (!shown || !means) return;
    const { names, large } = { names: app.rows, large: app.width >= LARGE };
    const { found, amounts } = shown;
    const font = large ? LABEL_FONT.replace("11px", "14px") : LABEL_FONT.replace("11px", "12px");
    const total = found.reduce((sum, one) => sum + one.share, 0);
    const isMean = this.by === "mean";
    fill(this.count, !found.length ? "none" : isMean ? `${found.length}, ${percent(total)} of the rollout` : "");
    fill(this.how, isMean ? BY_MEAN : BY_HEADS, h("br"), OF_BOTH);
    fill(this.source, isMean ? "rollout" : "strongest route");
    for (const button of this.modes.querySelectorAll("button"))
      button.setAttribute("aria-pressed", String(button.dataset.by === this.by));
    const by = (/** @type {number} */ i, /** @type {number} */ query, /** @type {number} */ key) =>
      `${this.layers[i]}.${means[i].by[query * means[i].mean.S + key]}`;
    drawRoutes(this.svg, {
      routes: found,
      names,
      layers: this.layers,
      width: max(260, this.stage.clientWidth || 800),
      font,
      chosen: this.picked,
      high: app.width < NARROW ? 30 : large ? 44 : 34,
      by,
    });
    this.svg.setAttribute("style", `font: ${font}`);
    this.svg.setAttribute("aria-label", found.map((one) => this.#spoken(one)).join("; ") || "no route");
    const pick = (/** @type {number} */ i) => () => {
      this.picked = i;
      this.focus();
    };
    const rows = found.map((one, i) =>
      h(
        "li",
        h(
          "button",
          { "aria-pressed": i === this.picked, onclick: pick(i), title: this.#spoken(one) },
          h("span.num", this.#size(one)),
          h("span", ...this.#written(one)),
        ),
      ),
    );
    const held = [...this.list.querySelectorAll("button")].indexOf(/** @type {any} */ (document.activeElement));
    fill(this.list, ...rows);
    this.list.querySelectorAll("button")[held]?.focus();
    this.#drawSources(amounts, shown.start);
    this.proof.textContent = found[this.picked] ? this.#cut(found[this.picked]) : "";
    if (app.chosen && found[0]) app.frame.say(this.#spoken(found[0]));
    this.el.dataset.ready = `${this.of}.${shown.start}.${shown.end}`;
  }

  /** @param {Float64Array} amounts @param {number} start */
  #drawSources(amounts, start) {
    const { app } = this;
    const choose = (/** @type {number} */ unit) => () => {
      const { side, unit: end } = app.shown;
      const focus = app.rows.first[side === "query" && end >= 0 ? end : app.rows.size - 1];
      app.store.set({ step: `${app.cols.first[unit]}.`, side: "query", focus, text: -1, pinned: true });
    };
    const rows = largest(amounts, SOURCES, 1e-4).map(({ index, value }) =>
      h(
        "li",
        h(
          "button",
          { "aria-pressed": index === start, onclick: choose(index) },
          h("b", app.cols.said(index)),
          h("span.num", small(value)),
        ),
      ),
    );
    fill(this.sources, ...rows);
  }

  /** The moves of a route: where it is at another word after a layer. @param {Route} route */
  #moves({ tokens }) {
    const { means } = this;
    return tokens.slice(1).flatMap((query, i) => {
      const key = tokens[i];
      if (query === key || !means) return [];
      const at = query * means[i].mean.S + key;
      return [{ layer: this.layers[i], query, key, head: means[i].by[at], weight: means[i].most[at] }];
    });
  }

  /** @param {Route} route @returns {(string | HTMLElement)[]} */
  #written(route) {
    const { rows } = this.app;
    const moves = this.#moves(route);
    if (!moves.length) return [h("b", rows.said(route.tokens[0])), " stays itself through all layers"];
    return [
      h("b", rows.said(route.tokens[0])),
      ...moves.flatMap(({ layer, query, head, weight }) => [
        " → ",
        h("b", rows.said(query)),
        h(
          "span.quiet",
          ` in layer ${layer}${this.by === "mean" ? ", most" : ""} by ${layer}.${head} (${number(weight)})`,
        ),
      ]),
    ];
  }

  /** @param {Route} route */
  #size({ share, strength }) {
    return this.by === "mean" ? percent(share) : small(strength);
  }

  /** @param {Route} route */
  #spoken(route) {
    const { rows } = this.app;
    const words = [route.tokens[0], ...this.#moves(route).map((one) => one.query)].map((unit) => rows.said(unit));
    return `${words.join(" → ")}, ${this.#size(route)}`;
  }

  /** Python that cuts a route: what it passes between words; nothing can be cut of what stays. @param {Route} route */
  #cut(route) {
    const { rows, cols } = this.app;
    const moves = this.#moves(route);
    if (!moves.length) return "# Nothing to cut: this route stays in the residual stream.";
    const cuts = moves.map(({ layer, head, query, key }) => {
      const pairs = tokensOf(rows, query).flatMap((q) => tokensOf(cols, key).map((k) => `(${q}, ${k})`));
      const where = this.by === "mean" ? `layers=${layer}` : `heads=(${layer}, ${head})`;
      return `regard.cut(model, ${where}, edges=[${pairs.join(", ")}])`;
    });
    return `with ${cuts.join(", \\\n     ")}:\n    after = model(ids)`;
  }

  /** @returns {import("../words/questions.js").Ask} */
  ask() {
    const { app } = this;
    const { why } = this.#passed();
    if (why) return { question: ["How does one word reach another?"], answer: ["That is not known of this page."] };
    const shown = this.#find();
    if (!shown) return { question: ["How does one word reach another?"], answer: [] };
    const question = [
      "How does ",
      chosen(app.cols, shown.start),
      " reach ",
      shown.start === shown.end ? "itself" : chosen(app.rows, shown.end),
      shown.start === shown.end ? " after the last layer?" : "?",
    ];
    const amount = shown.amounts[shown.start];
    if (!shown.found.length) return { question, answer: ["On no route: the mask hides it in every layer."] };
    const [first] = shown.found;
    const moves = this.#moves(first);
    if (!moves.length) return { question, answer: ["It stays itself, in the residual stream."] };
    if (this.by === "mean") {
      const way = moves.map(({ layer, head }) => `${layer}.${head}`).join(", ");
      const last = [", ", figure(percent(first.share)), quiet(" of it.")];
      return {
        question,
        answer: ["Rollout ", figure(small(amount)), "; the strongest route by ", figure(way), ...last],
      };
    }
    const steps = moves.flatMap(({ layer, head, query, weight }, i) => [
      i ? ", then to " : "To ",
      strong(app.rows.said(query)),
      " by ",
      figure(`${layer}.${head}`),
      ` (${number(weight)})`,
    ]);
    const product = moves.length > 1 ? [": ", figure(small(first.strength)), " in all."] : ["."];
    return { question, answer: [...steps, ...product] };
  }

  shade() {
    const shown = this.#find();
    if (!shown || !this.means) return { values: null, unit: -1 };
    // By heads nearly every word has some strong route; the mean says more.
    const amounts = this.by === "mean" ? shown.amounts : sources(this.means, shown.end, "mean");
    const side = /** @type {const} */ ("query");
    return { values: Float32Array.from(amounts, (one) => min(1, one)), unit: shown.end, side };
  }
}

/** @param {import("../words/names.js").Names} names @param {number} unit */
function tokensOf(names, unit) {
  return names.unit.flatMap((one, token) => (one === unit ? [token] : []));
}

/** @param {number} value */
function small(value) {
  return value.toFixed(value < 0.01 ? 4 : 2);
}

/** @param {number} share */
function percent(share) {
  const value = 100 * share;
  return `${value < 9.95 ? value.toFixed(1) : value.toFixed(0)}%`;
}
