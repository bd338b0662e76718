// The legend: every word on the page, explained.

import { h } from "../draw/dom.js";

/** @import { Page } from "../data/page-data.js" */

const WORDS = {
  weight:
    "How much of its attention a word gives to another: 0 is nothing, 1 is all. The weights of one word add up to 1.",
  looks: "The word that looks is the query. The words it looks at are the keys; they get the weights.",
  receives: "The sum of the weights that all words give to one word: 1 on average, where a text looks at itself.",
  "no cell": "Hidden by the mask. A pale cell is a weight near 0.",
  "head 4.3": "Layer 4, head 3, both counted from 0. Every head has its own queries, keys and values.",
  role:
    "What a head does on this text, if one statistic passes its threshold. " +
    "On another text it may do something else.",
  token: "A piece of text as the model reads it. A bracket ties the pieces of one word.",
  words: "Pieces of a word are merged: as a key their weights are added up, as a query they are averaged.",
  score:
    "A query times a key, number by number, added up. Divided by √ of how many there are, it is scaled; " +
    "the softmax turns scaled scores into weights.",
  block:
    "Of a long text a cell of the map is a block: the share of its queries' attention that is on its keys. " +
    "A row adds up to 1.",
  "○ ●":
    "In a comparison, ○ is the first report or head and ● the second. A head changed if its role did, " +
    "or some statistic by 0.1 of its scale.",
  "blue, ochre":
    "In a difference, blue is more in the second and ochre is less. In steps, blue is above zero, ochre below.",
  pin: "A click keeps the word in focus while you change the head or the view; Esc lets it go.",
  "the@4": "The word “the” at position 4, where it occurs more than once. Positions are counted from 0.",
};

/** A dialog with all words. @param {Page} page @returns {HTMLDialogElement} */
export function legend(page) {
  const statistics = page.statistics.map(({ label, about, unit }) => {
    const [short] = unit.split(":");
    return [label, short && short !== "weight" && !about.includes(short) ? `${about} Unit: ${short}.` : about];
  });
  const roles = page.roles.map(({ name, about }) => [name, about]);
  const list = (/** @type {string[][]} */ all) =>
    h("dl", ...all.flatMap(([term, meaning]) => [h("dt", term), h("dd", meaning)]));
  const dialog = /** @type {HTMLDialogElement} */ (
    h(
      "dialog",
      { "aria-label": "legend" },
      h("form", { method: "dialog" }, h("button.close", "close")), // first: a dialog scrolls to what it focuses
      h("h2", "Words"),
      list(Object.entries(WORDS)),
      h("h2", "Roles"),
      list(roles),
      h("h2", "Statistics"),
      list(statistics),
    )
  );
  return dialog;
}
