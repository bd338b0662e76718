// @ts-check
// What is used from outside: by the page, and by a notebook.

export { startPage } from "./app.js";
export { startServed } from "./served.js";
export { renderWidget } from "./widget.js";
