// The page with a box for a text of one's own, which a local server reads.

import { Server } from "../data/server.js";
import { preferredTheme } from "../draw/color.js";
import { attributes, h } from "../draw/dom.js";
import { App } from "./app.js";
import { toHash } from "./state.js";

/** @import { Question } from "../data/server.js" */
/**
 * What the source says of itself: the models, the text to begin with, the characters that it reads at most, whether
 * it cuts heads, and the models that it gives as a page that runs them itself.
 * @typedef {{models: string[], text: string, longest: number, cuts?: boolean, live?: string[]}} Settings
 */

const LONGEST_ADDRESS = 2000; // characters of a question in the page's address; longer texts are not kept in it

/**
 * The question in an address; what is missing is as the server says.
 * @param {string} search the part of an address that begins with ?
 * @param {Settings} settings
 * @returns {Question}
 */
export function fromSearch(search, settings) {
  const parts = new URLSearchParams(search);
  const model = parts.get("model") ?? "";
  const cut = parts.get("cut") ?? "";
  return {
    text: parts.get("text") || settings.text,
    model: settings.models.includes(model) ? model : settings.models[0],
    ...(settings.cuts && /^\d+\.\d+$/.test(cut) ? { cut } : {}),
  };
}

/**
 * The question as a part of an address; empty where it is too long, or nothing but what the server begins with.
 * @param {Question} question @param {Settings} settings @returns {string}
 */
export function toSearch({ text, model, cut }, settings) {
  const parts = new URLSearchParams();
  if (text !== settings.text) parts.set("text", text);
  if (model !== settings.models[0]) parts.set("model", model);
  if (cut) parts.set("cut", cut);
  const search = parts.toString();
  return search && search.length <= LONGEST_ADDRESS ? `?${search}` : "";
}

/** The page, and the box above it. */
class ServedPage {
  /** @param {HTMLElement} root @param {Settings} settings @param {Server} source */
  constructor(root, settings, source) {
    this.root = root;
    this.source = source;
    this.settings = settings;
    /** @type {App | null} */
    this.app = null;
    this.id = "";
    this.request = {};
    this.question = fromSearch(location.search, settings);
    this.box = /** @type {HTMLTextAreaElement} */ (
      h("textarea", { rows: 1, placeholder: "Type a text of your own", "aria-label": "text", spellcheck: "false" })
    );
    this.models = /** @type {HTMLSelectElement} */ (
      h("select", { "aria-label": "model" }, ...settings.models.map((name) => h("option", { text: name, value: name })))
    );
    this.models.hidden = settings.models.length < 2;
    this.file = h("a", { download: "live.html", title: "one file that runs the model, without a server" }, "as a file");
    this.file.hidden = true;
    this.button = h("button", { text: "see", title: "Enter; Shift+Enter begins a new line" });
    this.said = h("p", { role: "alert" });
    this.form = h("form", { class: "own" }, this.box, this.models, this.button, this.file, this.said);
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit();
    });
    this.box.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.#submit();
    });
    this.models.addEventListener("change", () => this.#submit());
    addEventListener("popstate", () => {
      const question = fromSearch(location.search, settings);
      if (toSearch(question, settings) !== toSearch(this.question, settings)) this.#see(question, false);
    });
    root.classList.add("regard");
    root.dataset.theme = preferredTheme();
    document.documentElement.dataset.theme = root.dataset.theme;
    root.replaceChildren(h("header", {}, h("b", { text: "regard" })), h("main", {}, this.form));
    this.#see(this.question, false);
  }

  #submit() {
    const text = this.box.value.trim() ? this.box.value : this.question.text;
    this.#see({ text, model: this.models.value }, true);
  }

  /**
   * Show what the model does with a text.
   * @param {Question} question
   * @param {boolean} asked the person asked for it: it gets an address of its own
   */
  async #see(question, asked) {
    const request = {};
    this.request = request;
    this.#say("", true);
    try {
      if (question.text.length > this.settings.longest * 2) throw new Error(this.#tooLong(question.text));
      const answer = await this.source.ask(question);
      if (request !== this.request) return;
      this.#say("");
      this.id = answer.id;
      this.#show(answer.document, question, asked);
    } catch (error) {
      if (request === this.request) this.#say(error instanceof Error ? error.message : String(error));
    }
  }

  /** @param {string} text */
  #tooLong(text) {
    const count = (/** @type {number} */ number) => number.toLocaleString("en");
    const most = `at most ${count(this.settings.longest)} are read. Shorten it.`;
    return `the text has ${count(text.length)} characters; ${most}`;
  }

  /** @param {import("../data/page-data.js").Page} page @param {Question} question @param {boolean} asked */
  #show(page, question, asked) {
    const focused = document.activeElement === this.box;
    if (asked) {
      // The head and the view stay; what was pinned belongs to the text before.
      const before = this.app?.store.state;
      const kept = before && question.model === this.question.model && question.cut === this.question.cut;
      const hash = kept ? toHash({ ...before, report: 0, other: -1, pinned: false, focus: -1 }) : "";
      history.pushState(null, "", `${location.pathname}${toSearch(question, this.settings)}${hash && `#${hash}`}`);
    }
    this.question = question;
    this.models.value = question.model;
    const { live = [] } = this.settings;
    attributes(this.file, { hidden: !live.includes(question.model) });
    attributes(this.file, { href: `live.html?${new URLSearchParams({ model: question.model })}` });
    this.box.value = question.text === this.settings.text ? "" : question.text;
    this.app?.destroy();
    const { id } = this;
    this.app = new App(this.root, page, (key) => this.source.block(id, key, question), {
      address: true,
      above: this.form,
      cut: this.settings.cuts ? this.#cutter(question) : undefined,
    });
    if (focused) this.box.focus({ preventScroll: true });
  }

  /** One head at a time. @param {Question} question @returns {import("./app.js").Cutter} */
  #cutter(question) {
    return {
      has: (cut) => cut === question.cut,
      toggle: (cut) => this.#see({ ...question, cut: cut === question.cut ? undefined : cut }, true),
    };
  }

  /**
   * @param {string} sentence what went wrong
   * @param {boolean} [waiting]
   */
  #say(sentence, waiting = false) {
    attributes(this.said, { text: sentence.charAt(0).toUpperCase() + sentence.slice(1) });
    attributes(this.button, { text: waiting ? "reading…" : "see" });
    attributes(this.form, { "aria-busy": waiting ? "true" : null });
  }
}

/** Start the page that a local server sent: what it says of itself is in the document. */
export function startServed() {
  const root = /** @type {HTMLElement} */ (document.getElementById("regard"));
  return new ServedPage(root, JSON.parse(document.getElementById("regard-document")?.textContent ?? ""), new Server());
}
