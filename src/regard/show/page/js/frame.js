// @ts-check
// The frame around the views: the header with tabs and tools, the question, the text, and what is said to screen readers.

import { AskLine } from "./ask.js";
import { attributes, h } from "./dom.js";
import { legend } from "./legend.js";
import { TextLine } from "./text.js";
import { sizes } from "./words.js";

/** @typedef {import("./data.js").Page} Page */
/** @typedef {import("./data.js").Report} Report */
/** @typedef {import("./state.js").State} State */
/** @typedef {import("./state.js").Store} Store */
/** @typedef {import("./words.js").Names} Names */
/** @typedef {{point: (unit: number) => void, pick: (unit: number) => void, leave: () => void}} TextEvents */

/** Everything on the page that is not a view. */
export class Frame {
  /**
   * @param {HTMLElement} root
   * @param {Page} page
   * @param {Store} store
   * @param {{name: string, label: string}[]} views
   * @param {TextEvents & {find: (text: string) => string}} events find: go to a head or a word, and say what was found
   * @param {HTMLElement} [above] an element between the header and the question
   */
  constructor(root, page, store, views, events, above) {
    this.ask = new AskLine();
    this.text = new TextLine(events);
    const tab = (/** @type {{name: string, label: string}} */ { name, label }) =>
      h("button", { text: label, "data-view": name, onclick: () => store.set({ view: name }) });
    this.tabs = h("nav", { "aria-label": "views" }, ...views.map(tab));
    this.meta = h("span", { class: "meta" });
    const mode = (/** @type {string} */ text, /** @type {boolean} */ words) =>
      h("button", { text, "data-words": words ? "true" : "false", onclick: () => store.set({ words }) });
    this.modes = h("span", { class: "choice" }, mode("tokens", false), mode("words", true));
    this.texts = h("button", { text: "other text", onclick: () => store.set(otherReport(page, store.state)) });
    this.theme = h("button", {
      onclick: () => store.set({ theme: root.dataset.theme === "dark" ? "light" : "dark" }),
    });
    this.legend = legend(page);
    this.find = /** @type {HTMLInputElement} */ (
      h("input", {
        type: "search",
        class: "find",
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
    const tools = h(
      "span",
      { class: "tools" },
      this.find,
      page.reports.length > 1 ? this.texts : null,
      this.modes,
      this.theme,
      h("button", { text: "legend", onclick: () => this.legend.showModal() }),
    );
    this.view = h("div", { class: "view" });
    this.live = h("div", { class: "live", role: "status", "aria-live": "polite" });
    const header = h("header", {}, h("b", { text: "regard" }), this.tabs, this.meta, tools);
    const main = h("main", {}, above ?? null, this.ask.el, this.text.el, this.view, this.live);
    root.replaceChildren(header, main, this.legend);
  }

  /**
   * @param {Report} report
   * @param {State} state
   * @param {Names} names the words of the text
   * @param {string} theme
   */
  draw(report, state, names, theme) {
    attributes(this.meta, { text: [report.title, sizes(report)].filter(Boolean).join(" · ") });
    for (const button of this.tabs.children) {
      attributes(button, { "aria-current": button.getAttribute("data-view") === state.view ? "page" : null });
    }
    for (const button of this.modes.children) {
      attributes(button, {
        "aria-pressed": button.getAttribute("data-words") === String(state.words) ? "true" : "false",
      });
    }
    const inPieces = report.sequences.some(({ words }) => (words.at(-1) ?? -1) + 1 < words.length);
    this.modes.hidden = !inPieces;
    this.theme.textContent = theme === "dark" ? "light" : "dark";
    this.text.el.hidden = !names.known;
    if (names.known) this.text.draw(names);
  }

  /** @param {string} sentence */
  say(sentence) {
    attributes(this.live, { text: sentence });
  }
}

/**
 * The next report, at its own most telling head unless it has the chosen one.
 * @param {Page} page
 * @param {State} state
 * @returns {Partial<State>}
 */
function otherReport(page, state) {
  const report = (state.report + 1) % page.reports.length;
  const next = page.reports[report];
  const [layer, head] = next.layers[state.layer]?.heads[state.head]
    ? [state.layer, state.head]
    : (next.order[0] ?? [0, 0]);
  return { report, layer, head, focus: -1, pinned: false };
}
