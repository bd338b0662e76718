// What a page begins with: what its address asks for, as far as its reports have it.

import { VIEWS } from "../views/list.js";
import { fromHash, START } from "./state.js";

/** @import { Page } from "../data/page-data.js" */
/** @import { State } from "./state.js" */

/** What is shown where nothing is asked for. @param {Page} page @param {Partial<State>} [state] */
export function beginning({ reports, start }, state) {
  const [layer, head] = reports[0].order[0] ?? [0, 0];
  return { layer, head, ...start, ...state };
}

/**
 * The state that the address asks for; it may name what is not here.
 * @param {Page} page @param {Partial<State>} begins @param {boolean} address does the page follow it? @returns {State}
 */
export function asked({ reports }, begins, address) {
  const state = { ...START, ...begins, ...(address ? fromHash(location.hash) : {}) };
  if (!reports[state.report]) state.report = 0;
  const report = reports[state.report];
  if (!report.layers[state.layer]?.heads[state.head]) [state.layer, state.head] = report.order[0] ?? [0, 0];
  if (!VIEWS.some(({ name }) => name === state.view)) state.view = START.view;
  if (!report.sequences[state.text]) state.text = -1;
  const layer = report.layers[state.layer];
  const ofLayer = !layer ? 0 : state.side === "query" ? layer.T : layer.S;
  const size = report.sequences[state.text]?.pieces.length ?? ofLayer;
  if (state.focus >= size) Object.assign(state, { focus: -1, pinned: false, text: -1 });
  return state;
}
