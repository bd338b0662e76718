// @ts-check
// The legend: every word on the page, explained.

import { h } from "./dom.js";

/** @typedef {import("./data.js").Page} Page */

const WORDS = [
  [
    "weight",
    "How much of its attention a word gives to another: 0 is nothing, 1 is all. The weights of one word add up to 1.",
  ],
  ["looks", "The word that looks is the query. The words it looks at are the keys; they get the weights."],
  ["receives", "The sum of the weights that all words give to one word."],
  ["no cell", "Hidden by the mask. A pale cell is a weight near 0."],
  ["head 4.3", "Layer 4, head 3, both counted from 0. Every head has its own queries, keys and values."],
  [
    "role",
    "What a head does on this text, if one statistic passes its threshold. On another text it may do something else.",
  ],
  ["token", "A piece of text as the model reads it. A bracket ties the pieces of one word."],
  ["words", "Pieces of a word are merged: as a key their weights are added up, as a query they are averaged."],
  [
    "score",
    "A query times a key, number by number, added up. Divided by √ of how many there are, it is scaled; the softmax turns scaled scores into weights.",
  ],
  [
    "block",
    "Of a long text a cell of the map is a block: the share of its queries' attention that is on its keys. A row adds up to 1.",
  ],
  [
    "○ ●",
    "In a comparison, ○ is the first report or head and ● the second. A head changed if its role did, or some statistic by 0.1 of its scale.",
  ],
  ["the@4", "The word “the” at position 4, where it occurs more than once. Positions are counted from 0."],
];

/**
 * A dialog with all words.
 * @param {Page} page
 * @returns {HTMLDialogElement}
 */
export function legend(page) {
  const terms = [
    ...WORDS,
    ...page.statistics.map((one) => [one.label, `${one.about}${one.unit ? ` Unit: ${one.unit}.` : ""}`]),
  ];
  const dialog = /** @type {HTMLDialogElement} */ (
    h(
      "dialog",
      { "aria-label": "legend" },
      h("dl", ...terms.flatMap(([term, meaning]) => [h("dt", term), h("dd", meaning)])),
      h("form", { method: "dialog" }, h("button.close", "close")),
    )
  );
  return dialog;
}
