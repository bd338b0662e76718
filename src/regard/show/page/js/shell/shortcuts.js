// The keys of the page: what each does where no control has used it.

import { max, min } from "../data/math.js";
import { isPlain } from "../draw/dom.js";
import { VIEWS } from "../views/list.js";

/** @import { App } from "./app.js" */

/** Do what a key is for. @param {App} app @param {KeyboardEvent} event */
export function pressKey(app, event) {
  const { key } = event;
  if (event.defaultPrevented || !isPlain(event) || app.frame.legend.open) return;
  const { unit, side } = app.shown;
  const view = VIEWS[Number(key) - 1]?.name;
  if (key === "Escape") app.store.set({ pinned: false, focus: -1, step: "" });
  else if (key === "?") app.frame.legend.showModal();
  else if (key === "/") app.frame.find.select();
  else if (view) app.store.set({ view });
  else if (key === "[" || key === "]") stepHead(app, key === "]" ? 1 : -1);
  else if (key === "ArrowLeft" || key === "ArrowRight") stepWord(app, key === "ArrowRight" ? 1 : -1);
  else if (key === "Enter" && !isControl(event.target) && unit >= 0) app.pick(side, unit);
  else return;
  event.preventDefault();
}

/** The next word, or the one before. @param {App} app @param {number} by */
function stepWord(app, by) {
  const { side, unit } = app.shown;
  const names = side === "query" ? app.rows : app.cols;
  const next = min(names.size - 1, max(0, unit + by));
  if (app.pinned) app.pin(side, next);
  else app.point(side, next);
}

/** The next head, or the one before. @param {App} app @param {number} by */
function stepHead(app, by) {
  const all = app.report.layers.flatMap((layer, l) => layer.heads.map((_, i) => ({ layer: l, head: i })));
  const { state } = app.store;
  const at = all.findIndex(({ layer, head }) => layer === state.layer && head === state.head);
  const next = all[(at + by + all.length) % all.length];
  if (next) app.choose(next.layer, next.head);
}

/** @param {EventTarget | null} target */
function isControl(target) {
  return (
    target instanceof Element &&
    Boolean(target.closest("button, input, select, textarea, [role=option], [role=gridcell]"))
  );
}
