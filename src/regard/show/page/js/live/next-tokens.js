// What comes next: the ten most likely tokens as bars; a click takes one. Where something is cut, ○ before and ● after.

import { max } from "../data/math.js";
import { attributes, fill, h } from "../draw/dom.js";
import { visible } from "../words/names.js";

/** @import { Lost } from "../model/live-reader.js" */
/** @import { NextToken } from "../model/next-token.js" */
/** @import { Names } from "../words/names.js" */

/** A row of bars. */
export class NextTokens {
  /** @param {{take: (id: number) => void, end: (tokens: number) => void}} events end: the text, after so many tokens */
  constructor(events) {
    this.events = events;
    this.title = h("h2");
    this.list = h("ol.next-tokens");
    this.lost = h("p.lost");
    this.el = h("div.next", this.title, this.list, this.lost);
    this.el.hidden = true;
  }

  /**
   * @param {NextToken[]} next @param {Lost | null} lost
   * @param {string} without what is cut, in words; "" for nothing @param {Names} names of the tokens
   */
  draw(next, lost, without, names) {
    this.lost.hidden = !without;
    if (without) fill(this.lost, ...this.#drop(lost, names, without));
    this.el.hidden = !next.length;
    const both = without ? ["○ uncut, ● without ", without] : ["a click takes one"];
    fill(this.title, "What comes next ", h("span", ...both));
    attributes(this.list, { "data-both": without !== "" });
    const most = max(0.01, ...next.flatMap(({ chances }) => chances));
    fill(this.list, ...next.map((one) => this.#bar(one, most)));
  }

  /**
   * What the cut costs most, anywhere in the text: at its end there may be nothing to lose.
   * @param {Lost | null} lost @param {Names} names @param {string} without
   */
  #drop(lost, names, without) {
    if (!lost) return ["Everywhere in this text, the next token is about as likely as before."];
    const { at, chances } = lost;
    const shares = chances.map((one) => one.toFixed(2)).join(" → ");
    const end = h("button", { onclick: () => this.events.end(at) }, "end the text there");
    const where = `, “${names.names[at]}” after “${names.label(at - 1)}” is less likely: `;
    return ["Without ", h("b", without), where, h("b.num", shares), " ", end];
  }

  /** @param {NextToken} token @param {number} most */
  #bar({ id, text, chances, ends }, most) {
    const shares = chances.map((chance) => chance.toFixed(2));
    const bar = (/** @type {number} */ chance, /** @type {number} */ i) =>
      h("span", {
        class: i === chances.length - 1 ? "bar" : "bar before",
        style: { width: `${(100 * chance) / most}%` },
      });
    const title = ends ? "the text would end here" : "go on with this token";
    const button = h(
      "button",
      { title, disabled: ends, onclick: () => this.events.take(id) },
      h("b", /^ \S/.test(text) ? h("span.quiet", "␣") : null, ends ? "the end" : visible(text)),
      h("span.num", shares.join("→")),
      h("span.bars-of", { "aria-hidden": true }, ...chances.map(bar)),
    );
    return h("li", button);
  }

  /** While something is read or written, a click would take what is no longer there. @param {boolean} isBusy */
  wait(isBusy) {
    attributes(this.list, { "aria-busy": isBusy ? "true" : null });
  }
}
