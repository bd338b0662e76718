// The frame around the views: the header with tabs and tools, the question, the text, and what is said to screen
// readers.

import { aligned } from "../data/alignment.js";
import { attributes, fill, h } from "../draw/dom.js";
import { TextLine } from "../draw/text-line.js";
import { hasView } from "../views/list.js";
import { Names, sizes } from "../words/names.js";
import { legend } from "./legend.js";

/** @import { Page, Report, Side } from "../data/page-data.js" */
/** @import { Ask, Part } from "../words/questions.js" */
/** @import { State, Store } from "./state.js" */
/** @typedef {{point: (unit: number, side?: Side) => void, pick: (unit: number, side?: Side) => void, leave: () => void,
 *   save: (kind: Kind) => void, find: (text: string) => {found: boolean, said: string}, link: (() => Promise<string>) |
 *   null}} FrameEvents
 *   save: the view as a file; find: go to a head or a word, and say what the view does not; link: copy the address */
/** @typedef {"svg" | "png" | "figure" | "csv"} Kind what is saved: the view, its figure alone, or a row of weights */

const TABS = 8; // reports that have a tab each

/** The line at the top of the page. */
class AskLine {
  constructor() {
    this.title = h("h1");
    this.answer = h("p");
    this.el = h("section.ask", this.title, this.answer);
    this.shown = "";
  }

  /** @param {Ask} ask */
  show(ask) {
    const now = JSON.stringify(ask);
    if (now === this.shown) return;
    this.shown = now;
    fill(this.title, ...ask.question.filter(Boolean).map(element));
    fill(this.answer, ...ask.answer.filter(Boolean).map(element));
  }
}

/** @param {Part} part @returns {HTMLElement} */
function element(part) {
  if (typeof part === "string") return h("span", part);
  const { text, kind, sup } = part;
  const node = h({ chosen: "em", strong: "b", number: "span.num", quiet: "span.quiet" }[kind], text);
  return sup === undefined ? node : h("span", node, h("sup", sup));
}

/** Everything on the page that is not a view. */
export class Frame {
  /**
   * @param {HTMLElement} root
   * @param {Page} page
   * @param {Store} store
   * @param {{name: string, label: string}[]} views
   * @param {FrameEvents} events
   * @param {HTMLElement} [above] an element between the header and the question
   */
  constructor(root, page, store, views, events, above) {
    this.ask = new AskLine();
    this.text = new TextLine(events);
    this.keyText = new TextLine(
      {
        point: (unit) => events.point(unit, "key"),
        pick: (unit) => events.pick(unit, "key"),
        leave: events.leave,
      },
      "text that is looked at",
    );
    const line = (/** @type {string} */ title, /** @type {TextLine} */ text) =>
      h("div.reads", h("span.side-name", title), text.el);
    this.reading = h("div.reading", line("looks", this.text), line("is looked at", this.keyText));
    const tab = (/** @type {{name: string, label: string}} */ { name, label }) =>
      h("button", { "data-view": name, onclick: () => store.set({ view: name }) }, label);
    this.tabs = h("nav", { "aria-label": "views" }, ...views.map(tab));
    this.meta = h("span.meta");
    const mode = (/** @type {string} */ text, /** @type {boolean} */ words) =>
      h("button", { "data-words": words ? "true" : "false", onclick: () => store.set({ words }) }, text);
    this.modes = h("span.choice.modes", mode("tokens", false), mode("words", true));
    this.page = page;
    this.store = store;
    const next = () =>
      store.set(otherReport(this.page, store.state, (store.state.report + 1) % this.page.reports.length));
    this.texts = h("button.texts", { onclick: next });
    this.runs = h("nav.runs", { "aria-label": "runs" });
    this.offer(page);
    this.theme = h("button", { onclick: () => store.set({ theme: root.dataset.theme === "dark" ? "light" : "dark" }) });
    this.legend = legend(page);
    this.find = /** @type {HTMLInputElement} */ (
      h("input.find", {
        type: "search",
        placeholder: "find 4.3 or a word",
        "aria-label": "find a head or a word",
        title: "/",
      })
    );
    this.find.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (event.key === "Escape") this.find.blur();
      if (event.key !== "Enter" || !this.find.value.trim()) return;
      const { found, said } = events.find(this.find.value.trim());
      this.tell(found ? "" : said);
      if (said) this.say(said);
      if (found)
        this.find.blur(); // arrows and brackets are the page's again
      else this.find.select();
    });
    this.find.addEventListener("input", () => this.tell(""));
    this.told = h("p.told", { "aria-hidden": true });
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.telling = undefined;
    const save = (/** @type {string} */ text, /** @type {Kind} */ kind, /** @type {string} */ title) =>
      h("button", { title, onclick: () => events.save(kind) }, text);
    const { link } = events;
    const copy = h("button.link", { title: "copy a link to what is shown" }, "copy link");
    copy.addEventListener("click", async () => this.tell(link ? await link() : "", true));
    const tools = h(
      "span.tools",
      this.find,
      this.texts,
      this.modes,
      h(
        "span.choice",
        save("SVG", "svg", "save this view as SVG"),
        save("PNG", "png", "save this view as PNG"),
        save("figure", "figure", "save the figure alone, without the page around it, as SVG"),
        save("CSV", "csv", "save the weights of this word as a table"),
      ),
      link && copy,
      this.theme,
      h("button", { onclick: () => this.legend.showModal() }, "legend"),
    );
    this.view = h("div.view");
    this.live = h("div.live", { role: "status", "aria-live": "polite" });
    const header = h("header", h("b", "regard"), this.tabs, this.meta, tools, this.told);
    const main = h("main", above ?? null, this.runs, this.ask.el, this.reading, this.view, this.live);
    fill(root, header, main, this.legend);
  }

  /** Offer these reports to choose from. @param {Page} page */
  offer(page) {
    this.page = page;
    const { reports, runs = false } = page;
    const asTabs = reports.length > (runs ? 1 : 2) && reports.length <= TABS;
    const run = (/** @type {Report} */ { title }, /** @type {number} */ i) =>
      h("button", { onclick: () => this.store.set(otherReport(page, this.store.state, i)) }, title || `report ${i}`);
    fill(this.runs, ...(asTabs ? reports.map(run) : []));
    this.texts.hidden = reports.length < 2 || asTabs;
    // two models, or one with heads cut, may have read one text
    const isOneText = new Set(reports.map(({ sequences }) => JSON.stringify(sequences))).size < 2;
    attributes(this.texts, { text: isOneText ? "other run" : "other text" });
  }

  /**
   * @param {Report} report
   * @param {State} state
   * @param {{rows: Names, cols: Names}} names of the words that look, and of those that are looked at
   * @param {string} theme
   */
  draw(report, state, { rows, cols }, theme) {
    attributes(this.meta, { text: [report.title, sizes(report)].filter(Boolean).join(" · ") });
    for (const button of this.tabs.children) {
      const name = button.getAttribute("data-view") ?? "";
      attributes(button, {
        "aria-current": name === state.view ? "page" : null,
        hidden: !hasView(name, report.layers[state.layer]),
      });
    }
    // Compare shows both of two
    this.runs.hidden = !this.runs.firstChild || (this.page.runs === true && state.view === "compare");
    [...this.runs.children].forEach((button, i) =>
      attributes(button, { "aria-current": i === state.report ? "true" : null }),
    );
    for (const button of this.modes.children) {
      attributes(button, { "aria-pressed": button.getAttribute("data-words") === String(state.words) });
    }
    const inPieces = report.sequences.some(({ words }) => (words.at(-1) ?? -1) + 1 < words.length);
    // pieces of words are merged from all weights
    this.modes.hidden = !inPieces || report.layers[state.layer].grid !== null;
    this.theme.textContent = theme === "dark" ? "light" : "dark";
    const both = cols.known && !Names.same(rows, cols); // two texts, unless both sides are the same
    attributes(this.reading, { "data-both": both && rows.known });
    for (const [text, names, shown] of /** @type {[TextLine, Names, boolean][]} */ ([
      [this.text, rows, rows.known],
      [this.keyText, cols, both],
    ])) {
      /** @type {HTMLElement} */ (text.el.parentElement).hidden = !shown;
      if (shown) text.draw(names);
    }
  }

  /**
   * Shade the text by the weights of the word in focus: where there are two texts, the other one.
   * @param {{values: ArrayLike<number> | null, unit: number, side?: Side}} shade
   * @param {boolean} pinned
   * @param {import("../draw/color.js").Theme} theme
   */
  shade({ values, unit, side = "query" }, pinned, theme) {
    const { text, keyText } = this;
    const one = /** @type {HTMLElement} */ (keyText.el.parentElement).hidden;
    if (one) return text.shade(values, unit, pinned, theme);
    const [mine, other] = side === "query" ? [text, keyText] : [keyText, text];
    mine.shade(null, unit, pinned, theme);
    other.shade(values, -1, pinned, theme);
  }

  /** Scroll the text to a word, where only a part of it is shown. @param {Side} side @param {number} unit */
  reveal(side, unit) {
    const both = !(/** @type {HTMLElement} */ (this.keyText.el.parentElement).hidden);
    (both && side === "key" ? this.keyText : this.text).reveal(unit);
  }

  /** Mark words of the text that another one does not have. @param {number[]} units */
  mark(units) {
    this.text.mark(units);
  }

  /**
   * Say something that is also seen, below the tools.
   * @param {string} sentence @param {boolean} [short] for some seconds
   */
  tell(sentence, short = false) {
    attributes(this.told, { text: sentence });
    if (sentence) this.say(sentence);
    clearTimeout(this.telling);
    if (short) this.telling = setTimeout(() => attributes(this.told, { text: "" }), 4000);
  }

  /** @param {string} sentence */
  say(sentence) {
    attributes(this.live, { text: sentence });
  }
}

/**
 * Another report, at its own most telling head unless it has the chosen one; what is pinned stays where the word is.
 * @param {Page} page @param {State} state @param {number} report @returns {Partial<State>}
 */
function otherReport(page, state, report) {
  const next = page.reports[report];
  const [layer, head] = next.layers[state.layer]?.heads[state.head]
    ? [state.layer, state.head]
    : (next.order[0] ?? [0, 0]);
  const text = (/** @type {Report} */ { sequences, layers }) =>
    sequences[state.text >= 0 ? state.text : (layers[0]?.[state.side === "query" ? "queries" : "keys"] ?? -1)]?.pieces;
  const [mine, theirs] = [page.reports[state.report], next].map((one) => text(one)?.map((piece) => piece.trim()));
  const focus = state.pinned && mine && theirs ? (aligned(mine, theirs)?.[state.focus] ?? -1) : -1;
  return { report, layer, head, focus, pinned: focus >= 0, text: focus >= 0 ? state.text : -1 };
}
