// Questions and answers: facts of position are stated of one text only.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Weights } from "../../../../src/regard/show/page/js/data/page-data.js";
import { Names } from "../../../../src/regard/show/page/js/words/names.js";
import { askHead } from "../../../../src/regard/show/page/js/words/questions.js";

const SEQUENCE = { pieces: ["a", " b", " c"], names: {}, bytes: {}, padding: [], words: [0, 1, 2] };
const WEIGHTS = new Weights(3, 3, Float32Array.from([1, 0, 0, 0.9, 0.1, 0, 0, 0, 1]));

test("a fact of position is stated where a text looks at itself, and not between two texts", () => {
  const report = /** @type {any} */ ({ sequences: [SEQUENCE] });
  const answer = (/** @type {boolean} */ across) => {
    const { rows, cols } = Names.of(report, /** @type {any} */ ({ queries: 0, keys: 0, across, T: 3, S: 3 }), false);
    return JSON.stringify(askHead(WEIGHTS, rows, cols, "query", 2).answer);
  };
  assert.ok(answer(false).includes("itself"));
  assert.ok(!answer(true).includes("itself"));
});
