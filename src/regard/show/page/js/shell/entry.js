// What is used from outside: by the page, and by a notebook.

export { startPage } from "./app.js";
export { startLive } from "./live-page.js";
export { renderWidget } from "./notebook-widget.js";
export { startServed } from "./served-page.js";
