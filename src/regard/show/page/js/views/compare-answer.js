// What Compare asks, and what it answers.

import { isChanged, isOnAverage, pairs, THRESHOLD } from "../data/head-changes.js";
import { arrow } from "../draw/before-after.js";
import { Names } from "../words/names.js";
import { quiet, strong } from "../words/questions.js";

/** @import { Change } from "../data/head-changes.js" */
/** @import { App } from "../shell/app.js" */
/** @import { Ask, Part } from "../words/questions.js" */

/** Two heads of one report. @param {App} app @param {{layer: number, head: number}} second @returns {Ask} */
export function askHeadsDiffer(app, second) {
  const { report } = app;
  const [one, two] = [app.store.state, second].map(({ layer, head }) => ({ report, layer, head }));
  const [largest] = pairs(one, two, app.reports.page.averaged);
  /** @type {(place: {layer: number, head: number}) => Part} */
  const chosen = ({ layer, head }) => ({ text: `${layer}.${head}`, kind: "chosen" });
  return {
    question: ["How do heads ", chosen(one), " and ", chosen(two), " differ?"],
    answer: largest ? [`Most in ${largest.label}: `, ...arrow(largest), "."] : [],
  };
}

/**
 * One head in two reports.
 * @param {App} app @param {string} other the title of the second @param {Change[] | null} list of all heads
 * @returns {Ask}
 */
export function askChanged(app, other, list) {
  const { layer, head } = app.store.state;
  const cut = /^without (.+)$/.exec(other)?.[1];
  /** @type {Part[]} */
  const question = cut
    ? ["What changed when ", { text: cut, kind: "chosen" }, " was cut?"]
    : ["What changed from ", app.report.title, " to ", other, "?"];
  if (!list) return { question, answer: ["They have different heads."] };
  const mine = list.find((one) => one.layer === layer && one.head === head);
  const answer = ["Head ", strong(`${layer}.${head}`), ...(mine ? mostOf(app, mine) : []), quiet(howMany(list, mine))];
  return { question, answer };
}

/**
 * What changed most in a head: a mean, or where no mean did, a weight of a word.
 * @param {App} app @param {Change} change @returns {Part[]}
 */
function mostOf({ report }, change) {
  const { word, largest, layer } = change;
  if (word && !isChanged(change)) return [`: no mean and no weight of a word changed by ${THRESHOLD}. `];
  if (word && !isOnAverage(change)) {
    const { rows, cols } = Names.of(report, report.layers[layer], false);
    return [": ", rows.said(word.query), " at ", cols.said(word.key), " ", ...arrow(word), ". "];
  }
  return largest ? [`: ${largest.label} `, ...arrow(largest), " on average. "] : [": no statistic in common. "];
}

/** How many heads changed. @param {Change[]} list @param {Change | undefined} mine */
function howMany(list, mine) {
  const [average, all] = [list.filter(isOnAverage).length, list.filter(isChanged).length];
  const top = list[0];
  const most = !average || top === mine ? "" : `, ${top.layer}.${top.head} the most`;
  const words = list.some(({ word }) => word) ? `; ${all || "none"} for some word` : "";
  return `${average || "None"} of ${list.length} heads changed on average${most}${words}.`;
}
