import assert from "node:assert/strict";
import { test } from "node:test";
import { computeStep } from "../../../../src/regard/show/page/js/data/computed-steps.js";
import { loadSteps, StepTensor } from "../../../../src/regard/show/page/js/data/step-tensors.js";

const info = (options) => ({
  name: "",
  operation: "",
  heads: 1,
  bytes: 3,
  block: null,
  strides: [],
  axes: [],
  ...options,
});
const tensor = (values, sizes, axes, H = 1, options = {}) => {
  const strides = sizes.map((_, i) => sizes.slice(i + 1).reduce((product, size) => product * size, 1));
  return new StepTensor(info({ sizes, strides, axes, ...options }), Float32Array.from(values), H);
};
const map = (values, sizes) => tensor(values, sizes, ["head", "query", "key"], sizes[0]);
const recipe = (by, of, more = {}) => ({ by, of, hidden: null, factor: null, ...more });

test("scores are products of queries and keys, also where heads share keys", () => {
  const queries = tensor([1, 2, 3, 4, 5, 6, 7, 8], [2, 4], ["query", "width"], 2, { heads: 2 });
  const keys = tensor([1, 0, 0, 1, 1, 1], [1, 3, 2], ["head", "key", "width"], 2);
  const scores = computeStep(recipe("product", [0, 1]), [queries, keys], [2, 2, 3], 2, null);
  assert.deepEqual([...scores], [1, 2, 3, 5, 6, 11, 3, 4, 7, 7, 8, 15]);
});

test("a mask hides the future, or what its bits say", () => {
  const before = map([1, 2, 3, 4, 5, 6], [1, 2, 3]);
  const hide = (bits) => [...computeStep(recipe("mask", [0]), [before], [1, 2, 3], 1, bits)];
  assert.deepEqual(hide(null), [1, 2, -Infinity, 4, 5, 6]);
  assert.deepEqual(hide(Uint8Array.of(0b10010100)), [-Infinity, 2, 3, -Infinity, 5, -Infinity]);
});

test("rows of a softmax add up to 1, and one without a visible key is 0", () => {
  const before = map([7, 7, -Infinity, -Infinity], [1, 2, 2]);
  const weights = computeStep(recipe("softmax", [0]), [before], [1, 2, 2], 1, null);
  assert.deepEqual([...weights], [0.5, 0.5, 0, 0]);
});

test("a mix has the values of each head by its weights, heads side by side", () => {
  const weights = map([1, 0, 0.5, 0.5, 0, 1, 0.25, 0.75], [2, 2, 2]);
  const values = tensor([1, 2, 3, 4, 5, 6, 7, 8], [2, 4], ["key", "width"], 2, { heads: 2 });
  const mix = computeStep(recipe("mix", [0, 1]), [weights, values], [2, 4], 2, null);
  assert.deepEqual([...mix], [1, 2, 7, 8, 3, 4, 6, 7]);
});

test("steps are computed one from the other, and not where numbers are missing", async () => {
  const maps = { axes: ["head", "query", "key"], sizes: [1, 2, 2], strides: [4, 2, 1] };
  const steps = [
    info({ ...maps, block: "scores" }),
    info({ ...maps, made: recipe("scale", [0], { factor: 0.5 }) }),
    info({ ...maps, made: recipe("same", [1]) }),
    info({ ...maps }),
    info({ ...maps, made: recipe("softmax", [3]) }),
  ];
  const planes = Uint8Array.from([0x3f, 0xc0, 0xc0, 0x41, 0x80, 0, 0x80, 0, 0, 0, 0, 0]); // 1, -2, -4, 8
  const loaded = await loadSteps(steps, 1, async () => planes);
  assert.deepEqual(
    loaded.map(({ values }) => values && [...values]),
    [[1, -2, -4, 8], [0.5, -1, -2, 4], [0.5, -1, -2, 4], null, null],
  );
});
