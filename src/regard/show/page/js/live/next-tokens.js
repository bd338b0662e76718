// What comes next: the ten most likely tokens as bars; a click takes one. Where something is cut, ○ before and ● after.

import { max } from "../data/math.js";
import { attributes, fill, h } from "../draw/dom.js";
import { visible } from "../words/names.js";

/** @import { NextToken } from "../model/next-token.js" */

/** A row of bars. */
export class NextTokens {
  /** @param {(id: number) => void} take */
  constructor(take) {
    this.take = take;
    this.title = h("h2");
    this.list = h("ol.next-tokens");
    this.el = h("div.next", this.title, this.list);
    this.el.hidden = true;
  }

  /** @param {NextToken[]} next @param {string} without what is cut, in words; "" for nothing */
  draw(next, without) {
    this.el.hidden = !next.length;
    const both = without ? ["○ uncut, ● without ", without] : ["a click takes one"];
    fill(this.title, "What comes next ", h("span", ...both));
    attributes(this.list, { "data-both": without !== "" });
    const most = max(0.01, ...next.flatMap(({ chances }) => chances));
    fill(this.list, ...next.map((one) => this.#bar(one, most)));
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
      { title, disabled: ends, onclick: () => this.take(id) },
      h("b", ends ? "the end" : visible(text)),
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
