import assert from "node:assert/strict";
import { test } from "node:test";
import { fromPlanes, loadSteps, StepTensor } from "../../../../src/regard/show/page/js/data/step-tensors.js";

const info = (options) => ({
  name: "x",
  operation: "",
  shape: "",
  why: "",
  dtype: "float32",
  heads: 1,
  bytes: 3,
  block: "b",
  strides: [],
  axes: [],
  sizes: [],
  ...options,
});
const counted = (length) => Float32Array.from({ length }, (_, i) => i);
// 3 words of 2 heads of 5 numbers
const [T, H, D] = [3, 2, 5];
const joined = new StepTensor(
  info({ axes: ["query", "width"], sizes: [T, H * D], strides: [H * D, 1], heads: H }),
  counted(T * H * D),
  H,
);
const split = new StepTensor(
  info({ axes: ["query", "head", "width"], sizes: [T, H, D], strides: [H * D, D, 1] }),
  counted(T * H * D),
  H,
);
const transposed = new StepTensor(
  info({ axes: ["head", "query", "width"], sizes: [H, T, D], strides: [D, H * D, 1] }),
  counted(T * H * D),
  H,
);
const choice = { head: 1, query: 2, key: 0, number: 0 };

test("numbers are read from three planes of bytes, and infinity stays infinity", () => {
  // 1.0 is 3f800000, -2.5 is c0200000, -inf is ff800000
  const bytes = Uint8Array.from([0x3f, 0xc0, 0xff, 0x80, 0x20, 0x80, 0, 0, 0]);
  assert.deepEqual([...fromPlanes(bytes, 3)], [1, -2.5, -Infinity]);
});

test("a head's part of a word is the same before and after split and transpose", () => {
  assert.deepEqual([...joined.part(choice)], [25, 26, 27, 28, 29]);
  assert.deepEqual([...split.part(choice)], [25, 26, 27, 28, 29]);
  assert.deepEqual([...transposed.part(choice)], [25, 26, 27, 28, 29]);
});

test("all heads of a word are one after the other", () => {
  for (const one of [joined, split, transposed])
    assert.deepEqual([...one.all(choice)], [20, 21, 22, 23, 24, 25, 26, 27, 28, 29]);
});

test("the picture has a block for each head, a row for each word", () => {
  const grids = [split, transposed].map((one) => one.grid());
  for (const { blocks, rows, cols, at } of grids) {
    assert.deepEqual([blocks, rows, cols], [H, T, D]);
    assert.equal(at(1, 2, 3), 28);
  }
  assert.deepEqual(
    ["blocks", "rows", "cols"].map((name) => joined.grid()[name]),
    [1, T, H * D],
  );
});

test("heads that share keys read the same ones", () => {
  const keys = new StepTensor(
    info({ axes: ["head", "key", "width"], sizes: [2, T, D], strides: [T * D, D, 1] }),
    counted(2 * T * D),
    6,
  );
  assert.deepEqual(
    [0, 1, 2, 3, 4, 5].map((head) => keys.at(head)),
    [0, 0, 0, 1, 1, 1],
  );
  assert.equal(keys.ofKeys, true);
  assert.deepEqual([...keys.part({ head: 4, query: 0, key: 1, number: 0 })], [20, 21, 22, 23, 24]);
});

test("a block that two steps read is asked for once", async () => {
  const asked = [];
  const transport = async (key) => (asked.push(key), new Uint8Array(3 * T * H * D));
  const steps = await loadSteps([joined.info, split.info, info({ name: "large", block: null })], H, transport);
  assert.deepEqual(asked, ["b"]);
  assert.equal(steps[0].values, steps[1].values);
  assert.equal(steps[2].values, null);
});
