// Writing on: a button, a temperature, and ways back. What is written is the model's, token by token.

import { attributes, h } from "../draw/dom.js";

const MOST = 64; // tokens that one press writes
const SLOW = 70; // milliseconds from a token to the next one, so that a person can read along and stop it

/** The controls. */
export class Writer {
  /** @param {{write: (temperature: number, count: number, pause: number) => void, stop: () => void, back: () => void,
   *   branch: () => void}} events */
  constructor(events) {
    this.isWriting = false;
    this.pause = SLOW;
    const press = () => (this.isWriting ? events.stop() : events.write(Number(this.heat.value), MOST, this.pause));
    this.button = h("button.write", { onclick: press }, "write on");
    this.heat = /** @type {HTMLInputElement} */ (
      h("input", { type: "range", min: 0, max: 1.5, step: 0.1, value: 0.7, "aria-label": "temperature" })
    );
    this.degrees = h("span.num");
    this.heat.addEventListener("input", () => this.#measure());
    this.heat.addEventListener("keydown", (event) => event.stopPropagation()); // arrows are the slider's
    const pace = (/** @type {string} */ name, /** @type {number} */ pause) =>
      h("button", { "data-pause": pause, onclick: () => this.#choose(pause) }, name);
    this.paces = h("span.choice", pace("slow", SLOW), pace("fast", 0));
    this.back = h("button", { title: "take the last token back", onclick: events.back }, "take back");
    this.branch = h("button", { title: "forget what follows, and write on from here", onclick: events.branch });
    this.branch.hidden = true;
    const heat = h("label", { title: "0: always the most likely token; higher: more by chance" });
    heat.append("temperature ", this.heat, this.degrees);
    this.el = h("span.writer", this.button, this.paces, heat, this.back, this.branch);
    this.#measure();
    this.#choose(SLOW);
  }

  /** @param {boolean} isWriting */
  set(isWriting) {
    this.isWriting = isWriting;
    attributes(this.button, { text: isWriting ? "stop" : "write on" });
    attributes(this.back, { disabled: isWriting });
    attributes(this.branch, { disabled: isWriting });
  }

  /** From which word a new branch may begin; "" for none. @param {string} word */
  offer(word) {
    this.branch.hidden = !word;
    attributes(this.branch, { text: word ? `write on after “${word}”` : "" });
  }

  /** @param {number} pause */
  #choose(pause) {
    this.pause = pause;
    for (const one of this.paces.children)
      attributes(one, { "aria-pressed": one.getAttribute("data-pause") === String(pause) });
  }

  #measure() {
    this.degrees.textContent = Number(this.heat.value).toFixed(1);
  }
}
