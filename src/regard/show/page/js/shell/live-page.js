// The page that runs its model: a field for a text, what comes next, cuts, and below them the page of that text.
//
// This bar is beside the app, which shows other reports for each text.

import { LiveModel } from "../data/live-model.js";
import { preferredTheme } from "../draw/color.js";
import { attributes, h, styles } from "../draw/dom.js";
import { atlas } from "../draw/head-pictures.js";
import { fromSearch, toSearch } from "../live/address.js";
import { CutBoard } from "../live/cut-board.js";
import { cutOf, nameOf, toggled, within } from "../live/cuts.js";
import { NextTokens } from "../live/next-tokens.js";
import { Tour } from "../live/tour.js";
import { Writer } from "../live/writer.js";
import { WritingBoard } from "../live/writing-board.js";
import { Names, visible } from "../words/names.js";
import { App } from "./app.js";
import { toHash } from "./state.js";

/** @import { Live, LiveReport } from "../data/live-model.js" */
/** @import { Page, Transport } from "../data/page-data.js" */
/** @import { Written } from "../model/live-reader.js" */
/** @import { Place } from "../live/address.js" */
/**
 * models: the name of the model; text: what the page begins with; longest: characters that it reads at most.
 * @typedef {{models: string[], text: string, longest: number, examples: [string, string][]}} Settings
 * @typedef {"push" | "replace" | "keep"} History what becomes of the address
 */

const REMEMBERED = 64; // texts whose tokens are kept: they were written, and may be read otherwise

export class LivePage {
  /** @param {HTMLElement} root of the app @param {Settings} settings @param {number[]} heads of each layer */
  constructor(root, settings, heads) {
    this.root = root;
    this.settings = settings;
    this.heads = heads;
    /** @type {LiveModel | null} */
    this.model = null;
    /** @type {App | null} */
    this.app = null;
    /** @type {LiveReport | null} */
    this.report = null;
    this.names = new Names(null, 0, false); // of its tokens
    /** @type {Place} */
    this.place = fromSearch(location.search, settings.text, heads);
    /** Tokens of texts that were written. @type {Map<string, number[]>} */
    this.written = new Map();
    this.typing = false; // is the newest address that of a typed text? Then the next one takes its place
    this.isWriting = false;
    this.isStopped = false; // was writing ended by hand?
    this.request = {};
    this.next = new NextTokens({
      take: (id) => this.#goTo([...this.ids, id]),
      end: (tokens) => this.#goTo(this.ids.slice(0, tokens)),
    });
    this.board = new WritingBoard();
    this.writer = new Writer({
      write: (temperature, count, pause) => this.write(temperature, count, pause),
      stop: () => {
        if (!this.isWriting) return; // it has ended by itself; what it wrote is being read, and must not be lost
        this.isStopped = true;
        this.model?.stop();
      },
      back: () => this.#goTo(this.ids.slice(0, -1)),
      branch: () => this.#goTo(this.ids.slice(0, (this.app?.store.state.focus ?? 0) + 1)),
    });
    this.cutting = new CutBoard({
      toggle: (cut) => this.cut(toggled(this.place.cuts, cut)),
      clear: () => this.cut([]),
    });
    this.tour = new Tour(this);
    this.box = /** @type {HTMLTextAreaElement} */ (
      h("textarea", { rows: 1, placeholder: "Type a sentence.", "aria-label": "text", spellcheck: "false" })
    );
    this.said = h("p", { role: "alert" });
    this.bar = this.#build();
    root.before(this.bar);
    root.replaceChildren(); // what a file says until its script runs
    root.classList.add("regard");
    this.#paint(preferredTheme());
    this.#listen();
  }

  #build() {
    const example = (/** @type {[string, string]} */ [name, text]) =>
      h("button", { title: text, onclick: () => this.see({ text, cuts: [] }, "push") }, name);
    const { writer, cutting, tour, next, board } = this;
    const examples = h("span.examples", h("span.quiet", "try "), ...this.settings.examples.map(example), tour.again);
    return h(
      "section.regard.live",
      { "aria-label": "your text" },
      h(
        "div.asks",
        h("div.own", this.box, this.said),
        next.el,
        h("div.live-tools", writer.el, cutting.opens, cutting.list, examples),
      ),
      cutting.heads,
      tour.el,
      board.el,
    );
  }

  #listen() {
    const { box } = this;
    box.value = this.place.text;
    box.addEventListener("keydown", (event) => {
      event.stopPropagation(); // keys of the page are letters here
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.typing = false;
    });
    box.addEventListener("input", (event) => {
      if (!(/** @type {InputEvent} */ (event).isComposing)) this.#type();
    });
    box.addEventListener("compositionend", () => this.#type());
    addEventListener("popstate", () => {
      const place = fromSearch(location.search, this.settings.text, this.heads);
      if (JSON.stringify(place) !== JSON.stringify(this.place)) this.see(place, "keep");
    });
  }

  /** The tokens of the text that is shown. */
  get ids() {
    return this.report?.ids ?? [];
  }

  /** Unpack the model, and show the first text. @param {Live} live */
  async start(live) {
    this.#say("Unpacking the model…");
    this.model = await LiveModel.start(document, live);
    await this.see(this.place, "keep");
    this.tour.begin();
  }

  /** Show what the model does. @param {Place} place @param {History} history */
  see({ text, cuts }, history) {
    return this.#show({ text, ids: this.written.get(text) }, cuts, history);
  }

  /** Cut these and nothing else. @param {string[]} cuts */
  cut(cuts) {
    return this.see({ ...this.place, cuts }, "push");
  }

  /** Show other tokens, which the model or a click has written. @param {number[]} ids */
  #goTo(ids) {
    return this.#show({ text: "", ids }, this.place.cuts, "push");
  }

  #type() {
    const cuts = this.place.cuts.filter((cut) => !cut.includes(":")); // an edge is between tokens of the text before
    const history = this.typing ? "replace" : "push";
    return this.see({ text: this.box.value, cuts }, history).then((isShown) => {
      if (isShown) this.typing = true;
    });
  }

  /**
   * Let the model write on; with something cut, the model without it.
   * @param {number} temperature @param {number} count @param {number} pause milliseconds after a token
   */
  async write(temperature, count, pause) {
    const { model, report, app } = this;
    if (!model || !report || !app) return;
    const ids = [...report.ids];
    const { cuts } = this.place;
    this.isStopped = false;
    this.#busy(true);
    const look = { theme: app.theme, ink: app.color("--ink3"), height: innerHeight - this.bar.offsetHeight - 40 };
    this.board.begin(this.heads, ids.length + count, look, (layer, head) => {
      const bytes = report.blocks.get(`weights.${cuts.length ? 1 : 0}.${layer}.${head}`) ?? new Uint8Array();
      return new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);
    });
    /** Written, and not drawn yet. @type {Written[]} */
    let fresh = [];
    const draw = () => {
      for (const { rows, text } of fresh) this.board.add(rows, visible(text.slice(-12)));
      this.box.value = fresh.at(-1)?.text ?? this.box.value;
      fresh = [];
      this.box.scrollTop = this.box.scrollHeight;
    };
    try {
      this.isWriting = true;
      const ended = await model.write({ ids, cut: cutOf(cuts), temperature, count, pause }, (written) => {
        if (!fresh.length) requestAnimationFrame(draw);
        ids.push(written.id);
        fresh.push(written);
      });
      this.isWriting = false;
      if (ended || this.isStopped) await this.#goTo(ids); // else something else was asked for meanwhile
    } catch (error) {
      this.#say(sentenceOf(error));
    } finally {
      this.isWriting = false;
      this.board.end();
      this.#busy(false);
    }
  }

  /**
   * @param {{text: string, ids?: number[]}} what ids: the tokens, where they are known; the answer has their text
   * @param {string[]} cuts @param {History} history @returns {Promise<boolean>} false: refused, or a newer one came
   */
  async #show(what, cuts, history) {
    const request = {};
    this.request = request;
    this.typing = false;
    attributes(this.bar, { "aria-busy": "true" });
    try {
      const report = await this.#ask(what, cuts);
      if (request !== this.request || !report) return false;
      const inside = within(cuts, report.ids.length);
      if (inside.length < cuts.length) return this.#show(what, inside, history);
      const before = this.place;
      this.place = { text: report.text, cuts };
      if (what.ids) this.#remember(report);
      const old = this.report;
      this.report = report;
      this.#say("");
      if (history !== "keep") this.#address(history, before.cuts.join() === cuts.join());
      this.#draw(report);
      // Weights are given back now, not when garbage is collected. Who still awaits them finds them gone, and is gone.
      for (const { buffer } of old?.blocks.values() ?? []) /** @type {any} */ (buffer).transfer?.(0);
      return true;
    } catch (error) {
      if (request === this.request) this.#say(sentenceOf(error));
      return false;
    } finally {
      if (request === this.request) attributes(this.bar, { "aria-busy": null });
    }
  }

  /** @param {{text: string, ids?: number[]}} what @param {string[]} cuts */
  async #ask(what, cuts) {
    const { longest, models } = this.settings;
    const count = (/** @type {number} */ number) => number.toLocaleString("en");
    if (what.text.length > longest)
      throw new Error(
        `The text has ${count(what.text.length)} characters; at most ${count(longest)} are read. Shorten it.`,
      );
    const titles = cuts.length ? ["uncut", `without ${cuts.map((one) => nameOf(one)).join(", ")}`] : [models[0]];
    return this.model?.ask({ ...what, titles, cut: cutOf(cuts) }) ?? null;
  }

  /**
   * The view, the head and the run stay; a pin belongs to the text before.
   * @param {"push" | "replace"} history @param {boolean} sameCuts
   */
  #address(history, sameCuts) {
    const state = this.app?.store.state;
    const view = state?.view === "compare" && !this.place.cuts.length ? "" : this.app?.viewName;
    const isKept = state && (sameCuts || !this.place.cuts.length); // what a cut changed most is shown first
    const run = sameCuts ? {} : { report: 0, other: -1 };
    const kept = { ...state, ...run, view, pinned: false, focus: -1, step: "" };
    const hash = isKept ? `#${toHash(/** @type {import("./state.js").State} */ (kept))}` : "";
    const search = toSearch(this.place, this.settings.text, location.search);
    const address = `${location.pathname}${search}${hash}`;
    if (history === "push") globalThis.history.pushState(null, "", address);
    else globalThis.history.replaceState(null, "", address);
  }

  /** @param {LiveReport} report */
  #draw(report) {
    const { place, cutting, box } = this;
    if (box.value !== place.text) box.value = place.text;
    const [sequence] = report.document.reports[0].sequences;
    const names = new Names(sequence, report.ids.length, false);
    const name = (/** @type {string} */ cut) => nameOf(cut, (token) => names.label(token));
    cutting.draw(place.cuts, name);
    this.next.draw(report.next, report.lost, place.cuts.map(name).join(", "), names);
    attributes(this.writer.back, { disabled: report.ids.length < 2 });
    this.names = names;
    const { model } = this;
    const transport = (/** @type {string} */ key) => /** @type {LiveModel} */ (model).block(report, key);
    if (this.app) this.app.show(report.document, transport);
    else this.app = this.#begin(report.document, transport);
    this.#paint(this.app.theme);
    this.#offer();
  }

  /** @param {Page} page @param {Transport} transport */
  #begin(page, transport) {
    const cut = {
      has: (/** @type {string} */ one) => this.place.cuts.includes(one),
      toggle: (/** @type {string} */ one) => this.cut(toggled(this.place.cuts, one)),
      edges: true,
    };
    const app = new App(this.root, page, transport, { address: true, cut });
    app.store.listen((changed) => {
      if (changed.has("theme")) this.#paint(app.theme);
      if (changed.has("pinned") || changed.has("focus")) this.#offer();
    });
    return app;
  }

  /** The pinned word is where a new branch may begin. */
  #offer() {
    const { names } = this;
    const { pinned = false, focus = -1 } = this.app?.store.state ?? {};
    this.writer.offer(pinned && focus >= 0 && focus < names.size - 1 ? names.label(focus) : "");
  }

  async #drawHeads() {
    const { app } = this;
    if (!app) return;
    const { reports, theme } = app;
    const image = await atlas(reports, 0, theme);
    if (reports === app.reports && theme === app.theme)
      this.cutting.show(reports.page.reports[0], image, app.color("--ink3"));
  }

  /** @param {boolean} isBusy */
  #busy(isBusy) {
    this.writer.set(isBusy);
    this.next.wait(isBusy);
    this.box.readOnly = isBusy;
    styles(this.box, { height: isBusy ? this.box.offsetHeight : "" }); // what is below, such as "stop", stays in place
    this.root.hidden = isBusy;
  }

  /** @param {LiveReport} report */
  #remember({ text, ids }) {
    if (this.written.size >= REMEMBERED) this.written.clear();
    this.written.set(text, ids);
  }

  /** @param {import("../draw/color.js").Theme} theme */
  #paint(theme) {
    for (const el of [this.bar, this.root, document.documentElement]) el.dataset.theme = theme;
    this.#drawHeads();
  }

  /** The model cannot be used: the file is damaged, or the browser too old. @param {unknown} error */
  fail(error) {
    this.#say(`This page cannot run its model. ${sentenceOf(error)}`);
    attributes(this.box, { disabled: true });
  }

  /** @param {string} sentence */
  #say(sentence) {
    attributes(this.said, { text: sentence });
  }
}

/** @param {unknown} error */
function sentenceOf(error) {
  return error instanceof Error ? error.message : String(error);
}

/** Start a page that carries its model. What stops it is said in its place. */
export async function startLive() {
  const root = /** @type {HTMLElement} */ (document.getElementById("regard"));
  try {
    const { settings, live } = JSON.parse(document.getElementById("regard-document")?.textContent ?? "");
    const heads = live.plan.operations.flatMap((/** @type {any} */ one) => (one.kind === "attend" ? [one.heads] : []));
    const page = new LivePage(root, settings, heads);
    await page.start(live).catch((error) => page.fail(error));
  } catch (error) {
    root.append(h("p", { role: "alert", text: `This file is damaged: ${sentenceOf(error)}` }));
  }
}
