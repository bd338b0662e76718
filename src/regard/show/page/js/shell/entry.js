// What is used from outside: by the page, and by a notebook.

export { startPage } from "./app.js";
export { renderWidget } from "./notebook-widget.js";
export { startLive, startServed } from "./served-page.js";
