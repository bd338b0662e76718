// Lanes: which step is made of which. Queries, keys and values run side by side, and meet in scores and in context.

import { max, min } from "../data/math.js";
import { QUERY_CHAIN } from "../words/step-sentences.js";
import { attributes, fill, s } from "./dom.js";

/** @import { Flow } from "../words/step-sentences.js" */
/** @import { StepTensor } from "../data/step-tensors.js" */

const LANE = 16; // pixels from lane to lane
const FIRST = 10; // pixels to the left of the first
const BEND = 26; // pixels in which a line changes the lane

/**
 * Draw the lanes.
 * @param {SVGElement} svg
 * @param {Flow} flow
 * @param {number[]} heights where each step is, in pixels from the top
 */
export function drawPaths(svg, flow, heights) {
  const links = flow.links();
  const linked = new Set(links.flatMap(({ from, to }) => [from, to]));
  const places = flow.steps.map((tensor, i) => ({ x: FIRST + laneOf(tensor) * LANE, y: heights[i] }));
  const lines = links.map(({ from, to, lane }) => {
    const [a, b, x] = [places[from], places[to], FIRST + lane * LANE];
    const bend = min(BEND, (b.y - a.y) / 2);
    const leave = a.x === x ? "" : `C${a.x} ${a.y + bend / 1.6} ${x} ${a.y + bend / 2} ${x} ${a.y + bend}`;
    const enter =
      b.x === x ? `V${b.y}` : `V${b.y - bend}C${x} ${b.y - bend / 2} ${b.x} ${b.y - bend / 1.6} ${b.x} ${b.y}`;
    return s("path", { d: `M${a.x} ${a.y}${leave}${enter}` });
  });
  const dots = flow.steps.flatMap((tensor, i) => {
    if (!linked.has(i)) return [];
    const { x, y } = places[i];
    const letter = flow.byName.has("queries") ? letterOf(tensor) : "";
    if (!letter) return [s("circle", { cx: x, cy: y, r: 3.5 })];
    return [
      s("circle.lettered", { cx: x, cy: y, r: 7 }),
      s("text", { x, y: y + 3.5, "text-anchor": "middle" }, letter),
    ];
  });
  attributes(svg, { width: 2 * FIRST + 2 * LANE, height: max(0, ...heights) + FIRST });
  fill(svg, ...lines, ...dots);
}

/** @param {StepTensor} tensor */
function laneOf({ name, ofKeys }) {
  return name === "values" || name.endsWith(" values") ? 2 : ofKeys && name !== "source" ? 1 : 0;
}

/** @param {StepTensor} tensor */
function letterOf(tensor) {
  return [QUERY_CHAIN.includes(tensor.name) ? "q" : "", "k", "v"][laneOf(tensor)];
}
