// @ts-check
// Elements: small helpers to build and change the document. Text always goes in as textContent, never as markup.

const SVG = "http://www.w3.org/2000/svg";

/**
 * Set attributes, listeners and properties: `class`, `data-x`, `onclick`, `style` as an object, `text`.
 * @param {Element} node
 * @param {Record<string, any>} attributes
 */
export function attributes(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") {
      if (node.textContent !== String(value)) node.textContent = String(value);
    } else if (name === "style") {
      Object.assign(/** @type {HTMLElement} */ (node).style, value);
    } else if (name.startsWith("on")) {
      node.addEventListener(name.slice(2), value);
    } else if (value === false || value === null || value === undefined) {
      if (node.hasAttribute(name)) node.removeAttribute(name);
    } else if (node.getAttribute(name) !== String(value)) {
      node.setAttribute(name, value === true ? "" : String(value));
    }
  }
}

/**
 * An HTML element with attributes and children.
 * @param {string} tag
 * @param {Record<string, any>} [options]
 * @param {...(Node | string | null)} children
 * @returns {HTMLElement}
 */
export function h(tag, options = {}, ...children) {
  const node = document.createElement(tag);
  attributes(node, options);
  for (const child of children) if (child !== null) node.append(child);
  return node;
}

/**
 * An SVG element with attributes and children.
 * @param {string} tag
 * @param {Record<string, any>} [options]
 * @param {...(Node | string)} children
 * @returns {SVGElement}
 */
export function s(tag, options = {}, ...children) {
  const node = /** @type {SVGElement} */ (document.createElementNS(SVG, tag));
  attributes(node, options);
  node.append(...children);
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
  const ratio = Math.max(1, Math.min(3, globalThis.devicePixelRatio || 1));
  const [w, t] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
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

/**
 * The width of a text in the page's font, in pixels.
 * @param {string} text
 * @param {string} font
 * @returns {number}
 */
export function textWidth(text, font) {
  measuring ??= /** @type {CanvasRenderingContext2D} */ (document.createElement("canvas").getContext("2d"));
  measuring.font = font;
  return measuring.measureText(text).width;
}
/** @type {CanvasRenderingContext2D | undefined} */
let measuring;

/**
 * The text, cut with … so that it is at most so wide.
 * @param {string} text
 * @param {number} width
 * @param {string} font
 * @returns {string}
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
