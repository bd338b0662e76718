// Paper: what is shown fits on one page, in the light theme.

import { min } from "../data/math.js";

/** @import { App } from "./app.js" */

const WIDTH = 1160; // pixels that the page is laid out in
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
    Object.assign(root.style, { width: `${WIDTH}px`, minHeight: "0", overflow: "hidden" });
    app.redraw();
    root.style.zoom = String(min(PAPER.width / WIDTH, PAPER.height / root.scrollHeight));
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
