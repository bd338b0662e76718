// A drawing: elements of the page as one SVG.
//
// Words become text at the place where the page shows them, maps become images, drawings are copied with their styles
// written into them. No foreignObject: editors of drawings do not know it.

import { abs, max, min } from "../data/math.js";
import { attributes, fitText, s, textWidth } from "../draw/dom.js";

/** @typedef {{x: number, y: number, width: number, height: number}} Box */

const SKIPPED =
  ".foot, .with, .for-readers, .live, .long-zoom, .turns, .more, .order, dialog, .map-grid, .picker-cell, .preview, " +
  "button[disabled]";
const COPIED =
  "fill stroke stroke-width opacity font-size font-weight font-family text-anchor paint-order visibility".split(" ");
/** What need not be written. @type {Record<string, string>} */
const DEFAULTS = {
  stroke: "none",
  "stroke-width": "1px",
  opacity: "1",
  "text-anchor": "start",
  "paint-order": "normal",
  visibility: "visible",
};

/** Collects what an SVG is made of. */
export class Drawing {
  /** @param {Box} page the part of the window that is drawn */
  constructor(page) {
    this.page = page;
    this.defs = s("defs");
    this.root = s("g");
    /** @type {Map<string, string>} the class of each style of text */
    this.styles = new Map();
    this.ascents = new Map();
  }

  /**
   * @param {Node} node
   * @param {Box} clip what of it can be seen
   */
  add(node, clip) {
    if (node instanceof Text) return this.#text(node, clip);
    if (!(node instanceof Element) || node.matches(SKIPPED)) return;
    const style = getComputedStyle(node);
    if (style.display === "none" || style.visibility === "hidden") return;
    const box = node.getBoundingClientRect();
    if (node instanceof SVGSVGElement) return this.#svg(node, box, clip);
    if (node instanceof HTMLCanvasElement) return this.#image(node, box, clip);
    if (box.width && box.height && overlaps(box, clip)) this.#box(node, box, style);
    if (node instanceof HTMLSelectElement) return this.#line(node.selectedOptions[0]?.text ?? "", box.x, box, style, 0);
    const inside = style.overflowX !== "visible" || style.overflowY !== "visible" ? intersection(clip, box) : clip;
    for (const child of node.childNodes) this.add(child, inside);
  }

  /** Where a box is in the drawing. @param {Box} box @returns {Box} */
  #place({ x, y, width, height }) {
    return { x: round(x - this.page.x), y: round(y - this.page.y), width: round(width), height: round(height) };
  }

  /**
   * A line of text.
   * @param {string} text
   * @param {number} x
   * @param {Box} box of the line
   * @param {CSSStyleDeclaration} style
   * @param {number} width 0 leaves it as it falls
   */
  #line(text, x, box, style, width) {
    const font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
    const key = `font: ${font}; fill: ${style.color}; letter-spacing: ${style.letterSpacing}`;
    const name = this.styles.get(key) ?? `t${this.styles.size}`;
    this.styles.set(key, name);
    const { up, down } = this.#ascent(font);
    const y = box.y + (box.height - up - down) / 2 + up;
    const node = s("text", { class: name, x: round(x - this.page.x), y: round(y - this.page.y) }, printable(text));
    if (width && abs(textWidth(text, font) - width) > 1) node.setAttribute("textLength", String(round(width)));
    this.root.append(node);
  }

  /** How far a font reaches above and below the line. @param {string} font @returns {{up: number, down: number}} */
  #ascent(font) {
    let known = this.ascents.get(font);
    if (!known) {
      const context = /** @type {CanvasRenderingContext2D} */ (document.createElement("canvas").getContext("2d"));
      context.font = font;
      const { fontBoundingBoxAscent: up, fontBoundingBoxDescent: down } = context.measureText("x");
      known = { up, down };
      this.ascents.set(font, known);
    }
    return known;
  }

  /** The lines of a text, each where it is. @param {Text} node @param {Box} clip */
  #text(node, clip) {
    const parent = node.parentElement;
    if (!parent || !node.data.trim()) return;
    const style = getComputedStyle(parent);
    const range = document.createRange();
    /** @type {{text: string, box: DOMRect, right: number, end: number}[]} */
    const lines = [];
    for (const match of node.data.matchAll(/\S+/g)) {
      range.setStart(node, match.index);
      range.setEnd(node, match.index + match[0].length);
      const box = range.getBoundingClientRect();
      const last = lines.at(-1);
      if (last && abs(last.box.y - box.y) < 2) {
        Object.assign(last, {
          text: last.text + node.data.slice(last.end, match.index).replace(/\s+/g, " ") + match[0],
          right: box.right,
          end: match.index + match[0].length,
        });
      } else lines.push({ text: match[0], box, right: box.right, end: match.index + match[0].length });
    }
    const edge = clip.x + clip.width;
    const font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
    for (const { text, box, right } of lines) {
      if (!overlaps(box, clip)) continue;
      // What does not fit ends with … as on the page.
      if (right > edge + 1) this.#line(fitText(text, edge - box.x, font), box.x, box, style, 0);
      else this.#line(text, box.x, box, style, right - box.x);
    }
  }

  /** Background, border and outline. @param {Element} node @param {Box} box @param {CSSStyleDeclaration} style */
  #box(node, box, style) {
    const at = this.#place(box);
    const colors = style.backgroundImage.match(/rgba?\([^)]*\)/g) ?? [];
    if (style.backgroundImage.startsWith("linear-gradient") && colors.length > 1) {
      const id = `gradient${this.defs.childElementCount}`;
      this.defs.append(
        s(
          "linearGradient",
          { id },
          ...colors.map((color, i) => s("stop", { offset: round(i / (colors.length - 1)), "stop-color": color })),
        ),
      );
      this.root.append(s("rect", { ...at, fill: `url(#${id})` }));
    } else if (isSeen(style.backgroundColor)) this.root.append(s("rect", { ...at, fill: style.backgroundColor }));
    for (const side of /** @type {const} */ (["top", "right", "bottom", "left"])) {
      const wide = Number.parseFloat(style.getPropertyValue(`border-${side}-width`));
      const fill = style.getPropertyValue(`border-${side}-color`);
      if (!wide || style.getPropertyValue(`border-${side}-style`) === "none" || !isSeen(fill)) continue;
      const across = side === "top" || side === "bottom";
      this.root.append(
        s("rect", {
          x: side === "right" ? round(at.x + at.width - wide) : at.x,
          y: side === "bottom" ? round(at.y + at.height - wide) : at.y,
          width: across ? at.width : wide,
          height: across ? wide : at.height,
          fill,
        }),
      );
    }
    if (style.outlineStyle !== "none" && !node.matches(":focus-visible") && Number.parseFloat(style.outlineWidth)) {
      const off = Number.parseFloat(style.outlineOffset) || 0;
      const frame = { x: at.x - off, y: at.y - off, width: at.width + 2 * off, height: at.height + 2 * off };
      this.root.append(
        s("rect", {
          ...frame,
          fill: "none",
          stroke: style.outlineColor,
          "stroke-width": Number.parseFloat(style.outlineWidth),
        }),
      );
    }
    const shadow = /^(rgba?\([^)]*\)).*inset$/.exec(style.boxShadow); // the line below a chosen word
    if (shadow)
      this.root.append(s("rect", { x: at.x, y: at.y + at.height - 2, width: at.width, height: 2, fill: shadow[1] }));
    const after = getComputedStyle(node, "::after");
    const said = /^"(.+)"$/.exec(after.content)?.[1];
    if (said)
      this.#line(
        said,
        box.x + box.width - textWidth(said, `${after.fontSize} ${after.fontFamily}`),
        { ...box, y: box.y - 6, height: 9 },
        after,
        0,
      );
  }

  /** @param {HTMLCanvasElement} canvas @param {DOMRect} box @param {Box} clip */
  #image(canvas, box, clip) {
    if (!box.width || !box.height || !overlaps(box, clip)) return;
    const at = this.#place(box);
    this.root.append(
      s("image", { ...at, href: canvas.toDataURL("image/png"), style: { imageRendering: "pixelated" } }),
    );
  }

  /** @param {SVGSVGElement} svg @param {DOMRect} box @param {Box} clip */
  #svg(svg, box, clip) {
    if (!overlaps({ ...box, x: box.x, y: box.y, width: max(1, box.width), height: max(1, box.height) }, clip)) return;
    const copy = /** @type {SVGElement | null} */ (styledCopy(svg));
    if (!copy) return;
    const overflow = getComputedStyle(svg).overflow === "visible" ? "visible" : "hidden";
    attributes(copy, { ...this.#place(box), overflow });
    this.root.append(copy);
  }

  /** The whole drawing. @param {string} background @param {string} title */
  finish(background, title) {
    const { width, height } = this.page;
    const rules = [...this.styles].map(([rule, name]) => `.${name} { ${rule} }`).join("\n");
    return s(
      "svg",
      {
        xmlns: "http://www.w3.org/2000/svg",
        width: round(width),
        height: round(height),
        viewBox: `0 0 ${round(width)} ${round(height)}`,
      },
      s("title", title),
      s("style", rules),
      this.defs,
      s("rect", { width: round(width), height: round(height), fill: background }),
      this.root,
    );
  }
}

/**
 * A copy of a part of a drawing, with the styles that the page gives it; null where it is hidden.
 * @param {Element} node @returns {Element | null}
 */
function styledCopy(node) {
  const style = getComputedStyle(node);
  if (style.display === "none" || (style.visibility === "hidden" && !node.childElementCount)) return null;
  const copy = /** @type {Element} */ (node.cloneNode(false));
  for (const name of ["class", "style", "aria-hidden", "aria-label", "role", "data-at", "data-state", "data-role"])
    copy.removeAttribute(name);
  if (!(node instanceof SVGSVGElement)) {
    const isText = node instanceof SVGTextContentElement;
    for (const name of COPIED) {
      const value = style.getPropertyValue(name);
      if (value && value !== DEFAULTS[name] && (isText || !/^(font|text)-/.test(name))) copy.setAttribute(name, value);
    }
  }
  for (const child of node.childNodes) {
    const part =
      child instanceof Element ? styledCopy(child) : document.createTextNode(printable(child.textContent ?? ""));
    if (part) copy.append(part);
  }
  return copy;
}

/** Text that XML can hold. @param {string} text @returns {string} */
export function printable(text) {
  return text.replace(/[^\x09\x0A\x0D\x20-\uD7FF\uE000-\uFFFD\u{10000}-\u{10FFFF}]/gu, "\uFFFD");
}

/** @param {Box} a @param {Box} b @returns {Box} */
export function intersection(a, b) {
  const [x, y] = [max(a.x, b.x), max(a.y, b.y)];
  return {
    x,
    y,
    width: max(0, min(a.x + a.width, b.x + b.width) - x),
    height: max(0, min(a.y + a.height, b.y + b.height) - y),
  };
}

/** Does most of the height of a box lie inside another? @param {Box} box @param {Box} clip */
export function overlaps(box, clip) {
  const inside = intersection(box, clip);
  return inside.width > 0 && inside.height > 0.4 * min(box.height, clip.height);
}

/** @param {string} color */
function isSeen(color) {
  return color !== "transparent" && !/^rgba\(.*, 0\)$/.test(color);
}

/** @param {number} value */
function round(value) {
  return Math.round(value * 100) / 100;
}
