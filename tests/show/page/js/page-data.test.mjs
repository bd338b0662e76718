// Weights: what is stored is read back, hidden is never a weight, and words keep their sums.

import assert from "node:assert/strict";
import { test } from "node:test";
import { decodeWeights, largest, Reports, Weights } from "../../../../src/regard/show/page/js/data/page-data.js";

const planes = (codes) => Uint8Array.from([...codes.map((c) => c >> 8), ...codes.map((c) => c & 255)]);
const near = (a, b, within) => {
  assert.equal(a.length, b.length);
  a.forEach((value, i) => {
    if (Number.isNaN(b[i])) assert.ok(Number.isNaN(value), `${i}: ${value} is not hidden`);
    else assert.ok(Math.abs(value - b[i]) <= within, `${i}: ${value} is not ${b[i]}`);
  });
};

test("coarse codes are weights to four decimals", () => {
  const codes = Uint8Array.from([15, 7, 255, 255, 255, 255]); // 4095, 2047, hidden
  const encoding = /** @type {const} */ ({ kind: "linear16", triangle: false, highest: 1, coarse: 4 });
  const weights = decodeWeights(codes, 1, 3, encoding);
  assert.deepEqual([...weights.values], [1, Math.fround(2047 / 4095), NaN]);
});

test("a triangle of linear16 has hidden cells after each query", () => {
  const weights = decodeWeights(planes([65534, 16384, 49150]), 2, 2, { kind: "linear16", triangle: true, highest: 1 });
  near([...weights.values], [1, Number.NaN, 16384 / 65534, 49150 / 65534], 1e-7);
});

test("65535 is hidden in a full map", () => {
  const weights = decodeWeights(planes([65535, 65534, 0, 32767]), 2, 2, {
    kind: "linear16",
    triangle: false,
    highest: 1,
  });
  near([...weights.values], [Number.NaN, 1, 0, 0.5], 1e-5);
});

test("root7 takes the largest weights of a row from the exact part", () => {
  const exact = new Uint16Array(16).fill(65535);
  exact[0] = 2;
  exact[8] = 60000;
  const bytes = new Uint8Array([63, 127, 126, ...new Uint8Array(exact.buffer)]);
  const weights = decodeWeights(bytes, 1, 3, { kind: "root7", triangle: false, highest: 0.1 });
  near([...weights.values], [0.025, Number.NaN, 60000 / 65535], 1e-6);
});

test("words are keys added up and queries averaged", () => {
  const NONE = Number.NaN;
  const weights = new Weights(3, 3, Float32Array.from([1, NONE, NONE, 0.25, 0.75, NONE, 0.125, 0.5, 0.375]));
  const merged = weights.merged([0, 1, 1], [0, 1, 1]);
  near([...merged.values], [1, NONE, (0.25 + 0.125) / 2, (0.75 + 0.875) / 2], 1e-7);
});

test("a query that sees nothing does not count in its word", () => {
  const NONE = Number.NaN;
  const weights = new Weights(2, 2, Float32Array.from([NONE, NONE, 0.5, 0.5]));
  near([...weights.merged([0, 0], [0, 1]).values], [0.5, 0.5], 1e-7);
});

test("the largest come first, hidden and small ones are left out", () => {
  assert.deepEqual(largest([0.1, Number.NaN, 0.5, 0.3, 0.05], 2), [
    { index: 2, value: 0.5 },
    { index: 3, value: 0.3 },
  ]);
  assert.deepEqual(largest([0.1, 0.05], 3, 0.08), [{ index: 0, value: 0.1 }]);
});

test("received is the sum of a column, hidden cells left out", () => {
  const NONE = Number.NaN;
  near([...new Weights(2, 2, Float32Array.from([1, NONE, 0.25, 0.75])).received()], [1.25, 0.75], 1e-7);
});

test("a head is asked for once, and again after a failure", async () => {
  const layer = { T: 1, S: 1, encoding: { kind: "linear16", triangle: true, highest: 1 } };
  let calls = 0;
  const transport = async () => {
    calls += 1;
    if (calls === 1) throw new Error("no answer");
    return planes([65534]);
  };
  const reports = new Reports({ reports: [{ layers: [layer] }] }, transport);
  await assert.rejects(reports.weights(0, 0, 0), /no answer/);
  await reports.weights(0, 0, 0);
  await reports.weights(0, 0, 0);
  assert.equal(calls, 2);
});

test("a layer without weights says so", async () => {
  const reports = new Reports({ reports: [{ layers: [{ encoding: null }] }] }, async () => new Uint8Array());
  await assert.rejects(reports.weights(0, 0, 0), /The weights of layer 0 are not in this page/);
});
