// Every view of the page, in the order of its tabs. A new view is a file of its own and a line here.

import { compareView } from "./compare.js";
import { flowView } from "./flow.js";
import { headView } from "./head.js";
import { headsView } from "./heads.js";
import { layerView } from "./layer.js";
import { longView } from "./long.js";
import { stepsView } from "./steps.js";

/** @import { LayerInfo, Side } from "../data/page-data.js" */
/** @import { App } from "../shell/app.js" */
/** @import { Ask } from "../words/questions.js" */
/**
 * What a view is. draw: all of it; focus: only what the focus changes; ask: its question and answer; shade: the weights
 * that the text is shaded by, and the word in focus. ownText: the view shows the text itself.
 * figure: what is saved without the page around it.
 * @typedef {{el: HTMLElement, figure?: () => Element, ownText?: boolean, draw: () => void, focus: () => void, ask:
 *   () => Ask, shade: () => {values: ArrayLike<number> | null, unit: number, side?: Side}}} View
 * How a view is listed. name: in the address; label: of its tab; shows: can it show this layer? instead: the view that
 * takes its place where it cannot; stays: it keeps nothing of a text, and need not be made anew for another one.
 * @typedef {{name: string, label: string, make: (app: App) => View, shows?: (layer: LayerInfo) => boolean, instead?:
 *   string, stays?: boolean}} ListedView
 */

/** @type {ListedView[]} */
export const VIEWS = [headsView, headView, layerView, flowView, stepsView, longView, compareView];

/** @param {string} name @param {App} app @returns {View} */
export function makeView(name, app) {
  return /** @type {ListedView} */ (VIEWS.find((one) => one.name === name)).make(app);
}

/** Does this view stay when another text is shown? @param {string} view */
export function stays(view) {
  return VIEWS.find(({ name }) => name === view)?.stays ?? false;
}

/** Can this view show the layer? @param {string} view @param {LayerInfo} layer */
export function hasView(view, layer) {
  return VIEWS.find(({ name }) => name === view)?.shows?.(layer) ?? true;
}

/**
 * The view that shows the layer: the one that was asked for, or that in its place. Without one, one head of a short
 * text is shown with all of its words, and of a longer one as a map to zoom.
 * @param {string} asked
 * @param {LayerInfo} layer
 */
export function viewFor(asked, layer) {
  const view = asked || (hasView("long", layer) ? "long" : "head");
  return hasView(view, layer) ? view : (VIEWS.find(({ name }) => name === view)?.instead ?? "head");
}
