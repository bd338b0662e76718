// Colours of weights: one hue, lightness by weight^0.6, so that small weights differ visibly and 1 is darkest.
// The dark theme runs the other way. Differences and signed numbers are blue above zero and ochre below.

import { abs, max, min, round } from "../data/math.js";
import { h } from "./dom.js";

/** @typedef {[number, number, number]} Rgb */
/** @typedef {"light" | "dark"} Theme */

const POWER = 0.6;
const STEPS = 256;
const TICKS = [0, 0.02, 0.1, 0.25, 0.5, 1]; // of the scale below a map

/** Colours at these weights; between them, the way is straight in OKLab. */
const ANCHORS = {
  light: { 0: "#f0f3f7", 0.02: "#d0def2", 0.1: "#9abcef", 0.25: "#5e93e2", 0.5: "#2a63b5", 1: "#122745" },
  dark: { 0: "#1b1e23", 0.02: "#20304c", 0.1: "#264a80", 0.25: "#306cc4", 0.5: "#6aa6ef", 1: "#d3ebff" },
};
const SIGNED = {
  light: {
    [-1]: "#5a3300",
    [-0.5]: "#a8690f",
    [-0.1]: "#e5cfa8",
    0: "#f3f3f1",
    0.1: "#bcd3f5",
    0.5: "#2a63b5",
    1: "#122745",
  },
  dark: {
    [-1]: "#ffd9a0",
    [-0.5]: "#c4873a",
    [-0.1]: "#4d3a20",
    0: "#1b1d20",
    0.1: "#223c66",
    0.5: "#6aa6ef",
    1: "#d3ebff",
  },
};

/** By their anchors, and by the side of zero. @type {Map<Record<string, string>, Rgb[][]>} */
const tables = new Map();

/** The colour of a weight between 0 and 1. @param {number} weight @param {Theme} theme @returns {Rgb} */
export function weightColor(weight, theme) {
  return table(ANCHORS[theme], 0)[bin(weight)];
}

/** The colour of a number between -1 and 1. @param {number} value @param {Theme} theme @returns {Rgb} */
export function signedColor(value, theme) {
  const side = value < 0 ? -1 : 1;
  return table(SIGNED[theme], side)[bin(abs(value))];
}

/** Colours of the tables as texts, which a map asks for thousands of times. @type {WeakMap<Rgb, string>} */
const written = new WeakMap();

/** @param {Rgb} color @returns {string} */
export function css(color) {
  const known = written.get(color);
  if (known) return known;
  const [r, g, b] = color;
  const text = `rgb(${r} ${g} ${b})`;
  written.set(color, text);
  return text;
}

/** Black or white, whichever is easier to read on this colour. @param {Rgb} color @returns {string} */
export function inkOn(color) {
  return luminance(color) > 0.179 ? "#000" : "#fff";
}

/** Relative luminance, as WCAG defines it. @param {Rgb} color @returns {number} */
export function luminance(color) {
  const [r, g, b] = color.map(linear);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/**
 * Light or dark, by the first opaque background around an element; hosts announce their theme in too many ways.
 * @param {Element} element @returns {Theme}
 */
export function themeAround(element) {
  for (let node = /** @type {Element | null} */ (element); node; node = outer(node)) {
    const [r, g, b, opacity] = painted(getComputedStyle(node).backgroundColor);
    if (opacity > 127) return luminance([r, g, b]) > 0.179 ? "light" : "dark";
  }
  return preferredTheme();
}

/** A colour as the four bytes of a pixel, however it is written: rgb(), oklch(), color(). @param {string} color */
function painted(color) {
  const context = /** @type {OffscreenCanvasRenderingContext2D} */ (new OffscreenCanvas(1, 1).getContext("2d"));
  context.fillStyle = color;
  context.fillRect(0, 0, 1, 1);
  return context.getImageData(0, 0, 1, 1).data;
}

/**
 * The element around this one, also outside of a shadow root, in which marimo puts a widget.
 * @param {Element} element @returns {Element | null}
 */
function outer(element) {
  const root = element.getRootNode();
  return element.parentElement ?? (root instanceof ShadowRoot ? root.host : null);
}

/** What the person set their system to. @returns {Theme} */
export function preferredTheme() {
  return globalThis.matchMedia?.("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

/** @param {number} weight */
function bin(weight) {
  return round(min(1, max(0, weight)) ** POWER * (STEPS - 1));
}

/**
 * The colours of STEPS weights, computed once.
 * @param {Record<string, string>} anchors
 * @param {number} side -1 for the negative half, 1 for the positive one, 0 for all
 * @returns {Rgb[]}
 */
function table(anchors, side) {
  const known = tables.get(anchors) ?? [];
  if (known[side + 1]) return known[side + 1];
  const points = Object.entries(anchors)
    .map(([weight, color]) => ({ weight: Number(weight), lab: toLab(parse(color)) }))
    .filter(({ weight }) => side === 0 || weight === 0 || Math.sign(weight) === side)
    .map(({ weight, lab }) => ({ at: abs(weight) ** POWER, lab }))
    .sort((a, b) => a.at - b.at);
  const colors = Array.from({ length: STEPS }, (_, i) => {
    const at = i / (STEPS - 1);
    const next = max(
      1,
      points.findIndex((point) => point.at >= at - 1e-9),
    );
    const [a, b] = [points[next - 1], points[next]];
    const t = (at - a.at) / (b.at - a.at);
    return toRgb(/** @type {Rgb} */ (a.lab.map((value, c) => value + (b.lab[c] - value) * t)));
  });
  known[side + 1] = colors;
  tables.set(anchors, known);
  return colors;
}

/** @param {string} hex @returns {Rgb} */
function parse(hex) {
  const number = Number.parseInt(hex.slice(1), 16);
  return [number >> 16, (number >> 8) & 255, number & 255];
}

/** @param {number} channel */
function linear(channel) {
  const c = channel / 255;
  return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
}

/** @param {number} value */
function gamma(value) {
  const c = value <= 0.0031308 ? 12.92 * value : 1.055 * value ** (1 / 2.4) - 0.055;
  return round(255 * min(1, max(0, c)));
}

/** sRGB to OKLab (Björn Ottosson's matrices). @param {Rgb} color @returns {Rgb} */
function toLab(color) {
  const [r, g, b] = color.map(linear);
  const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const t = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return [
    0.2104542553 * l + 0.793617785 * m - 0.0040720468 * t,
    1.9779984951 * l - 2.428592205 * m + 0.4505937099 * t,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * t,
  ];
}

/** OKLab to sRGB. @param {Rgb} lab @returns {Rgb} */
function toRgb([L, a, b]) {
  const l = (L + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (L - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const t = (L - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    gamma(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * t),
    gamma(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * t),
    gamma(-0.0041960863 * l - 0.7034186147 * m + 1.707614701 * t),
  ];
}

/**
 * An image with a pixel for each value, row by row; a value without a colour has none.
 * @param {number} width
 * @param {number} height
 * @param {ArrayLike<number>} values
 * @param {(value: number) => number[] | null} color
 * @returns {OffscreenCanvas}
 */
export function pixelImage(width, height, values, color) {
  const image = new OffscreenCanvas(Math.max(1, width), Math.max(1, height));
  const pixels = new ImageData(image.width, image.height);
  for (let i = 0; i < values.length; i++) {
    const found = color(values[i]);
    if (!found) continue;
    for (let channel = 0; channel < 3; channel++) pixels.data[4 * i + channel] = found[channel];
    pixels.data[4 * i + 3] = 255;
  }
  /** @type {OffscreenCanvasRenderingContext2D} */ (image.getContext("2d")).putImageData(pixels, 0, 0);
  return image;
}

/**
 * The colours from 0 to 1, and the numbers below them.
 * @param {Theme} theme @returns {HTMLElement[]}
 */
export function weightScale(theme) {
  const stops = Array.from({ length: 21 }, (_, i) => css(weightColor((i / 20) ** (1 / 0.6), theme)));
  const label = (/** @type {number} */ mark) =>
    h("span", { style: { left: `${mark ** 0.6 * 100}%` } }, String(mark).replace(/^0\./, "."));
  return [
    h("div.bar", { style: { background: `linear-gradient(to right, ${stops.join(",")})` } }),
    h("div.ticks.num", ...TICKS.map(label)),
  ];
}

/**
 * A row whose weights are no numbers: hatched in red.
 * @param {CanvasRenderingContext2D} context @param {number} y @param {number} height @param {number} width
 * @param {Theme} theme
 */
export function paintBroken(context, y, height, width, theme) {
  context.fillStyle = theme === "dark" ? "#3a1a21" : "#fbe9ec";
  context.fillRect(0, y, width, max(1, height - (height >= 8 ? 1 : 0)));
  context.fillStyle = theme === "dark" ? "#ff7a8c66" : "#bf123855";
  for (let x = round(y) % 8; x < width; x += 8) context.fillRect(x, y, 1, max(1, height - (height >= 8 ? 1 : 0)));
}
