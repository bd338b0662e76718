import assert from "node:assert/strict";
import { test } from "node:test";
import { cellOf, coarser, decodeLong, firstOf, LongHead } from "../../../../src/regard/show/page/js/data/long-head.js";
import { Weights } from "../../../../src/regard/show/page/js/data/page-data.js";

const near = (a, b, most = 1e-4) => assert.ok(Math.abs(a - b) <= most, `${a} is not near ${b}`);

test("every token is in the cell whose first token is not after it", () => {
  for (let token = 0; token < 617; token++) {
    const cell = cellOf(token, 617, 131);
    assert.ok(firstOf(cell, 617, 131) <= token && token < firstOf(cell + 1, 617, 131));
  }
});

test("a coarser grid sums over keys and weighs queries by how many there are, so rows add up to 1", () => {
  // 5 queries in 3 rows: cells of 1, 2 and 2
  const grid = new Weights(3, 3, Float32Array.from([1, NaN, NaN, 0.25, 0.75, NaN, 0.5, 0.25, 0.25]));
  const level = coarser(grid, 2, 5);
  assert.deepEqual([level.T, level.S], [2, 2]);
  near(level.at(0, 0), 1); // both rows have all of it there
  assert.ok(Number.isNaN(level.at(0, 1)));
  near(level.at(1, 0), 0.75);
  near(level.at(1, 1), 0.25);
  const key = coarser(new Weights(3, 2, Float32Array.from([1, 0, 0.4, 0.6, 0, 1])), 3, 5);
  near(key.at(0, 0), 1);
});

test("a head of known weights has its entropy, what it receives and its largest weights", () => {
  const head = LongHead.fromWeights(new Weights(2, 3, Float32Array.from([1, NaN, NaN, 0.25, 0.75, 0])));
  near(head.entropy[0], 0);
  near(head.entropy[1], -(0.25 * Math.log(0.25) + 0.75 * Math.log(0.75)));
  assert.deepEqual([...head.received], [1.25, 0.75, 0]);
  near(head.times[0], 1.25 / (1 + 1 / 3)); // even weights: 1 of the first query, a third of the second
  assert.deepEqual(head.top(1), [
    { key: 1, weight: 0.75 },
    { key: 0, weight: 0.25 },
  ]);
  assert.deepEqual(head.lookers(0), [
    { query: 0, weight: 1 },
    { query: 1, weight: 0.25 },
  ]);
});

test("the query of a block is the one with the largest weight on the key block", () => {
  const head = LongHead.fromWeights(new Weights(3, 2, Float32Array.from([1, 0, 0.2, 0.8, 0.9, 0.1])));
  assert.equal(head.tellingQuery([0, 3], [1, 2]), 1);
  assert.equal(head.tellingQuery([2, 3], [0, 1]), 2);
});

test("bytes become grid, keys, weights and statistics", () => {
  const [T, S] = [2, 3];
  const planes = (codes) => [...codes.map((code) => code >> 8), ...codes.map((code) => code & 255)];
  const rank = (first, rest) => [...first, ...Array(7 * T).fill(rest)];
  const bytes = Uint8Array.from([
    ...planes([65534, 65535]), // one row of two cells, the second hidden
    ...planes(rank([1, 0xffff], 0)), // query 0 at position 1: key 0; query 1 at position 2: key 3 is ahead, but has no weight
    ...planes(rank([65535, 0], 0)),
    ...planes([0x3c00, 0x4000]),
    ...planes([0x3c00, 0, 0x3800]),
    ...planes([0x3800, 0x7e00, 0]),
  ]);
  const head = decodeLong(bytes, {
    name: "x",
    T,
    S,
    grid: { rows: 1, cols: 2 },
    encoding: { kind: "linear16", triangle: false, highest: 1 },
    exact: {},
  });
  assert.deepEqual([...head.mass.values], [1, NaN]);
  assert.deepEqual([head.top(0), head.top(1)], [[{ key: 0, weight: 1 }], []]);
  assert.deepEqual([...head.entropy, ...head.received, ...head.times], [1, 2, 1, 0, 0.5, 0.5, NaN, 0]);
});
