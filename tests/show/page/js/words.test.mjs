// Names of tokens and words, and facts about two positions.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Names, relation, visible } from "../../../../src/regard/show/page/js/words.js";

const ALICE = ["Al", "ice", " was", " here", ",", " Al", "ice", " was", " there", "\n"];
const SEQUENCE = { pieces: ALICE, names: {}, words: [0, 0, 1, 2, 3, 4, 4, 5, 6, 7] };

test("tokens that occur again carry their position", () => {
  const names = new Names(SEQUENCE, 10, false);
  assert.deepEqual(names.names, ["Al", "ice", "was", "here", ",", "Al", "ice", "was", "there", "↵"]);
  assert.equal(names.label(5), "Al@5");
  assert.equal(names.label(3), "here");
  assert.deepEqual(names.ties, [
    [0, 1],
    [5, 6],
  ]);
});

test("words join their pieces", () => {
  const names = new Names(SEQUENCE, 10, true);
  assert.deepEqual(names.names, ["Alice", "was", "here", ",", "Alice", "was", "there", "↵"]);
  assert.deepEqual(names.first, [0, 2, 3, 4, 5, 7, 8, 9]);
  assert.equal(names.label(4), "Alice@5");
  assert.deepEqual(names.ties, []);
});

test("unknown tokens are numbered", () => {
  const names = new Names(null, 3, true);
  assert.deepEqual([names.known, names.names, names.label(2)], [false, ["0", "1", "2"], "2"]);
});

test("nothing invisible is shown as nothing", () => {
  assert.deepEqual(["\n\n", " ", "\t", "", "\u001b[2J", "\u202eabc", " cat"].map(visible), [
    "↵↵",
    "␣",
    "⇥",
    "∅",
    "\ufffd[2J",
    "\ufffdabc",
    "cat",
  ]);
});

test("facts are about positions", () => {
  assert.equal(relation(ALICE, 2, 2), "itself");
  assert.equal(relation(ALICE, 7, 3), "what came after “was” the first time");
  assert.equal(relation(ALICE, 7, 2), "an earlier “was”");
  assert.equal(relation(ALICE, 3, 2), "the token just before");
  assert.equal(relation(ALICE, 3, 4), "the token just after");
  assert.equal(relation(ALICE, 8, 0), "the first token");
  assert.equal(relation(ALICE, 8, 3), "");
  assert.equal(
    relation(
      [..." a b a b a"].filter((c) => c !== " ").map((c) => ` ${c}`),
      4,
      3,
    ),
    "what came after an earlier “a”",
  );
});
