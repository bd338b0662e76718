// An example: a few words of the corpus, the word that looks in red, those that it looks at shaded by weight.

import { css, inkOn, weightColor } from "../draw/color.js";
import { h } from "../draw/dom.js";
import { MARKED } from "./atlas-data.js";

/** @import { Theme } from "../draw/color.js" */
/** @import { Example } from "./atlas-data.js" */

/** @param {Example} example @param {Theme} theme @returns {HTMLElement} */
export function drawExample({ strength, token, tokens }, theme) {
  const isOne = tokens.filter(({ weight }) => weight >= MARKED).length === 1; // whose weight is the strength
  const parts = tokens.flatMap(({ at, text, weight, gap }, i) => {
    const space = /^\s/.test(text) && (i > 0 || gap) ? " " : "";
    const before = gap ? h("span.gap", { title: `up to position ${at}` }, i > 0 ? " … " : "… ") : space;
    const isMarked = weight >= MARKED;
    if (at !== token && !isMarked) return [before, text.trimStart()];
    const color = weightColor(weight, theme);
    const style = isMarked ? { background: css(color), color: inkOn(color) } : {};
    const title = at === token ? `looks from position ${at}` : `looked at, position ${at}`;
    const word = h(at === token ? "em.looks" : "b.looked-at", { title }, h("span.on-weight", { style }, text.trim()));
    return [before, isMarked && !isOne ? h("span", word, h("sup.num", weight.toFixed(2).replace(/^0/, ""))) : word];
  });
  return h("li", h("span.num.strength", strength.toFixed(2)), h("p", { dir: "auto" }, ...parts));
}
