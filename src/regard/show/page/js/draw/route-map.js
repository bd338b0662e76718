// The map of routes: a column before each layer and after the last, a row for each word that a route passes.

import { abs, max, min } from "../data/math.js";
import { attributes, fill, fitText, s, textWidth } from "./dom.js";

/** @import { Route } from "../data/routes.js" */
/** @import { Names } from "../words/names.js" */

const ROWS = 7; // of the usual height
const GAP = 10; // pixels for words that are left out between two rows
const LONGEST = 140;
const ALONG = [0.5, 0.4, 0.6, 0.3, 0.7, 0.25, 0.75]; // where the caption of a step may be

/**
 * @typedef {{routes: Route[], names: Names, layers: number[], width: number, font: string, chosen: number, high:
 *   number, by: (layer: number, query: number, key: number) => string}} RouteMapOptions chosen: the route that is
 *   outlined; by: the head that gives most on a step
 */

/**
 * Draw the routes.
 * @param {Element} svg
 * @param {RouteMapOptions} options
 */
export function drawRoutes(svg, { routes, names, layers, width, font, chosen, high, by }) {
  const tokens = [...new Set(routes.flatMap((one) => one.tokens))].sort((a, b) => a - b);
  const names_ = tokens.map((token) => fitText(names.said(token), LONGEST, font));
  const label = 1.1 * max(24, ...names_.map((name) => textWidth(name, font))) + 12; // the ends are bold
  const columns = layers.length + 1;
  const step = (width - 2 * label) / max(1, columns - 1);
  const top = 26;
  /** @type {Map<number, number>} */
  const heights = new Map();
  // The picture is as high for every word: pointing at another moves nothing.
  const gaps = tokens.filter((token, i) => i && token - tokens[i - 1] > 1).length;
  const row = min(high, (ROWS * high - gaps * GAP) / max(1, tokens.length));
  let y = top + row / 2;
  tokens.forEach((token, i) => {
    if (i) y += row + (token - tokens[i - 1] > 1 ? GAP : 0);
    heights.set(token, y);
  });
  const at = (/** @type {number} */ column, /** @type {number} */ token) => ({
    x: label + column * step,
    y: heights.get(token) ?? 0,
  });
  const every = max(1, Math.ceil(34 / step));
  const head = Array.from({ length: columns }, (_, i) => {
    const text = i === 0 ? "input" : String(layers[i - 1]);
    const shown = i === 0 || (i % every === 0 && step * (i - 0.5) > 30) || i === columns - 1;
    return shown
      ? s("text.quiet", { x: label + i * step - (i ? step / 2 : 0), y: 12, "text-anchor": "middle" }, text)
      : null;
  });
  const rows = tokens.map((token, i) => {
    const y = heights.get(token) ?? 0;
    const [first, last] = [routes[0]?.tokens[0] === token, routes[0]?.tokens.at(-1) === token];
    return s(
      "g",
      s("path.axis", { d: `M${label} ${y}H${width - label}` }),
      s("text", { class: first ? "on" : "", x: label - 10, y: y + 4, "text-anchor": "end" }, names_[i]),
      s("text", { class: last ? "on" : "", x: width - label + 10, y: y + 4 }, names_[i]),
    );
  });
  /** The strongest route of a step: its width. @type {Map<string, {share: number, on: boolean}>} */
  const steps = new Map();
  const strongest = max(1e-12, ...routes.map((one) => one.strength));
  routes.forEach(({ tokens: way, strength }, number) => {
    const share = strength / strongest;
    for (let i = 1; i < way.length; i++) {
      const key = `${i}.${way[i - 1]}.${way[i]}`;
      const before = steps.get(key);
      steps.set(key, { share: max(before?.share ?? 0, share), on: (before?.on ?? false) || number === chosen });
    }
  });
  /** @type {SVGElement[]} */
  const captions = [];
  /** @type {{x: number, y: number}[]} where captions are */
  const taken = [];
  const drawn = [...steps]
    .sort((a, b) => Number(a[1].on) - Number(b[1].on))
    .map(([key, { share, on }]) => {
      const [column, from, to] = key.split(".").map(Number);
      const [a, b] = [at(column - 1, from), at(column, to)];
      const middle = (a.x + b.x) / 2;
      const stays = from === to;
      const wide = max(1, 6 * share).toFixed(1);
      if (!stays && step >= 30) {
        const along = ALONG.map((t) => ({ x: a.x + t * (b.x - a.x), y: a.y + (b.y - a.y) * (3 - 2 * t) * t * t - 4 }));
        const isFree = (/** @type {{x: number, y: number}} */ { x, y }) =>
          taken.every((one) => abs(one.x - x) > 26 || abs(one.y - y) > 12);
        const place = along.find(isFree) ?? along[0];
        taken.push(place);
        const text = by(column - 1, to, from);
        captions.push(s("text", { class: on ? "n on" : "n", ...place, "text-anchor": "middle" }, text));
      }
      return s("path", {
        class: `way${stays ? " stays" : ""}${on ? " on" : ""}`,
        "stroke-width": wide,
        d: stays ? `M${a.x} ${a.y}H${b.x}` : `M${a.x} ${a.y}C${middle} ${a.y} ${middle} ${b.y} ${b.x} ${b.y}`,
      });
    });
  attributes(svg, { width, height: top + ROWS * high + 4 });
  fill(svg, ...head, ...rows, ...drawn, ...captions);
}
