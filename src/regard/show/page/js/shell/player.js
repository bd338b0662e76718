// Play: the text read word by word, in any view. Nothing moves until somebody presses it; who asked for less motion
// gets a button for the next word instead.

import { attributes, h } from "../draw/dom.js";

/** @import { App } from "./app.js" */

const SPEEDS = [400, 200, 800]; // milliseconds for a word
const NAMES = ["1×", "2×", "½×"];

/** The buttons that read the text, among the tools of the header. */
export class Player {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.speed = 0;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
    this.button = h("button", { title: "read the text word by word", onclick: () => this.#press() }, "play");
    this.next = h("button", { title: "read the next word", onclick: () => this.#step(), hidden: true }, "step");
    this.pace = h("button", { "aria-label": "speed 1×", onclick: () => this.#faster(), hidden: true }, NAMES[0]);
    this.el = h("span.choice.player", this.button, this.next, this.pace);
    app.root.querySelector(".tools")?.prepend(this.el);
    app.root.addEventListener("keydown", (event) => event.key === "Escape" && this.stop(), {
      signal: app.aborter.signal,
    });
  }

  get isPlaying() {
    return this.timer !== undefined;
  }

  /** Is less motion asked for? Then words are read one by one, by hand. */
  get isStill() {
    return globalThis.matchMedia?.("(prefers-reduced-motion: reduce)").matches ?? false;
  }

  /** Stop where it is. */
  stop() {
    clearTimeout(this.timer);
    this.timer = undefined;
    attributes(this.button, { text: "play" });
  }

  #press() {
    attributes(this.next, { hidden: null });
    attributes(this.pace, { hidden: this.isStill });
    if (this.isPlaying) return this.stop();
    if (this.app.shown.unit >= this.app.rows.size - 1 || !this.app.chosen) this.#read(0);
    else this.#step();
    if (this.isStill) return;
    attributes(this.button, { text: "stop" });
    this.#wait();
  }

  #wait() {
    this.timer = setTimeout(() => {
      if (!this.app.root.isConnected || !this.#step()) return this.stop();
      this.#wait();
    }, SPEEDS[this.speed]);
  }

  /** Read the next word; false at the end. */
  #step() {
    const { side, unit } = this.app.shown;
    const next = side === "query" ? unit + 1 : 0;
    if (next >= this.app.rows.size) return false;
    this.#read(next);
    return next < this.app.rows.size - 1;
  }

  /** @param {number} unit */
  #read(unit) {
    if (this.app.pinned) this.app.pin("query", unit);
    else this.app.point("query", unit);
  }

  #faster() {
    this.speed = (this.speed + 1) % SPEEDS.length;
    attributes(this.pace, { text: NAMES[this.speed], "aria-label": `speed ${NAMES[this.speed]}` });
  }
}
