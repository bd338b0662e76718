// The parts of a live page that need no document: its address, cuts, the next token and the guided start.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { fromSearch, toSearch } from "../../../../src/regard/show/page/js/live/address.js";
import { cutOf, nameOf, readCuts, toggled, within } from "../../../../src/regard/show/page/js/live/cuts.js";
import { STOPS } from "../../../../src/regard/show/page/js/live/tour.js";
import { likely, sample } from "../../../../src/regard/show/page/js/model/next-token.js";

const HEADS = [3, 2];

test("a text and its cuts come back from their address", () => {
  for (const place of [
    { text: "a & b = c?\n#猫", cuts: [] },
    { text: "the beginning", cuts: ["0.2", "1.1:7-3"] },
    { text: "  two  spaces", cuts: ["1.0"] },
  ]) {
    assert.deepEqual(fromSearch(toSearch(place, "the beginning"), "the beginning", HEADS), place);
  }
});

test("a long text is not kept in the address, and what others put there stays", () => {
  assert.equal(toSearch({ text: "x".repeat(2001), cuts: [] }, ""), "?");
  assert.equal(toSearch({ text: "a", cuts: [] }, "a", "?plain=1&text=b&cut=0.1"), "?plain=1");
});

test("cuts that name no head of the model are left out", () => {
  assert.deepEqual(readCuts("0.2,0.3,2.0,1.1,1.1,x,0.1:5,0.1:5-2,../", HEADS), ["0.2", "1.1", "0.1:5-2"]);
});

test("a cut is put back by cutting it again", () => {
  assert.deepEqual(toggled(toggled(["0.2"], "1.1"), "0.2"), ["1.1"]);
});

test("cuts are heads and edges for the engine, and words for people", () => {
  assert.deepEqual(cutOf(["0.2", "1.1:7-3"]), { heads: [[0, 2]], edges: [[1, 1, 7, 3]] });
  assert.equal(cutOf([]), null);
  assert.equal(nameOf("4.3"), "4.3");
  assert.equal(
    nameOf("4.3:7-3", (token) => `w${token}`),
    "w7 → w3 in 4.3",
  );
  assert.deepEqual(within(["0.2", "1.1:7-3", "1.1:6-0"], 7), ["0.2", "1.1:6-0"]);
});

test("the most likely tokens of two readings are those of either, largest first, with both probabilities", () => {
  const [a, b] = [new Float32Array(20), new Float32Array(20)];
  a[7] = 4;
  b[3] = 6;
  b[11] = 4;
  const next = likely([a, b], { decode: ([id]) => `t${id}` }, [11]);
  assert.equal(next.length, 10);
  assert.deepEqual(
    next.slice(0, 3).map(({ id, text, ends }) => [id, text, ends]),
    [
      [3, "t3", false],
      [7, "t7", false],
      [11, "t11", true],
    ],
  );
  const sum = (logits) => logits.reduce((all, one) => all + Math.exp(one), 0);
  assert.ok(Math.abs(next[0].chances[1] - Math.exp(6) / sum(b)) < 1e-9);
  assert.ok(Math.abs(next[0].chances[0] - 1 / sum(a)) < 1e-9);
});

test("logits that are no numbers are named", () => {
  const broken = new Float32Array([1, Number.NaN, 2]);
  assert.throws(() => likely([broken], { decode: String }, []), /NaN.*its weights are damaged/);
});

test("a token is drawn with its probability, and at temperature 0 it is the most likely one", () => {
  const logits = new Float32Array([1, 3, 3, 0]);
  assert.equal(sample(logits, 0, 0.999), 1);
  const counts = [0, 0, 0, 0];
  const draws = 4000;
  for (let i = 0; i < draws; i++) counts[sample(logits, 2, (i + 0.5) / draws)] += 1;
  const sum = logits.reduce((all, one) => all + Math.exp(one / 2), 0);
  counts.forEach((count, id) => assert.ok(Math.abs(count / draws - Math.exp(logits[id] / 2) / sum) < 1e-3));
});

test("the guided start has six stops, and says what the lessons say in their words", () => {
  assert.equal(STOPS.length, 6);
  const lessons = ["induction_head", "reading_heads"].map((name) =>
    readFileSync(new URL(`../../../../src/regard/school/lessons/${name}/words.md`, import.meta.url), "utf8"),
  );
  const said = lessons.join(" ").replace(/\s+/g, " ");
  const texts = STOPS.map(({ text }) => text).join(" ");
  for (const sentence of [
    "has told every token what stands before it",
    "A role is what a head does on a text.",
    "what came after it",
  ])
    assert.ok(said.includes(sentence) && texts.includes(sentence), sentence);
});
