// The frame around the views: the header with tabs and tools, the question, the text, and what is said to screen
// readers.

import { attributes, fill, h } from "../draw/dom.js";
import { TextLine } from "../draw/text-line.js";
import { hasView } from "../views/list.js";
import { Names, sizes } from "../words/names.js";
import { legend } from "./legend.js";

/** @import { Page, Report, Side } from "../data/page-data.js" */
/** @import { Ask, Part } from "../words/questions.js" */
/** @import { State, Store } from "./state.js" */
/** @typedef {{point: (unit: number, side?: Side) => void, pick: (unit: number, side?: Side) => void, leave: () => void,
 *   save: (kind: "svg" | "png") => void, find: (text: string) => string}} FrameEvents
 *   save: the view as a file; find: go to a head or a word, and say what the view does not */

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
    this.modes = h("span.choice", mode("tokens", false), mode("words", true));
    const texts = new Set(page.reports.map(({ sequences }) => JSON.stringify(sequences)));
    // two models, or one with heads cut, may have read one text
    const other = texts.size > 1 ? "other text" : "other run";
    this.texts = h("button", { onclick: () => store.set(otherReport(page, store.state)) }, other);
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
      const answer = events.find(this.find.value.trim());
      if (answer) this.say(answer);
      this.find.select();
    });
    const save = (/** @type {string} */ text, /** @type {"svg" | "png"} */ kind) =>
      h("button", { title: `save this view as ${text}`, onclick: () => events.save(kind) }, text);
    const tools = h(
      "span.tools",
      this.find,
      page.reports.length > 1 ? this.texts : null,
      this.modes,
      h("span.choice", save("SVG", "svg"), save("PNG", "png")),
      this.theme,
      h("button", { onclick: () => this.legend.showModal() }, "legend"),
    );
    this.view = h("div.view");
    this.live = h("div.live", { role: "status", "aria-live": "polite" });
    const header = h("header", h("b", "regard"), this.tabs, this.meta, tools);
    fill(root, header, h("main", above ?? null, this.ask.el, this.reading, this.view, this.live), this.legend);
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

  /** @param {string} sentence */
  say(sentence) {
    attributes(this.live, { text: sentence });
  }
}

/**
 * The next report, at its own most telling head unless it has the chosen one.
 * @param {Page} page @param {State} state @returns {Partial<State>}
 */
function otherReport(page, state) {
  const report = (state.report + 1) % page.reports.length;
  const next = page.reports[report];
  const [layer, head] = next.layers[state.layer]?.heads[state.head]
    ? [state.layer, state.head]
    : (next.order[0] ?? [0, 0]);
  return { report, layer, head, focus: -1, pinned: false };
}
