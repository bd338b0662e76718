// Elements: small helpers to build and change the document. Text always goes in as textContent, never as markup.

import { max, min, round } from "../data/math.js";

const SVG = "http://www.w3.org/2000/svg";

/** @typedef {Node | string | null | Record<string, any>} NodePart a child, or attributes as `attributes` takes them */

/**
 * Set attributes, listeners and properties: `class`, `data-x`, `onclick`, `style` as an object, `text`. A boolean says
 * whether an attribute is there; those of ARIA say true or false.
 * @param {Element} node @param {Record<string, any>} attributes
 */
export function attributes(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") {
      if (node.textContent !== String(value)) node.textContent = String(value);
    } else if (name === "style") {
      styles(/** @type {HTMLElement} */ (node), value);
    } else if (name.startsWith("on")) {
      node.addEventListener(name.slice(2), value);
    } else if (value === null || value === undefined || (value === false && !name.startsWith("aria-"))) {
      if (node.hasAttribute(name)) node.removeAttribute(name);
    } else if (node.getAttribute(name) !== String(value)) {
      node.setAttribute(name, value === true && !name.startsWith("aria-") ? "" : String(value));
    }
  }
}

/**
 * Set styles; a number is in pixels.
 * @param {ElementCSSInlineStyle} node @param {Record<string, string | number>} values
 */
export function styles(node, values) {
  for (const [name, value] of Object.entries(values))
    Object.assign(node.style, { [name]: typeof value === "number" ? `${value}px` : value });
}

/** Replace what is inside an element. @param {Element} node @param {...(Node | string | null)} children */
export function fill(node, ...children) {
  node.replaceChildren(...children.filter((child) => child !== null));
}

/**
 * An HTML element: h("p.note", { title }, "a ", h("b", "word")).
 * @param {string} selector its tag and classes
 * @param {...NodePart} parts
 * @returns {HTMLElement}
 */
export function h(selector, ...parts) {
  return build(document.createElement(selector.split(".", 1)[0]), selector, parts);
}

/**
 * An SVG element, made as `h` makes one of HTML.
 * @param {string} selector @param {...NodePart} parts @returns {SVGElement}
 */
export function s(selector, ...parts) {
  return build(/** @type {SVGElement} */ (document.createElementNS(SVG, selector.split(".", 1)[0])), selector, parts);
}

/**
 * @template {Element} T
 * @param {T} node
 * @param {string} selector
 * @param {NodePart[]} parts
 * @returns {T}
 */
function build(node, selector, parts) {
  const [, ...classes] = selector.split(".");
  node.classList.add(...classes);
  for (const part of parts) {
    if (part instanceof Node || typeof part === "string") node.append(part);
    else if (part) attributes(node, part);
  }
  return node;
}

/**
 * A canvas whose pixels are those of the screen.
 * @param {HTMLCanvasElement} canvas
 * @param {number} width in CSS pixels
 * @param {number} height
 * @returns {CanvasRenderingContext2D}
 */
export function sizedContext(canvas, width, height) {
  const ratio = max(1, min(3, globalThis.devicePixelRatio || 1));
  const [w, t] = [max(1, round(width * ratio)), max(1, round(height * ratio))];
  if (canvas.width !== w || canvas.height !== t) {
    canvas.width = w;
    canvas.height = t;
  }
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.imageSmoothingEnabled = false;
  return context;
}

/** The width of a text in the page's font, in pixels. @param {string} text @param {string} font @returns {number} */
export function textWidth(text, font) {
  measuring ??= /** @type {CanvasRenderingContext2D} */ (document.createElement("canvas").getContext("2d"));
  measuring.font = font;
  return measuring.measureText(text).width;
}
/** @type {CanvasRenderingContext2D | undefined} */
let measuring;

/**
 * The text, cut with … so that it is at most so wide.
 * @param {string} text @param {number} width @param {string} font @returns {string}
 */
export function fitText(text, width, font) {
  if (textWidth(text, font) <= width) return text;
  const characters = [...text];
  let low = 0;
  let high = characters.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (textWidth(`${characters.slice(0, middle).join("")}…`, font) <= width) low = middle;
    else high = middle - 1;
  }
  return `${characters.slice(0, low).join("")}…`;
}

/**
 * A label in which the number of a byte stays behind its character, also where letters run from right to left: م:2.
 * @param {string} label
 */
export function leftToRight(label) {
  return label.replace(/(?<=[\u0590-\u08ff])(?=:\d)/gu, String.fromCharCode(0x200e));
}

/** Is a key pressed without Ctrl, Alt and the like, which are the browser's? @param {KeyboardEvent} event */
export function isPlain(event) {
  return !(event.ctrlKey || event.metaKey || event.altKey);
}

/** Keep an event from the page and the browser: it has done what it is for. @param {Event} event */
export function finish(event) {
  event.preventDefault();
  event.stopPropagation();
}

/**
 * Where a key moves to in a grid; undefined where it does not move.
 * @param {string} key
 * @param {number} row
 * @param {number} col
 * @param {number} last the last column
 * @param {number} [by]
 * @returns {[number, number] | undefined}
 */
export function moveIn(key, row, col, last, by = 1) {
  /** @type {Record<string, [number, number]>} */
  const moves = {
    ArrowUp: [row - by, col],
    ArrowDown: [row + by, col],
    ArrowLeft: [row, col - by],
    ArrowRight: [row, col + by],
    PageUp: [row - 10 * by, col],
    PageDown: [row + 10 * by, col],
    Home: [row, 0],
    End: [row, last],
  };
  return moves[key];
}

/** What the pointer and the keyboard use: a grid over a map. @param {Element} cell in focus @param {string} label */
export function mapGrid(cell, label) {
  const options = { role: "grid", "aria-label": label, "aria-readonly": true };
  return h("div.map-grid", options, h("div", { role: "row" }, cell));
}
