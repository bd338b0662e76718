// The text: every token or word, to point at and to choose, shaded by the weights of the one in focus.

import { isMissing, max, min } from "../data/math.js";
import { isRightToLeft, visible } from "../words/names.js";
import { css, inkOn, weightColor } from "./color.js";
import { attributes, fill, finish, h, isPlain, styles } from "./dom.js";

/** @import { Names } from "../words/names.js" */
/** @import { Theme } from "./color.js" */

const SHADED_FROM = 0.01;
/** Is it a mark of the tokenizer, such as [SEP] or </s>? @param {string} text */
const isMark = (text) => /^(\[[A-Z]+\d*\]|<[^<>\s]+>)$/.test(text);

/** The text as a list of options; arrows move, Enter pins. */
export class TextLine {
  /**
   * @param {{point: (unit: number) => void, leave: () => void, pick: (unit: number) => void}} events
   * @param {string} [label] for screen readers
   */
  constructor(events, label = "text") {
    this.events = events;
    this.drawn = "";
    this.el = h("div.text", { role: "listbox", "aria-label": label, tabindex: "-1" });
    /** @type {HTMLElement[]} */
    this.units = [];
    /** How each unit is shown. @type {string[]} */
    this.shown = [];
    const unit = (/** @type {Event} */ event) => {
      const node = /** @type {Element} */ (event.target).closest("[data-at]");
      return node ? Number(node.getAttribute("data-at")) : -1;
    };
    this.el.addEventListener("pointerover", (event) => unit(event) >= 0 && events.point(unit(event)));
    this.el.addEventListener("pointerleave", () => events.leave());
    this.el.addEventListener("click", (event) => unit(event) >= 0 && events.pick(unit(event)));
    this.el.addEventListener("keydown", (event) => this.#key(event));
  }

  /**
   * @param {Names} names
   * @param {number} [first] the first unit that is drawn
   * @param {number} [count] of units
   */
  draw(names, first = 0, count = names.size) {
    const texts = names.texts.slice(first, first + count);
    const now = JSON.stringify([first, texts, names.padding]);
    if (now === this.drawn) return;
    this.drawn = now;
    this.el.dir = isRightToLeft(texts.join(" ")) ? "rtl" : "ltr";
    this.units = texts.map((text, i) => {
      const at = first + i;
      // Spaces stay outside of what is chosen, and a line break is both seen and made.
      const before = text.slice(0, text.length - text.trimStart().length);
      const after = text.slice(text.trimEnd().length);
      const blank = !text.trim();
      const bytes = names.bytes[at];
      const node = h("span", {
        class: blank ? (bytes ? "unit blank bytes" : "unit blank") : "unit",
        role: "option",
        "data-at": i,
        tabindex: i ? -1 : 0,
        title: bytes ?? (names.padding[at] ? "padding" : null),
        "aria-label": bytes ?? null,
      });
      // A character is written where it begins; of its other bytes only their numbers are.
      const number = bytes && blank ? names.names[at].replace(/^.*:/s, "") : "";
      node.append(number || (names.padding[at] ? names.names[at] : visible(text)));
      const around = (/** @type {string} */ space) => (space.includes("\n") ? "\n" : space ? " " : "");
      return h(
        "span.around",
        { dir: "auto" },
        blank ? "" : (at && around(before)) || (i && isMark(text) && !/\s$/.test(texts[i - 1]) ? " " : ""),
        node,
        names.padding[at] ? " " : blank ? this.#breakAfter(texts, i) : around(after),
      );
    });
    fill(this.el, ...this.units);
    this.units = /** @type {HTMLElement[]} */ (this.units.map((around) => around.querySelector(".unit")));
    this.shown = [];
  }

  /** Scroll the text so that a unit is seen, where only a part of it is shown. @param {number} i */
  reveal(i) {
    const node = this.units[i];
    if (!node || this.el.scrollHeight <= this.el.clientHeight) return;
    const [box, own] = [this.el.getBoundingClientRect(), node.getBoundingClientRect()];
    if (own.top < box.top || own.bottom > box.bottom) this.el.scrollTop += own.top - box.top - box.height / 2;
  }

  /**
   * Shade the units by weight, and mark the one in focus.
   * @param {ArrayLike<number> | null} weights one for each unit, NaN where hidden; null shades nothing
   * @param {number} focus
   * @param {boolean} pinned
   * @param {Theme} theme
   */
  shade(weights, focus, pinned, theme) {
    this.units.forEach((node, i) => {
      const weight = weights ? weights[i] : 0;
      const shaded = weight >= SHADED_FROM && i !== focus;
      const color = shaded ? weightColor(weight, theme) : null;
      const [background, ink] = color ? [css(color), inkOn(color)] : ["", ""];
      const state = i === focus ? (pinned ? "chosen pinned" : "chosen") : isMissing(weight) ? "hidden" : "";
      const shown = `${background} ${state}`;
      if (this.shown[i] === shown) return; // a long text has thousands of units
      this.shown[i] = shown;
      styles(node, { background, color: ink });
      attributes(node, { "data-state": state, "aria-selected": i === focus });
    });
  }

  /**
   * What stands after a unit without letters: a line break, where an empty line ends a larger gap.
   * @param {string[]} texts @param {number} i @returns {Node | string}
   */
  #breakAfter(texts, i) {
    const text = texts[i].replace(/^ +/, "");
    if (!text.includes("\n")) return text ? " " : "";
    const isBreak = (/** @type {string | undefined} */ one) => one?.includes("\n") && !one.trim();
    if (isBreak(texts[i + 1])) return "";
    return isBreak(texts[i - 1]) || /\n.*\n/s.test(text) ? h("span.stanza") : "\n";
  }

  /** Mark words that another text does not have. @param {number[]} units */
  mark(units) {
    const marked = new Set(units);
    this.units.forEach((node, i) => attributes(node, { "data-differs": marked.has(i) }));
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const at = this.units.indexOf(/** @type {HTMLElement} */ (event.target));
    if (at < 0 || !isPlain(event)) return;
    const last = this.units.length - 1;
    const moves = { ArrowLeft: at - 1, ArrowRight: at + 1, ArrowUp: at - 10, ArrowDown: at + 10, Home: 0, End: last };
    const to = moves[/** @type {keyof typeof moves} */ (event.key)];
    if (to === undefined && event.key !== "Enter" && event.key !== " ") return;
    finish(event);
    if (to === undefined) return this.events.pick(at);
    const next = min(last, max(0, to));
    this.units[at].tabIndex = -1;
    this.units[next].tabIndex = 0;
    this.units[next].focus({ preventScroll: true });
    this.events.point(next);
  }
}
