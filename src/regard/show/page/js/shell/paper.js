// Paper: what is shown fits on one page, in the light theme.

import { max, min } from "../data/math.js";

/** @import { App } from "./app.js" */

const WIDTHS = [1160, 1320, 1600]; // pixels to lay the page out in: a view with a long column is larger in a wide one
const PAPER = { width: 980, height: 690 }; // pixels of landscape paper, A4 or letter, within its margins

/**
 * Lay the page out for paper before it is printed, and as it was after that.
 * @param {App} app @param {AbortSignal} signal
 */
export function printWell(app, signal) {
  const { root } = app;
  const before = () => {
    root.dataset.paper = app.theme; // pictures of heads stay in the colours they have; the style turns them over
    app.theme = root.dataset.theme = "light";
    if (app.address) document.documentElement.dataset.theme = "light";
    Object.assign(root.style, { minHeight: "0", overflow: "hidden" });
    const zoomAt = (/** @type {number} */ width) => {
      root.style.width = `${width}px`;
      app.redraw();
      return min(PAPER.width / width, PAPER.height / root.scrollHeight);
    };
    const zooms = WIDTHS.map(zoomAt);
    const best = zooms.indexOf(max(...zooms));
    root.style.zoom = String(best === WIDTHS.length - 1 ? zooms[best] : zoomAt(WIDTHS[best]));
  };
  const after = () => {
    Object.assign(root.style, { width: "", minHeight: "", overflow: "", zoom: "" });
    app.theme = root.dataset.theme = root.dataset.paper === "dark" ? "dark" : "light";
    if (app.address) document.documentElement.dataset.theme = app.theme;
    delete root.dataset.paper;
    app.redraw();
  };
  addEventListener("beforeprint", before, { signal });
  addEventListener("afterprint", after, { signal });
}
