// The words over the columns of a step: the keys, one of which is chosen.

import { max } from "../data/math.js";
import { attributes, fill, finish, h, textWidth } from "./dom.js";
import { LABEL_FONT } from "./weight-map.js";

/** @import { Names } from "../words/names.js" */

/** A list of keys, in the order of the text. */
export class KeyHeadings {
  /** @param {(key: number) => void} pin */
  constructor(pin) {
    this.pin = pin;
    /** @type {number[]} */
    this.keys = [];
    this.key = -1; // the chosen one
    this.el = h("div.key-names", {
      role: "listbox",
      "aria-label": "key: the word that is looked at",
      tabindex: "-1",
      onkeydown: (/** @type {KeyboardEvent} */ event) => this.#press(event),
    });
  }

  /**
   * @param {Element} parent
   * @param {{keys: number[], key: number, names: Names, column: number, short: boolean}} shown column: pixels of one;
   *   short: say less of how many there are
   */
  draw(parent, { keys, key: chosen, names, column, short }) {
    const { el } = this;
    const held = el.contains(document.activeElement);
    this.keys = keys;
    this.key = chosen;
    if (el.parentElement !== parent) parent.prepend(el);
    const note = keys.length < names.size ? `${keys.length} of ${names.size}${short ? "" : " keys"}` : "";
    const title = note ? "the keys with the largest weights, in the order of the text" : null;
    attributes(el, { "data-note": note, title });
    if (el.children.length !== keys.length) fill(el, ...keys.map(() => h("span.key-name", { role: "option" })));
    const widths = keys.map((key) => textWidth(names.names[key], LABEL_FONT) + 2);
    keys.forEach((key, i) => {
      // a long word stands over its neighbours' columns, too, where these are short
      const beside = max(widths[i - 1] ?? 0, widths[i + 1] ?? 0);
      const width = widths[i] + 4 > column && widths[i] + beside <= 2 * column ? widths[i] + 4 : column;
      const on = key === chosen;
      attributes(el.children[i], {
        "data-key": key,
        "data-on": on,
        "aria-selected": on,
        tabindex: on ? 0 : -1,
        text: names.names[key],
        title: names.said(key),
        style: { width, marginInline: (column - width) / 2 },
      });
    });
    if (held) /** @type {HTMLElement | null} */ (el.querySelector("[data-on]"))?.focus({ preventScroll: true });
  }

  /** @param {KeyboardEvent} event */
  #press(event) {
    const { keys } = this;
    const at = keys.indexOf(this.key);
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: keys.length - 1 }[event.key];
    if (to === undefined || !(to in keys)) return;
    finish(event);
    this.pin(keys[to]);
  }
}
