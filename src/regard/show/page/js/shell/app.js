// The app: one state, one chosen head, and the views that show it.

import { LongHeads } from "../data/long-head.js";
import { min } from "../data/math.js";
import { embedded, Reports } from "../data/page-data.js";
import { preferredTheme, themeAround } from "../draw/color.js";
import { fill, h } from "../draw/dom.js";
import { atlas } from "../draw/head-pictures.js";
import { makeView, stays, VIEWS, viewFor } from "../views/list.js";
import { brokenRows } from "../words/broken.js";
import { Names } from "../words/names.js";
import { telling } from "../words/questions.js";
import { asked, beginning } from "./beginning.js";
import { Frame } from "./frame.js";
import { printWell } from "./paper.js";
import { pinIn, pinnedElsewhere, textOn } from "./pinned-word.js";
import { Player } from "./player.js";
import { copyLink, download, fileName, pngOf, rowFile, svgOf } from "./save-file.js";
import { pressKey } from "./shortcuts.js";
import { Store, toHash } from "./state.js";

/** @import { Page, Side, Transport, Weights } from "../data/page-data.js" */
/** @import { Theme } from "../draw/color.js" */
/** @import { View } from "../views/list.js" */
/** @import { State } from "./state.js" */
/**
 * Runs the model without a head, "4.3", or without an edge in it, "4.3:25-7": token 25 may not look at token 7. edges:
 * it can do the latter.
 * @typedef {{has: (cut: string) => boolean, toggle: (cut: string) => void, edges?: boolean}} Cutter
 */

/** What the browser's Back undoes. */
const PLACES = /** @type {const} */ (["view", "report", "other", "against", "layer", "head"]);
const HEIGHT = 760; // of the picture in a notebook, where the window's height means nothing

/** A page, or a widget in a notebook: everything inside one element. */
export class App {
  /**
   * @param {HTMLElement} root
   * @param {Page} page
   * @param {Transport} transport
   * @param {{address: boolean, state?: Partial<State>, above?: HTMLElement, cut?: Cutter}} options
   *   address: keep the state in the page's address; above: an element between the header and the question; cut: runs
   *   the model without a head
   */
  constructor(root, page, transport, options) {
    this.root = root;
    this.address = options.address;
    this.cut = options.cut;
    this.reports = new Reports(page, transport);
    this.longs = new LongHeads(this.reports);
    this.begins = beginning(page, options.state);
    this.store = new Store(asked(page, this.begins, this.address));
    /** The weights of the chosen head, by token or by word. @type {Weights | null} */
    this.weights = null;
    /**
     * The chosen head of a text that is too long for all weights.
     * @type {import("../data/long-head.js").LongHead | null}
     */
    this.long = null;
    this.rows = new Names(null, 0, false);
    this.cols = new Names(null, 0, false);
    /** @type {import("../draw/head-pictures.js").Atlas | null} */
    this.atlas = null;
    /** @type {Uint8Array | null} */
    this.strongest = null;
    this.drawnAtlas = "";
    this.opening = -1; // the word that the opening question is about
    /** What the pointer or the arrow keys are at. @type {{side: Side, unit: number, other: number}} */
    this.hover = { side: "query", unit: -1, other: -1 };
    /** @type {Theme} */
    this.theme = "light";
    this.width = 0;
    this.height = HEIGHT;
    this.request = {};
    this.follows = false; // is a state of the address taken over?
    this.aborter = new AbortController();
    root.classList.add("regard");
    const events = {
      point: (/** @type {number} */ unit, /** @type {Side} */ side = "query") => this.point(side, unit),
      pick: (/** @type {number} */ unit, /** @type {Side} */ side = "query") => this.pick(side, unit),
      leave: () => this.leave(),
      find: (/** @type {string} */ text) => this.find(text),
      save: (/** @type {import("./frame.js").Kind} */ kind) => this.save(kind),
      link: options.address ? copyLink : null,
    };
    this.frame = new Frame(root, page, this.store, VIEWS, events, options.above);
    this.player = new Player(this);
    /** Those that were shown. @type {Record<string, View>} */
    this.views = {};
    this.#chooseTheme();
    this.stop = this.store.listen((changed) => this.#update(changed));
    this.observer = new ResizeObserver(() => this.#resize());
    this.observer.observe(root);
    this.#listen();
    printWell(this, this.aborter.signal);
    this.#load();
  }

  /** The report that is shown. */
  get report() {
    return this.reports.page.reports[this.store.state.report];
  }

  /** The name of the view that is shown: the chosen one, or what shows one head of a text of this length. */
  get viewName() {
    const { view, layer } = this.store.state;
    return viewFor(view, this.report.layers[layer]);
  }

  /** The view that is shown. */
  get view() {
    const name = this.viewName;
    this.views[name] ??= makeView(name, this);
    return this.views[name];
  }

  /** Did the person choose the focus, by pointing or pinning? */
  get chosen() {
    return this.hover.unit >= 0 || this.pinned !== null;
  }

  /**
   * What is in focus: the pinned word, the one pointed at, or the one of the opening question.
   * @returns {{side: Side, unit: number, other: number}}
   */
  get shown() {
    const pin = this.pinned;
    if (!pin) return this.hover.unit >= 0 ? this.hover : { side: "query", unit: this.opening, other: -1 };
    const { side, unit } = pin;
    return { side, unit, other: this.hover.side === side && this.hover.unit === unit ? this.hover.other : -1 };
  }

  /** The pinned word, if this layer reads it. */
  get pinned() {
    return pinIn(this.store.state, this.report, this);
  }

  /** Pin a word. @param {Side} side @param {number} unit */
  pin(side, unit) {
    const focus = (side === "query" ? this.rows : this.cols).first[unit];
    this.store.set({ side, focus, text: textOn(this.store.state, this.report, side), pinned: true });
    if (!this.view.ownText) this.frame.reveal(side, unit);
  }

  /** The pointer is over a word or a cell. @param {Side} side @param {number} unit @param {number} [other] */
  point(side, unit, other = -1) {
    if (this.hover.side === side && this.hover.unit === unit && this.hover.other === other) return;
    this.hover = { side, unit, other };
    this.#focus();
  }

  /** The pointer has left. */
  leave() {
    if (this.hover.unit < 0) return;
    this.hover = { side: "query", unit: -1, other: -1 };
    this.#focus();
  }

  /** Pin a word; a pinned one is unpinned. @param {Side} side @param {number} unit */
  pick(side, unit) {
    const now = this.pinned;
    if (now?.side === side && now.unit === unit) this.store.set({ pinned: false, focus: -1, text: -1 });
    else this.pin(side, unit);
  }

  /** Choose a head. @param {number} layer @param {number} head @param {string} [view] */
  choose(layer, head, view = this.store.state.view) {
    this.store.set({ layer, head, view });
  }

  /**
   * Go to a head (4.3) or pin a word; the same word again goes to where it occurs next.
   * @param {string} text
   * @returns {{found: boolean, said: string}} said: what happened, where the view does not say it
   */
  find(text) {
    const head = /^(\d+)\.(\d+)$/.exec(text);
    if (head) {
      const [layer, number] = [Number(head[1]), Number(head[2])];
      if (!this.report.layers[layer]?.heads[number]) return { found: false, said: `There is no head ${text}.` };
      this.choose(layer, number);
      return { found: true, said: `head ${text}, ${this.report.layers[layer].heads[number].role}` };
    }
    for (const side of /** @type {Side[]} */ (["query", "key"])) {
      const matches = (side === "query" ? this.rows : this.cols).matching(text);
      if (!matches.length) continue;
      const now = this.pinned?.side === side ? this.pinned.unit : -1;
      this.pin(side, matches.find((one) => one > now) ?? matches[0]);
      return { found: true, said: "" }; // the view says where it looks
    }
    if (/^\/./.test(text)) return this.find(text.slice(1)); // the key of the field, pressed again inside it
    return { found: false, said: `There is no word ${text}.` };
  }

  /** The value of a CSS variable. @param {string} name */
  color(name) {
    return getComputedStyle(this.root).getPropertyValue(name).trim();
  }

  /** Draw the view again: something that it waited for is here. */
  redraw() {
    this.#drawView();
  }

  /** Save what is shown as a file. @param {import("./frame.js").Kind} kind */
  async save(kind) {
    const { layer, head } = this.store.state;
    const name = this.viewName === "heads" ? "" : `${layer}.${head}`;
    try {
      if (kind === "csv") return download(...rowFile(this));
      const { ask, reading, view } = this.frame;
      const svg = svgOf(kind === "figure" ? [this.view.figure?.() ?? view] : [ask.el, reading, view], {
        background: this.color("--paper"),
        title: [this.report.title, this.viewName, name].join(" ").trim(),
      });
      const blob = kind === "png" ? await pngOf(svg) : new Blob([svg], { type: "image/svg+xml" });
      download(blob, fileName([this.report.title, this.viewName, name], kind === "png" ? "png" : "svg"));
    } catch (error) {
      this.frame.tell(error instanceof Error ? error.message : String(error));
    }
  }

  /**
   * Other reports in place of these: what else is on the page stays.
   * @param {Page} page @param {Transport} transport
   */
  show(page, transport) {
    this.player.stop();
    this.#drop(stays);
    this.reports = new Reports(page, transport);
    this.longs = new LongHeads(this.reports);
    const hover = { side: /** @type {Side} */ ("query"), unit: -1, other: -1 };
    Object.assign(this, { weights: null, long: null, atlas: null, strongest: null, drawnAtlas: "", hover });
    this.begins = beginning(page);
    this.store.state = asked(page, this.begins, this.address);
    this.frame.offer(page);
    delete this.root.dataset.ready;
    this.#load();
  }

  /** Take the page down. */
  destroy() {
    this.stop();
    this.player.stop();
    this.observer.disconnect();
    this.aborter.abort();
    this.#drop();
    fill(this.root);
    delete this.root.dataset.ready;
  }

  /** Give pixels back now, not when garbage is collected. @param {(view: string) => boolean} [isKept] */
  #drop(isKept = () => false) {
    for (const name of Object.keys(this.views).filter((one) => !isKept(one))) {
      for (const canvas of this.views[name].el.querySelectorAll("canvas")) canvas.width = 0;
      delete this.views[name];
    }
    if (this.atlas) this.atlas.image.width = 0;
  }

  #listen() {
    const { signal } = this.aborter;
    this.root.addEventListener("keydown", (event) => pressKey(this, event), { signal });
    if (!this.address) return;
    document.addEventListener("keydown", (event) => event.target === document.body && pressKey(this, event), {
      signal,
    });
    const follow = () => {
      const { layer, head } = this.begins;
      this.follows = true;
      this.store.set(asked(this.reports.page, location.hash ? { layer, head } : this.begins, true));
      this.follows = false;
    };
    addEventListener("hashchange", follow, { signal });
  }

  #chooseTheme() {
    const { theme } = this.store.state;
    const { root } = this;
    this.theme = theme || (this.address ? preferredTheme() : themeAround(root.parentElement ?? root));
    root.dataset.theme = this.theme;
    if (this.address) document.documentElement.dataset.theme = this.theme;
  }

  /** Load what the chosen head needs, and draw it as it arrives. */
  async #load() {
    const { report, layer, head } = this.store.state;
    const request = {};
    this.request = request;
    const info = this.report.layers[layer];
    const words = this.store.state.words && !info.grid;
    Object.assign(this, Names.of(this.report, info, words));
    this.#drawFrame();
    try {
      if (!info.T || !info.S) return this.#drawEmpty();
      if (info.grid) {
        const long = await this.longs.get(report, layer, head);
        if (request !== this.request) return;
        Object.assign(this, { long, weights: null, opening: telling(long, this.rows, this.cols) });
      } else {
        const exact = await this.reports.weights(report, layer, head);
        if (request !== this.request) return;
        this.weights =
          words && this.rows.known && this.cols.known ? exact.merged(this.rows.unit, this.cols.unit) : exact;
        this.long = null;
        this.opening = telling(this.weights, this.rows, this.cols);
      }
      // the first word whose weights are no numbers is what a reader has to know
      const broken = brokenRows(info, head, this.rows);
      if (broken.size) this.opening = min(...broken);
      this.#drawView();
      const drawn = `${report} ${this.theme}`;
      if (this.drawnAtlas !== drawn) {
        const both = [atlas(this.reports, report, this.theme), this.reports.transport(`strongest.${report}`)];
        const [image, strongest] = /** @type {[import("../draw/head-pictures.js").Atlas, Uint8Array]} */ (
          await Promise.all(both)
        );
        if (request !== this.request) return;
        Object.assign(this, { atlas: image, strongest, drawnAtlas: drawn });
        this.#drawView();
      }
      this.root.dataset.ready = `${layer}.${head}`;
    } catch (error) {
      if (request !== this.request) return;
      const text = error instanceof Error ? error.message : String(error);
      fill(this.frame.view, h("p.error", { role: "alert" }, text));
    }
  }

  /** A text without tokens: there is nothing to look at. */
  #drawEmpty() {
    Object.assign(this, { weights: null, long: null });
    this.frame.ask.show({ question: ["This text has no tokens."], answer: [] });
    fill(this.frame.view);
    this.root.dataset.ready = "empty";
  }

  #drawFrame() {
    const { state } = this.store;
    this.frame.draw(this.report, { ...state, view: this.viewName }, this, this.theme);
  }

  #drawView() {
    if (!this.rows.size || !this.cols.size) return;
    const { view } = this.frame;
    if (view.firstChild !== this.view.el) fill(view, this.view.el);
    this.root.dataset.view = this.viewName;
    this.frame.reading.hidden = Boolean(this.view.ownText) || !(this.rows.known || this.cols.known);
    this.width = this.root.clientWidth;
    this.height = this.address ? innerHeight : HEIGHT;
    this.view.draw();
    this.#focus();
    const { side = "query", unit } = this.view.shade();
    if (!this.view.ownText && unit >= 0) this.frame.reveal(side, unit);
  }

  /** The focus has changed: only what shows it is drawn again. */
  #focus() {
    if (!this.weights && !this.long) return;
    this.view.focus();
    const { state } = this.store;
    if (!this.view.ownText) this.frame.shade(this.view.shade(), this.pinned !== null, this.theme);
    const { question, answer } = this.view.ask();
    const isElsewhere = state.pinned && !this.pinned && this.viewName !== "heads";
    const more = isElsewhere ? [pinnedElsewhere(state, this.report)] : [];
    this.frame.ask.show({ question, answer: [...answer, ...more] });
  }

  /** @param {Set<keyof State>} changed */
  #update(changed) {
    const some = (/** @type {(keyof State)[]} */ ...names) => names.some((name) => changed.has(name));
    if (changed.has("theme")) this.#chooseTheme();
    if (changed.has("words")) this.hover = { side: "query", unit: -1, other: -1 };
    if (some("report", "layer", "head", "words", "theme")) this.#load();
    else if (some("view", "role", "sort", "step", "other", "against")) {
      this.#drawFrame();
      this.#drawView();
    } else this.#focus();
    if (!this.address || this.follows) return;
    const hash = `#${toHash(this.store.state)}`;
    if (some(...PLACES)) history.pushState(null, "", hash);
    else history.replaceState(null, "", hash);
  }

  #resize() {
    if (this.root.clientWidth !== this.width && (this.weights || this.long)) this.#drawView();
  }
}

/** Start the page: its data are in the document. */
export function startPage() {
  const root = /** @type {HTMLElement} */ (document.getElementById("regard"));
  const text = document.getElementById("regard-document")?.textContent ?? "";
  return new App(root, JSON.parse(text), embedded(document), { address: true });
}
