import assert from "node:assert/strict";
import { test } from "node:test";
import {
  changes,
  isChanged,
  isOnAverage,
  mostChanged,
  moved,
  pairs,
} from "../../../../src/regard/show/page/js/data/head-changes.js";
import { Weights } from "../../../../src/regard/show/page/js/data/page-data.js";

const averaged = [
  { name: "sink", label: "sink" },
  { name: "distance", label: "distance" },
];
const head = (role, sink, distance) => ({ role, clear: true, evidence: "", means: { sink, distance } });
const report = (S, heads, pieces) => ({
  title: "",
  precision: "",
  order: [],
  thumbnails: null,
  sequences: pieces ? [{ pieces, names: {}, words: [] }] : [],
  layers: [
    {
      name: "",
      T: S,
      S,
      queries: pieces ? 0 : null,
      keys: pieces ? 0 : null,
      kv_heads: heads.length,
      most: { sink: 1, distance: S - 1 },
      encoding: null,
      heads,
    },
  ],
});

test("a distance is compared as a share of the longest one, so lengths do not matter", () => {
  const [a, b] = [report(11, [head("mixed", 0.25, 5)]), report(21, [head("mixed", 0.5, 10)])];
  const [largest, other] = pairs({ report: a, layer: 0, head: 0 }, { report: b, layer: 0, head: 0 }, averaged);
  assert.deepEqual([largest.name, largest.size, largest.before, largest.after], ["sink", 0.25, 0.25, 0.5]);
  assert.deepEqual([other.name, other.size], ["distance", 0]);
});

test("a statistic that one side lacks is not compared", () => {
  const [a, b] = [report(5, [head("mixed", null, 1)]), report(5, [head("mixed", 0.5, 1)])];
  assert.deepEqual(
    pairs({ report: a, layer: 0, head: 0 }, { report: b, layer: 0, head: 0 }, averaged).map((one) => one.name),
    ["distance"],
  );
});

test("the most changed head comes first, also where only its role changed, and equal ones in their own order", () => {
  const before = report(5, [head("self", 0.1, 1), head("self", 0.1, 1), head("self", 0.1, 1)]);
  const after = report(5, [head("self", 0.1, 1), head("local", 0.1, 1), head("self", 0.7, 1)]);
  const list = changes(before, after, averaged);
  assert.deepEqual(
    list.map((one) => one.head),
    [2, 1, 0],
  );
  assert.deepEqual(
    list.filter(isChanged).map((one) => one.head),
    [2, 1],
  );
});

test("reports with different heads are not compared", () => {
  assert.equal(changes(report(5, [head("self", 0, 0)]), report(5, []), averaged), null);
});

test("the row that moved most weight is found", () => {
  assert.equal(mostChanged(new Weights(3, 2, Float32Array.from([0.1, -0.1, 0.5, -0.5, NaN, NaN]))), 1);
});

test("keys are listed by how much they changed, and small ones are left out", () => {
  const list = moved([0.5, 0.005, 0.4, NaN], [0.1, 0.009, 0.45, 0.2], 3);
  assert.deepEqual(
    list.map((one) => one.index),
    [0, 3, 2],
  );
});

test("a head whose means stayed changed if one weight of a word did, and comes after those whose means did", () => {
  const [a, b] = [
    [head("self", 0.5, 0), head("self", 0.5, 0), head("self", 0.5, 0)],
    [head("self", 0.5, 0), head("self", 0.51, 0), head("self", 0.9, 0)],
  ].map((heads) => report(5, heads));
  const word = (_, i) => ({ query: 3, key: 1, before: 0.58, after: 0.2, size: i ? 0.01 : 0.38 });
  const list = changes(a, b, averaged, word);
  assert.deepEqual(
    list.map((one) => [one.head, isOnAverage(one), isChanged(one)]),
    [
      [2, true, true],
      [0, false, true],
      [1, false, false],
    ],
  );
});
