// Where heads stand: layers down, those that share a key head together.

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  byLayer,
  columnsFor,
  inOrder,
  layerText,
  markNotes,
  sharing,
} from "../../../../src/regard/show/page/js/draw/head-grid.js";

const layer = (/** @type {number} */ heads, /** @type {number} */ kv_heads, more = {}) =>
  /** @type {any} */ ({
    name: "attn",
    heads: Array(heads).fill({}),
    kv_heads,
    queries: 0,
    keys: 0,
    across: false,
    T: 5,
    S: 5,
    ...more,
  });
const report = (/** @type {any[]} */ ...layers) => /** @type {any} */ ({ layers, sequences: [] });
const SIZES = { columns: 6, step: 100, down: 110 };

test("heads are in groups where they share a key head, and each group is named", () => {
  const { places, titles, height } = byLayer(report(layer(6, 2), layer(6, 2)), SIZES);
  assert.deepEqual(
    titles.map(({ text, x, y }) => [text, x, y]),
    [
      ["heads 0–2 share key head 0", 0, 0],
      ["heads 3–5 share key head 1", 300, 0],
      ["heads 0–2 share key head 0", 0, 132],
      ["heads 3–5 share key head 1", 300, 132],
    ],
  );
  assert.deepEqual(places[7], { layer: 1, head: 1, x: 100, y: 154 });
  assert.equal(height, 264);
});

test("a group that does not fit beside another begins a row", () => {
  const { places, titles } = byLayer(report(layer(6, 2)), { ...SIZES, columns: 4 });
  assert.deepEqual(places.map(({ x, y }) => [x, y])[3], [0, 154]);
  assert.deepEqual(
    titles.map(({ y }) => y),
    [0, 132],
  );
});

test("a group wider than the page goes on in the next row", () => {
  const { places, titles } = byLayer(report(layer(5, 1)), { ...SIZES, columns: 3 });
  assert.deepEqual(places.map(({ x, y }) => [x, y])[3], [0, 132]);
  assert.equal(titles.length, 1);
});

test("without shared key heads there are no titles, and narrow pages flow on", () => {
  assert.deepEqual(byLayer(report(layer(5, 5), layer(5, 5)), SIZES).titles, []);
  assert.deepEqual(byLayer(report(layer(5, 5), layer(5, 5)), SIZES).places[5], { layer: 1, head: 0, x: 0, y: 110 });
  assert.deepEqual(byLayer(report(layer(5, 5), layer(5, 5)), { ...SIZES, columns: 3 }).places[5], {
    layer: 1,
    head: 0,
    x: 200,
    y: 110,
  });
});

test("layers that read different texts are named", () => {
  const cross = report(layer(2, 2), layer(2, 2, { name: "cross", across: true, queries: 1, T: 3 }));
  assert.deepEqual(
    [0, 1].map((at) => layerText(cross, at)),
    ["0 · attn: 5 tokens", "1 · cross: 3 tokens look at 5 of another text"],
  );
  assert.equal(layerText(report(layer(2, 2), layer(2, 2)), 0), "");
});

test("what is assumed or unknown is said once, with its layers", () => {
  const marks = ["positions unknown: 3 queries attend to 5 keys"];
  const marked = report(layer(2, 2, { marks }), layer(2, 2), layer(2, 2, { marks: [...marks, "padding assumed: so"] }));
  assert.deepEqual(markNotes(marked), [
    "* layers 0, 2: positions unknown: 3 queries attend to 5 keys",
    "* layer 2: padding assumed: so",
  ]);
  assert.deepEqual(markNotes(report(layer(2, 2))), []);
});

test("columns do not tear groups apart where they can be avoided", () => {
  const columns = (/** @type {number} */ width, /** @type {any} */ one) => columnsFor(report(one), width, 96);
  assert.equal(columns(1000, layer(8, 8)), 8);
  assert.equal(columns(700, layer(8, 2)), 4); // 7 would fit
  assert.equal(columns(358, layer(8, 2)), 4); // a little narrower than others
  assert.equal(columns(300, layer(8, 2)), 2);
  assert.equal(columns(300, layer(7, 1)), 3); // 7 has no divisor
  assert.equal(sharing(layer(8, 2)), 4);
});

test("sorted heads have no groups", () => {
  const { places, titles } = inOrder(
    [
      { layer: 1, head: 1 },
      { layer: 0, head: 1 },
    ],
    { ...SIZES, columns: 1 },
  );
  assert.deepEqual(
    [titles, places.map(({ layer, y }) => [layer, y])],
    [
      [],
      [
        [1, 6],
        [0, 116],
      ],
    ],
  );
});
