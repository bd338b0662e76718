// Scrub: slide the first map into the second. What is between is mixed of both, and nothing has computed it.

import { isMissing } from "../data/math.js";
import { Weights } from "../data/page-data.js";
import { dot } from "../draw/before-after.js";
import { attributes, h } from "../draw/dom.js";

/** The slider under the maps. */
export class Scrub {
  /** @param {() => void} moved */
  constructor(moved) {
    this.slider = /** @type {HTMLInputElement} */ (
      h("input", { type: "range", min: 0, max: 1, step: 0.02, value: 0, "aria-label": "from the first to the second" })
    );
    this.slider.addEventListener("input", moved);
    this.slider.addEventListener("keydown", (event) => event.stopPropagation()); // arrows are the slider's
    this.said = h("span.num");
    this.el = h("label.scrub", dot(0), this.slider, dot(1), this.said);
  }

  /** How far the first map has gone: 1 is the second. */
  get share() {
    return Number(this.slider.value);
  }

  /** Back to the first map: another pair is shown. @param {boolean} isPossible */
  begin(isPossible) {
    this.slider.value = "0";
    this.el.hidden = !isPossible;
    this.say();
  }

  say() {
    attributes(this.said, { text: this.share ? `${this.share.toFixed(2)} of the way, mixed of both` : " " });
  }

  /** The first weights, so far on their way to the second. @param {Weights} before @param {Weights} differences */
  mixed(before, differences) {
    const values = Float32Array.from({ length: before.T * before.S }, (_, at) => {
      const [row, col] = [Math.floor(at / before.S), at % before.S];
      const [old, change] = [before.at(row, col), differences.at(row, col)];
      return isMissing(change) ? old : (isMissing(old) ? 0 : old) + this.share * change;
    });
    return new Weights(before.T, before.S, values);
  }
}
