// All heads: a small map of each with its role, to find the one that does something.

import { abs, ceil, floor, max, min } from "../data/math.js";
import { css, signedColor, weightColor } from "../draw/color.js";
import { attributes, fill, finish, h, isPlain, sizedContext, styles } from "../draw/dom.js";
import { byLayer, columnsFor, inOrder, markNotes, sharedText, sharing } from "../draw/head-grid.js";
import { isSquare, roleMark } from "../draw/head-picker.js";
import { drawPicture } from "../draw/head-pictures.js";
import { Strips } from "../draw/statistic-strips.js";
import { isolated, Names, number } from "../words/names.js";
import { askHeads, chosen } from "../words/questions.js";

/** @import { HeadInfo, Report } from "../data/page-data.js" */
/** @import { Theme } from "../draw/color.js" */
/** @import { App } from "../shell/app.js" */

const BAR = 4; // pixels of the bar above a head that is coloured by the statistic
const LEFT = 22; // pixels for the numbers of layers
const LEAST = 26; // pixels of a column of heads
const NAMED = 84; // pixels of a head from which its role is written
const INDEXED = 96; // pixels of a head from which repeated words have their position
const TINY = 56; // pixels of a head up to which nothing is written on it
const SMALL = 12; // heads in a layer from which maps are small and captions short

/** @type {import("./list.js").ListedView} */
export const headsView = { name: "heads", label: "Heads", make: (app) => new HeadsView(app) };

/** The view of all heads. */
class HeadsView {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.roles = h("ul.roles");
    this.strips = new Strips("Statistics", (name) =>
      app.store.set({ sort: app.store.state.sort === name ? "layer" : name }),
    );
    this.order = h("p.order");
    const side = h(
      "aside.side",
      h("section", h("h2", "Roles ", h("span", "click to filter")), this.roles),
      this.strips.el,
      this.order,
    );
    this.canvas = /** @type {HTMLCanvasElement} */ (h("canvas", { "aria-hidden": true }));
    this.cells = h("div.heads", { role: "listbox", "aria-label": "heads" });
    this.titles = h("div.head-titles");
    this.marks = h("div.marks");
    const stage = h("div.heads-stage", this.canvas, this.titles, this.cells);
    this.el = h("div.columns", side, h("div.main", stage, this.marks));
    this.cells.addEventListener("keydown", (event) => this.#key(event));
    /** The names of the tokens of each text, or of so many positions. @type {Map<object | number, string[]>} */
    this.names = new Map();
    this.size = 0; // pixels of a head
    /** @type {{layer: number, head: number, el: HTMLElement, to: HTMLElement, x: number, y: number}[]} */
    this.list = [];
  }

  /** The heads by a statistic, largest first. */
  sorted() {
    const { report, store } = this.app;
    const all = report.layers.flatMap((layer, l) => layer.heads.map((info, i) => ({ layer: l, head: i, info })));
    const { sort } = store.state;
    const value = (/** @type {typeof all[0]} */ one) => one.info.means[sort] ?? -Infinity;
    return all.sort((a, b) => value(b) - value(a));
  }

  draw() {
    const { app } = this;
    const { report } = app;
    const { sort, role, layer, head } = app.store.state;
    this.strips.draw(report, app.reports.page.statistics);
    this.strips.choose(layer, head, sort);
    this.#drawRoles();
    this.#drawOrder();
    const most = max(1, ...report.layers.map((one) => one.heads.length));
    const left = sort === "layer" ? LEFT : 0;
    const width = max(280, this.cells.parentElement?.clientWidth || 900) - left;
    // A row is a layer at every width, while its heads are large enough to be told apart.
    const columns =
      sort === "layer" && width / most >= LEAST ? most : columnsFor(report, width, most >= SMALL ? 84 : 96);
    const step = floor(width / columns);
    const gap = step < 60 ? 4 : 10;
    const size = min(most >= SMALL ? 72 : app.width >= 2000 ? 160 : 100, step - gap);
    const small = most >= SMALL || size < NAMED;
    const tiny = size < TINY; // rows and columns have numbers then, and pictures none
    const below = this.#triangular() || tiny ? 0 : sort === "layer" ? 18 : 34;
    const sizes = { columns, step, down: size + below + (tiny ? 4 : small ? 10 : 15) };
    const at = sort === "layer" ? byLayer(report, sizes) : inOrder(this.sorted(), sizes);
    const { titles, height } = at;
    const places = at.places.map((one) => ({ ...one, x: one.x + left }));
    const value = (/** @type {HeadInfo} */ info) => info.means[sort] ?? null;
    const signed = app.reports.page.statistics.some((one) => one.name === sort && one.signed);
    const shade = shadesOf(report, sort, signed, app.theme);
    this.list = places.map(({ layer, head, x, y }) => {
      const info = report.layers[layer].heads[head];
      const shared = sharing(report.layers[layer]);
      const marks = report.layers[layer].marks ?? [];
      const first = head - (head % shared);
      const to = h("span.to");
      const caption = h(
        "span.caption",
        { style: below ? { top: size + 1, height: below } : {} },
        h("span.num.id", `${layer}.${head}${marks.length ? "*" : ""}`),
        h(
          "span",
          { class: small ? "for-readers" : info.clear ? "name" : "name dull" },
          app.reports.role(info.role).short,
        ),
        small || sort !== "layer" ? null : roleMark(app.reports.role(info.role), isSquare(report)),
        sort === "layer" || small ? null : h("span.num.value", value(info) === null ? "–" : number(value(info) ?? 0)),
        to,
      );
      const chosen = layer === app.store.state.layer && head === app.store.state.head;
      const el = h(
        "button.one",
        {
          role: "option",
          "aria-selected": chosen,
          title:
            [small ? `${layer}.${head} ${info.role}` : "", shared > 1 ? sharedText(first, shared) : "", ...marks]
              .filter(Boolean)
              .join("; ") || null,
          "data-below": below > 0,
          "data-tiny": tiny,
          tabindex: chosen ? 0 : -1,
          style: { left: x, top: y, width: size, height: size + below },
          onclick: () => app.choose(layer, head, ""),
          onpointerenter: () => this.strips.choose(layer, head, app.store.state.sort),
        },
        caption,
      );
      return { layer, head, el, to, x, y };
    });
    if (size !== this.size) this.names.clear();
    this.size = size;
    fill(this.cells, ...this.list.map((one) => one.el));
    fill(
      this.titles,
      ...titles.map(({ text, x, y, width, kind }) =>
        h("p", { class: kind, title: text, style: { left: x + left, top: y, width } }, h("span", text)),
      ),
      ...(left ? places : [])
        .filter(({ x, head }) => x === left && head === 0)
        .map(({ layer, y }) => h("p.num.row-number", { style: { left: 0, top: y + size / 2 - 8 } }, String(layer))),
    );
    fill(this.marks, ...markNotes(report).map((note) => h("p.note", note)));
    styles(this.cells, { height: height + 10 });
    const context = sizedContext(this.canvas, width + left, height + 10);
    context.clearRect(0, 0, width + left, height + 10);
    if (app.atlas)
      for (const one of this.list) {
        const info = report.layers[one.layer].heads[one.head];
        context.globalAlpha = role && info.role !== role ? 0.15 : 1;
        drawPicture(context, app.atlas, `${one.layer}.${one.head}`, one.x, one.y, size);
        const mean = value(info);
        if (mean === null) continue;
        context.fillStyle = css(shade(mean));
        context.fillRect(one.x, one.y - BAR - 1, size, BAR);
      }
    context.globalAlpha = 1;
    for (const one of this.list) {
      const info = report.layers[one.layer].heads[one.head];
      attributes(one.el, { "data-dim": Boolean(role) && info.role !== role });
    }
    this.focus();
  }

  /** Where the word in focus looks, in the caption of each head. */
  focus() {
    const word = this.#word();
    for (const one of this.list) {
      const best = word && this.#strongest(one.layer, one.head, word);
      const text = best ? `${isolated(best.name)} ${number(best.weight)}` : word ? "–" : "";
      if (one.to.textContent !== text)
        fill(one.to, ...(best ? [h("span.word", isolated(best.name)), ` ${number(best.weight)}`] : [text]));
      attributes(one.to, {
        "data-strength": best ? (best.weight >= 0.5 ? "strong" : best.weight < 0.2 ? "weak" : "") : null,
      });
      attributes(one.el, { "data-asked": Boolean(word), "data-looks": best ? ceil(best.weight * 4) : word ? 0 : null });
    }
  }

  ask() {
    const { app } = this;
    const word = this.#word();
    if (!word) return askHeads(app.report, [], null, app.store.state.role);
    const found = app.report.order.flatMap(([layer, head]) => {
      const best = this.#strongest(layer, head, word);
      return best ? [{ place: `${layer}.${head}`, ...best }] : [];
    });
    found.sort((a, b) => b.weight - a.weight);
    return askHeads(app.report, found, chosen(word.names, word.names.unit[word.token]));
  }

  figure() {
    return /** @type {Element} */ (this.cells.parentElement);
  }

  shade() {
    const { shown, chosen } = this.app;
    return { values: null, unit: chosen ? shown.unit : -1, side: shown.side };
  }

  /**
   * The token whose strongest keys are shown, and the text that it is of; null unless the person chose one. A word that
   * is looked at in the chosen layer may look in others.
   */
  #word() {
    const { app } = this;
    const { state } = app.store;
    const pinned = state.pinned && !app.pinned ? app.report.sequences[state.text] : undefined; // by another layer
    if (pinned && app.hover.unit < 0)
      return { text: state.text, token: state.focus, names: new Names(pinned, pinned.pieces.length, false) };
    const { side, unit } = app.shown;
    if (!app.chosen || unit < 0) return null;
    const { queries, keys } = app.report.layers[state.layer];
    const [text, names] = side === "query" ? [queries, app.rows] : [keys, app.cols];
    return side === "key" && (text === null || text === queries) ? null : { text, token: names.first[unit], names };
  }

  /**
   * The key that a token looks at most.
   * @param {number} layer @param {number} head @param {{text: number | null, token: number}} word
   */
  #strongest(layer, head, { text, token }) {
    const { report, strongest } = this.app;
    const { layers } = report;
    if (!strongest || token >= layers[layer].T || layers[layer].queries !== text) return null;
    const before = layers.slice(0, layer).reduce((sum, one) => sum + one.T * one.heads.length, 0);
    const at = (before + head * layers[layer].T + token) * 4;
    const key = strongest[at] + strongest[at + 1] * 256;
    if (key === 65535) return null;
    return { name: this.#keyNames(layer)[key], weight: (strongest[at + 2] + strongest[at + 3] * 256) / 65535 };
  }

  /** How the keys of a layer are shown. @param {number} layer @returns {string[]} */
  #keyNames(layer) {
    const { report } = this.app;
    const { keys, S } = report.layers[layer];
    const sequence = keys === null ? null : report.sequences[keys];
    const known = this.names.get(sequence ?? S);
    if (known) return known;
    const all = new Names(sequence, S, false);
    const names = all.names.map((name, key) =>
      this.size >= INDEXED ? all.label(key).replace(/^position /, "") : name,
    );
    this.names.set(sequence ?? S, names);
    return names;
  }

  #triangular() {
    return this.app.report.layers.every((layer) => layer.encoding?.triangle);
  }

  #drawRoles() {
    const { report, store, reports } = this.app;
    const chosen = store.state.role;
    const items = reports.page.roles.flatMap((one) => {
      const { name } = one;
      const heads = report.order.filter(([l, i]) => report.layers[l].heads[i].role === name);
      if (!heads.length) return [];
      const listed = heads.length <= 3 ? heads.map(([l, i]) => `${l}.${i}`).join(" ") : String(heads.length);
      const button = h(
        "button",
        {
          "aria-pressed": chosen === name,
          onclick: () => store.set({ role: chosen === name ? "" : name }),
        },
        roleMark(one, isSquare(report)),
        h("span", name),
        h("span.num", listed),
      );
      return [h("li", button)];
    });
    fill(this.roles, ...items);
  }

  #drawOrder() {
    const { sort } = this.app.store.state;
    const label = this.app.reports.page.statistics.find((one) => one.name === sort)?.label ?? "";
    const choice = (/** @type {string} */ text, /** @type {string} */ value) =>
      h("button", { "aria-pressed": sort === value, onclick: () => this.app.store.set({ sort: value }) }, text);
    fill(this.order, "order ", choice("by layer", "layer"), ...(label ? [choice(`by ${label}`, sort)] : []));
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const at = this.list.findIndex((one) => one.el === event.target);
    if (at < 0 || !isPlain(event)) return;
    const here = this.list[at];
    const nearest = (/** @type {number} */ dx, /** @type {number} */ dy) => {
      const ahead = this.list.filter((one) =>
        dx
          ? one.y === here.y && Math.sign(one.x - here.x) === dx
          : one.x === here.x && Math.sign(one.y - here.y) === dy,
      );
      return ahead.sort((a, b) => abs(a.x - here.x) + abs(a.y - here.y) - abs(b.x - here.x) - abs(b.y - here.y))[0];
    };
    /** @type {Record<string, () => typeof here | undefined>} */
    const moves = {
      ArrowLeft: () => nearest(-1, 0),
      ArrowRight: () => nearest(1, 0),
      ArrowUp: () => nearest(0, -1),
      ArrowDown: () => nearest(0, 1),
      Home: () => this.list[0],
      End: () => this.list.at(-1),
    };
    const to = moves[event.key]?.();
    if (!to) return;
    finish(event);
    here.el.tabIndex = -1;
    to.el.tabIndex = 0;
    to.el.focus();
  }
}

/**
 * The colour of the bar above a head: how far its mean is between the smallest and the largest of all heads. Where
 * means have a sign, 0 is in the middle.
 * @param {Report} report @param {string} statistic @param {boolean} signed @param {Theme} theme
 */
function shadesOf(report, statistic, signed, theme) {
  const means = report.layers.flatMap((layer) => layer.heads.flatMap(({ means }) => means[statistic] ?? []));
  const [low, high] = [min(...means), max(...means)];
  const most = max(abs(low), abs(high)) || 1;
  return (/** @type {number} */ mean) =>
    signed ? signedColor(mean / most, theme) : weightColor(high > low ? (mean - low) / (high - low) : 0.5, theme);
}
