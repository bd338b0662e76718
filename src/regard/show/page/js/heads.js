// @ts-check
// All heads: a small map of each with its role, to find the one that does something.

import { askHeads, chosen } from "./ask.js";
import { css, signedColor } from "./color.js";
import { attributes, fill, finish, h, isPlain, sizedContext, styles } from "./dom.js";
import { abs, ceil, floor, max, min } from "./numbers.js";
import { drawPicture } from "./pictures.js";
import { roleMark, Strips } from "./side.js";
import { number, visible } from "./words.js";

/** @typedef {import("./app.js").App} App */

const BAR = 4; // pixels of the bar beside a head that is coloured by its effect
const SMALL = 12; // heads in a layer from which maps are small and captions short

/** The view of all heads. */
export class HeadsView {
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
    this.el = h("div.columns", side, h("div.main", h("div.heads-stage", this.canvas, this.cells)));
    this.cells.addEventListener("keydown", (event) => this.#key(event));
    /** @type {{layer: number, head: number, el: HTMLElement, to: HTMLElement, x: number, y: number}[]} */
    this.list = [];
  }

  /** The heads in the order of the view. */
  sorted() {
    const { report, store } = this.app;
    const all = report.layers.flatMap((layer, l) => layer.heads.map((info, i) => ({ layer: l, head: i, info })));
    const { sort } = store.state;
    if (sort === "layer") return all;
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
    const small = most >= SMALL;
    const width = max(280, this.cells.parentElement?.clientWidth || 900);
    const columns = max(2, min(most, floor(width / (small ? 84 : 96))));
    const step = floor(width / columns);
    const size = min(small ? 72 : app.width >= 2000 ? 160 : 100, step - 10);
    const below = this.#triangular() ? 0 : 34;
    const down = size + below + (small ? 10 : 15);
    const wraps = columns < most || sort !== "layer";
    const heads = this.sorted();
    this.list = heads.map(({ layer, head, info }, i) => {
      const [column, row] = wraps ? [i % columns, floor(i / columns)] : [head, layer];
      const to = h("span.to");
      const caption = h(
        "span.caption",
        h("span.num.id", `${layer}.${head}`),
        h("span", { class: small ? "for-readers" : info.clear ? "name" : "name dull" }, shortRole(info.role)),
        small ? null : roleMark(info.role),
        to,
      );
      const chosen = layer === app.store.state.layer && head === app.store.state.head;
      const el = h(
        "button.one",
        {
          role: "option",
          "aria-selected": chosen,
          title: small ? `${layer}.${head} ${info.role}` : null,
          tabindex: chosen ? 0 : -1,
          style: {
            left: column * step,
            top: row * down,
            width: size,
            height: size + below,
            paddingTop: below ? size + 2 : "0",
          },
          onclick: () => app.choose(layer, head, "head"),
          onpointerenter: () => this.strips.choose(layer, head, app.store.state.sort),
        },
        caption,
      );
      return { layer, head, el, to, x: column * step, y: row * down };
    });
    const rows = wraps ? ceil(heads.length / columns) : report.layers.length;
    const height = rows * down + 10;
    this.size = size;
    fill(this.cells, ...this.list.map((one) => one.el));
    styles(this.cells, { height: height });
    const context = sizedContext(this.canvas, width, height);
    context.clearRect(0, 0, width, height);
    context.imageSmoothingEnabled = false;
    if (app.atlas)
      for (const one of this.list) {
        const info = report.layers[one.layer].heads[one.head];
        context.globalAlpha = role && info.role !== role ? 0.15 : 1;
        drawPicture(context, app.atlas, `${one.layer}.${one.head}`, one.x, one.y, size);
      }
    context.globalAlpha = 1;
    if (sort === "effect") this.#bars(context, size);
    for (const one of this.list) {
      const info = report.layers[one.layer].heads[one.head];
      attributes(one.el, { "data-dim": Boolean(role) && info.role !== role });
    }
    this.focus();
  }

  /**
   * A bar beside each head, coloured by its effect.
   * @param {CanvasRenderingContext2D} context
   * @param {number} size of a map
   */
  #bars(context, size) {
    const { report, theme } = this.app;
    const effect = (/** @type {{layer: number, head: number}} */ one) =>
      report.layers[one.layer].heads[one.head].means.effect ?? 0;
    const most = max(1e-9, ...this.list.map((one) => abs(effect(one))));
    for (const one of this.list) {
      context.fillStyle = css(signedColor(effect(one) / most, theme));
      context.fillRect(one.x + size + 1, one.y, BAR, size);
    }
  }

  /** Where the word in focus looks, in the caption of each head. */
  focus() {
    const query = this.#query();
    for (const one of this.list) {
      const best = query >= 0 ? this.#strongest(one.layer, one.head, query) : null;
      attributes(one.to, {
        text: best ? `${best.name} ${number(best.weight)}` : "",
        "data-strength": best ? (best.weight >= 0.5 ? "strong" : best.weight < 0.2 ? "weak" : "") : null,
      });
      attributes(one.el, { "data-asked": query >= 0 });
    }
  }

  ask() {
    const { app } = this;
    const query = this.#query();
    if (query < 0) return askHeads(app.report, [], null);
    const found = app.report.order.flatMap(([layer, head]) => {
      const best = this.#strongest(layer, head, query);
      return best ? [{ place: `${layer}.${head}`, ...best }] : [];
    });
    found.sort((a, b) => b.weight - a.weight);
    const unit = app.rows.unit[query];
    return askHeads(app.report, found, chosen(app.rows, unit));
  }

  shade() {
    const query = this.#query();
    return { values: null, unit: query < 0 ? -1 : this.app.rows.unit[query] };
  }

  /** The token whose strongest keys are shown; -1 unless the person chose one. */
  #query() {
    const { side, unit } = this.app.shown;
    return this.app.chosen && side === "query" && unit >= 0 ? this.app.rows.first[unit] : -1;
  }

  /**
   * The key that a token looks at most.
   * @param {number} layer
   * @param {number} head
   * @param {number} query
   */
  #strongest(layer, head, query) {
    const { report, strongest } = this.app;
    const { layers } = report;
    if (!strongest || query >= layers[layer].T) return null;
    const before = layers.slice(0, layer).reduce((sum, one) => sum + one.T * one.heads.length, 0);
    const at = (before + head * layers[layer].T + query) * 4;
    const key = strongest[at] + strongest[at + 1] * 256;
    if (key === 65535) return null;
    const { keys } = layers[layer];
    const name = keys === null ? String(key) : visible(report.sequences[keys].pieces[key] ?? String(key));
    return { name, weight: (strongest[at + 2] + strongest[at + 3] * 256) / 65535 };
  }

  #triangular() {
    return this.app.report.layers.every((layer) => layer.encoding?.triangle);
  }

  #drawRoles() {
    const { report, store, reports } = this.app;
    const chosen = store.state.role;
    const items = reports.page.roles.flatMap(({ name }) => {
      const heads = report.order.filter(([l, i]) => report.layers[l].heads[i].role === name);
      if (!heads.length) return [];
      const listed = heads.length <= 3 ? heads.map(([l, i]) => `${l}.${i}`).join(" ") : String(heads.length);
      const button = h(
        "button",
        {
          "aria-pressed": chosen === name,
          onclick: () => store.set({ role: chosen === name ? "" : name }),
        },
        roleMark(name),
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

/** @param {string} role */
function shortRole(role) {
  return role.replace(" token", "");
}
