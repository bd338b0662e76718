// Two texts: which word stands for which, and the difference of what both have.

import assert from "node:assert/strict";
import { test } from "node:test";
import { aligned, Match } from "../../../../src/regard/show/page/js/data/alignment.js";
import { Weights } from "../../../../src/regard/show/page/js/data/page-data.js";
import { largestChange } from "../../../../src/regard/show/page/js/data/word-changes.js";

const NONE = NaN;
const words = (text) => text.split(" ");

test("a minimal pair is taken position by position", () => {
  assert.deepEqual(aligned(words("The dog sat"), words("The cat sat")), [0, 1, 2]);
});

test("texts of two lengths are matched by the longest sequence that both have", () => {
  assert.deepEqual(aligned(words("The dog sat on the mat"), words("The old dog sat on a mat .")), [0, 2, 3, 4, -1, 6]);
});

test("texts of one length that are shifted are matched by words, where that matches more of them", () => {
  assert.deepEqual(aligned(words("a old b c d e"), words("a b c d e f")), [0, -1, 1, 2, 3, 4]);
});

test("texts with little in common are not matched", () => {
  assert.equal(aligned(words("one two three four"), words("five six seven")), null);
});

test("a key hidden from one side counts as 0, one hidden from both or in one text only has no cell", () => {
  const weights = (...values) => new Weights(1, values.length, Float32Array.from(values));
  const match = new Match([0], [0, 1, 2, -1]);
  const [a, b] = [weights(NONE, 0.25, NONE, 0.75), weights(NONE, NONE, 0.5)];
  assert.deepEqual([...match.difference(a, b).values], [NONE, -0.25, 0.5, NONE]);
  assert.deepEqual([...match.line(b, "query", 0)], [NONE, NONE, 0.5, NONE]);
  assert.deepEqual(largestChange(a, b, match), { query: 0, key: 2, before: 0, after: 0.5, size: 0.5 });
});
