// Weights that are not numbers: where NaN or infinity starts, and which rows have none.

import { min } from "../data/math.js";
import { Names } from "./names.js";

/** @import { LayerInfo, Report } from "../data/page-data.js" */

/**
 * The rows of a head whose weights are no numbers.
 * @param {LayerInfo} info @param {number} head @param {Names} names of the rows @returns {Set<number>}
 */
export function brokenRows({ broken }, head, names) {
  const units = new Set();
  for (const [first, last] of broken?.[head]?.rows ?? [])
    for (let token = first; token <= last; token++) units.add(names.unit[token]);
  return units;
}

/** "NaN" or "infinity", as a head's weights have it. @param {LayerInfo} info @param {number} head */
export function brokenKind({ broken }, head) {
  return broken?.[head]?.kind ?? "";
}

/**
 * Where it starts: the first layer that has it, and the first word there; "" where all weights are numbers.
 * @param {Report} report @returns {string}
 */
export function whereBroken(report) {
  const layer = report.layers.findIndex(({ broken }) => broken);
  if (layer < 0) return "";
  const info = report.layers[layer];
  const heads = Object.entries(info.broken ?? {});
  const first = min(...heads.map(([, { rows }]) => rows[0][0]));
  const [head, { kind }] = /** @type {typeof heads[0]} */ (heads.find(([, { rows }]) => rows[0][0] === first));
  const sequence = info.queries === null ? null : report.sequences[info.queries];
  const word = sequence ? ` (${new Names(sequence, info.T, false).name(first)})` : "";
  const count = heads.length === info.heads.length ? "every head" : `head ${layer}.${head}`;
  return `${kind === "NaN" ? "NaN" : "Infinity"} starts in layer ${layer} at position ${first}${word}, in ${count}.`;
}
