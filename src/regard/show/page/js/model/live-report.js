// A reading as a report: what data/page-data.js reads, made here from live numbers as regard/show/page/payload.py makes
// it in Python.

import { describeSteps } from "./live-steps.js";
import { sequenceOf } from "./pieces.js";
import { rankOf, roleOf } from "./roles.js";
import { earlier, largestKey, meansOf } from "./statistics.js";

/** @import { Reading } from "./engine.js" */
/** @import { LiveReader } from "./live-reader.js" */
/** @import { Rows } from "./rows.js" */
/** @import { Measures } from "./statistics.js" */
/** @import { HeadInfo, LayerInfo, Report } from "../data/page-data.js" */

const THUMBNAIL = 64; // rows and columns of a small picture of a head
const NO_KEY = 65535;
const { floor, max, min, round, sqrt } = Math;

/**
 * The description of a reading, and its blocks by key.
 * @param {Reading} reading @param {Pick<LiveReader, "tokenizer" | "measures" | "steps">} reader
 * @param {string} title @param {number} number of the report in its page
 * @returns {{report: Report, blocks: Map<string, Uint8Array>}}
 */
export function describeReading(reading, { tokenizer, measures, steps }, title, number) {
  const { ids, model } = reading;
  const [T, before] = [ids.length, earlier(ids)];
  /** @type {Map<string, Uint8Array>} */
  const blocks = new Map();
  const [strongest, pictures] = [/** @type {Uint8Array[]} */ ([]), /** @type {Uint8Array[]} */ ([])];
  const ranks = /** @type {{place: [number, number], rank: [number, number]}[]} */ ([]);
  const layers = reading.weights.map((heads, layer) => {
    const { kv_heads, window } = model.layers[layer];
    const described = heads.map((kept, head) => {
      const rows = kept.all();
      const means = meansOf(measures, rows, before, window);
      const role = roleOf(measures, means, rows);
      ranks.push({ place: [layer, head], rank: rankOf(measures, role) });
      blocks.set(`weights.${number}.${layer}.${head}`, triangle(kept, window));
      strongest.push(strongestOf(rows));
      pictures.push(thumbnail(rows, window));
      return headInfo(measures, means, role);
    });
    const known = steps[layer] ?? null;
    return {
      ...layerInfo(layer, T, kv_heads, described, measures),
      steps: known && describeSteps(known.steps, known.length, T, `steps.${number}.${layer}`),
      without_steps: known ? "" : "The steps of this layer are not computed here.",
    };
  });
  blocks.set(`strongest.${number}`, joined(strongest));
  blocks.set(`thumbnails.${number}`, joined(pictures));
  ranks.sort((a, b) => a.rank[0] - b.rank[0] || a.rank[1] - b.rank[1]);
  const report = {
    title,
    precision: "weights computed here, in float32",
    sequences: [sequenceOf(tokenizer, ids)],
    layers,
    order: ranks.map(({ place }) => place),
    thumbnails: { rows: THUMBNAIL, cols: THUMBNAIL },
  };
  return { report, blocks };
}

/**
 * @param {Measures} measures @param {Record<string, import("./statistics.js").Mean>} means
 * @param {import("./roles.js").Role} role @returns {HeadInfo}
 */
function headInfo(measures, means, role) {
  const values = measures.averaged.map((name) => [name, means[name]?.mean ?? null]);
  const clear = measures.roles.some((kind) => kind.name === role.name && kind.clear);
  return { role: role.name, clear, evidence: role.evidence, means: Object.fromEntries(values) };
}

/**
 * @param {number} layer @param {number} T @param {number} kv_heads @param {HeadInfo[]} heads @param {Measures} measures
 * @returns {LayerInfo}
 */
function layerInfo(layer, T, kv_heads, heads, measures) {
  const most = { entropy: Math.log(max(T, 2)), distance: max(T - 1, 1) };
  return {
    name: `blocks.${layer}.attention`,
    T,
    S: T,
    queries: 0,
    keys: 0,
    across: false,
    kv_heads,
    most: Object.fromEntries(measures.averaged.map((name) => [name, most[/** @type {"entropy"} */ (name)] ?? 1])),
    encoding: { kind: "float32", triangle: true, highest: 1, coarse: 0 },
    grid: null,
    exact: {},
    heads,
    steps: null,
    without_steps: "",
  };
}

/** The rows one after another, NaN where the window hides a key. @param {Rows} rows @param {number | null} window */
function triangle(rows, window) {
  const all = rows.numbers();
  if (window !== null)
    for (let query = window; query < rows.length; query++) {
      const start = (query * (query + 1)) / 2;
      all.fill(Number.NaN, start, start + query + 1 - window);
    }
  return new Uint8Array(all.buffer);
}

/** For each query, its key with the largest weight, and that weight · 65535. @param {Float32Array[]} rows */
function strongestOf(rows) {
  const pairs = new Uint16Array(2 * rows.length);
  rows.forEach((row, query) => {
    const key = largestKey(row);
    const isKnown = row[key] >= 0;
    pairs[2 * query] = isKnown ? key : NO_KEY;
    pairs[2 * query + 1] = isKnown ? round(min(1, row[key]) * 65535) : 0;
  });
  return new Uint8Array(pairs.buffer);
}

/**
 * A head as a small picture: how much of a row's weight is in each cell, as 254 · its root; 255 is hidden.
 * @param {Float32Array[]} rows @param {number | null} window
 */
function thumbnail(rows, window) {
  const T = rows.length;
  const size = min(THUMBNAIL, T);
  const cell = new Int32Array(T);
  for (let i = 0; i < size; i++) cell.fill(i, floor((i * T) / size), floor(((i + 1) * T) / size));
  const [mass, seen, queries] = [new Float64Array(size * size), new Uint8Array(size * size), new Float64Array(size)];
  rows.forEach((row, query) => {
    const at = cell[query] * size;
    queries[cell[query]] += 1;
    for (let key = window === null ? 0 : max(0, row.length - window); key < row.length; key++) {
      mass[at + cell[key]] += row[key];
      seen[at + cell[key]] = 1;
    }
  });
  const codes = new Uint8Array(size * size).fill(255);
  for (let at = 0; at < codes.length; at++)
    if (seen[at]) codes[at] = round(sqrt(min(1, mass[at] / queries[floor(at / size)])) * 254);
  return codes;
}

/** @param {Uint8Array[]} parts */
function joined(parts) {
  const all = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}
