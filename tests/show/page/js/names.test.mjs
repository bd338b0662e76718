// Names of tokens and words, and facts about two positions.

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  isolated,
  isRightToLeft,
  Names,
  number,
  readable,
  relation,
  sizes,
  visible,
} from "../../../../src/regard/show/page/js/words/names.js";

const ALICE = ["Al", "ice", " was", " here", ",", " Al", "ice", " was", " there", "\n"];
const SEQUENCE = { pieces: ALICE, names: {}, bytes: {}, padding: [], words: [0, 0, 1, 2, 3, 4, 4, 5, 6, 7] };

test("tokens that occur again carry their position", () => {
  const names = new Names(SEQUENCE, 10, false);
  assert.deepEqual(names.names, ["Al", "ice", "was", "here", ",", "Al", "ice", "was", "there", "⏎"]);
  assert.equal(names.label(5), "Al@5");
  assert.equal(names.label(3), "here");
  assert.deepEqual(names.ties, [
    [0, 1],
    [5, 6],
  ]);
});

test("of words that have no room for all, the longer of neighbours are labelled, and none too near another", () => {
  const names = new Names(SEQUENCE, 10, false);
  assert.deepEqual([...names.labelled(1)], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  assert.deepEqual([...names.labelled(3)], [1, 6, 9]);
  assert.deepEqual([...names.labelled(4)], [3, 8]);
  assert.deepEqual([...new Names(null, 7, false).labelled(3)], [0, 3, 6]);
});

test("words join their pieces", () => {
  const names = new Names(SEQUENCE, 10, true);
  assert.deepEqual(names.names, ["Alice", "was", "here", ",", "Alice", "was", "there", "⏎"]);
  assert.deepEqual(names.first, [0, 2, 3, 4, 5, 7, 8, 9]);
  assert.equal(names.label(4), "Alice@5");
  assert.deepEqual(names.ties, []);
});

test("unknown tokens are positions", () => {
  const names = new Names(null, 3, true);
  assert.deepEqual(
    [names.known, names.names, names.label(2), names.said(2)],
    [false, ["0", "1", "2"], "position 2", "position 2"],
  );
});

const CAT = {
  pieces: ["<pad>", "<pad>", "猫", "", "", " 猫", "", ""],
  names: { 0: "[pad]", 1: "[pad]", 2: "猫:1", 3: "猫:2", 4: "猫:3", 5: "猫:1", 6: "猫:2", 7: "猫:3" },
  bytes: { 2: "byte 1 of 3 of 猫", 3: "byte 2 of 3 of 猫", 4: "byte 3 of 3 of 猫", 5: "byte 1 of 3 of 猫" },
  padding: [0, 1],
  words: [0, 1, 2, 2, 2, 3, 3, 3],
};

test("bytes of a character are said in words, and merged into it", () => {
  const tokens = new Names(CAT, 8, false);
  assert.deepEqual(
    [tokens.label(3), tokens.said(3), tokens.name(3)],
    ["猫:2@3", "byte 2 of 3 of 猫@3", "byte 2 of 3 of 猫"],
  );
  const words = new Names(CAT, 8, true);
  assert.deepEqual(words.names, ["[pad]", "[pad]", "猫", "猫"]);
  assert.deepEqual([words.said(2), words.first], ["猫@2", [0, 1, 2, 5]]);
});

test("padding is named, has no text and is not found", () => {
  for (const words of [false, true]) {
    const names = new Names(CAT, 8, words);
    assert.deepEqual(
      [names.padding.slice(0, 3), names.texts.slice(0, 2)],
      [
        [true, true, false],
        ["", ""],
      ],
    );
    assert.deepEqual(names.matching("[pad]"), []);
  }
});

test("a word is found by label, by name, by its text, and by how it begins", () => {
  const tokens = new Names(CAT, 8, false);
  assert.deepEqual(
    ["猫:1@5", "猫:2", "猫"].map((text) => tokens.matching(text)),
    [[5], [3, 6], [2, 5]],
  );
  assert.deepEqual(
    ["WAS", "th", "dog"].map((text) => new Names(SEQUENCE, 10, false).matching(text)),
    [[2, 7], [8], []],
  );
});

test("names of objects are names of words too", () => {
  const pieces = ["__proto__", "constructor", "toString"];
  const names = new Names({ pieces, names: {}, bytes: {}, padding: [], words: [0, 1, 2] }, 3, false);
  assert.deepEqual([names.names, names.repeated, names.said(1)], [pieces, [false, false, false], "constructor"]);
});

test("two texts are not the same, nor is a text that looks at a copy of itself", () => {
  const report = /** @type {any} */ ({ sequences: [SEQUENCE, CAT] });
  const layer = (/** @type {number} */ queries, /** @type {number} */ keys, /** @type {boolean} */ across) =>
    Names.of(report, /** @type {any} */ ({ queries, keys, across, T: 8, S: 8 }), false);
  const same = [layer(1, 1, false), layer(0, 1, true), layer(1, 1, true)].map(({ rows, cols }) =>
    Names.same(rows, cols),
  );
  assert.deepEqual(same, [true, false, false]);
});

test("nothing invisible is shown as nothing, and controls are written as Python does", () => {
  const texts = [
    "\n\n",
    " ",
    "\t",
    "",
    "\u001b[2J",
    "\u202eabc",
    " cat",
    "\u200d",
    "a\nb",
    "\ud83d",
    "\u{e0067}",
    "a\u00a0b",
  ];
  const shown = [
    "⏎⏎",
    "␣",
    "⇥",
    "∅",
    "\\x1b[2J",
    "\\u202eabc",
    "cat",
    "\\u200d",
    "a\\nb",
    "\\ud83d",
    "\\U000e0067",
    "a\\xa0b",
  ];
  assert.deepEqual(texts.map(visible), shown);
  assert.equal(visible("👩\u200d👩\u200d👧"), "👩\u200d👩\u200d👧");
});

test("a token of a million characters is cut", () => {
  const long = visible("é".repeat(1_000_000));
  assert.ok(long.length <= 64 && long.endsWith("…"));
  assert.doesNotThrow(() => encodeURIComponent(visible(`a${"👩".repeat(99)}`))); // no half of a character is left
});

test("a text in a line keeps its spaces and cannot reorder what stands beside it", () => {
  assert.equal(readable(" a\u202e\u2066 b\u00a0"), " a\\u202e\\u2066 b ");
  assert.deepEqual([isolated("cat"), isolated("م:2")], ["cat", "\u2068م:2\u2069"]);
  assert.deepEqual(["مرحبا cat", "cat مرحبا", "1 שלום", ""].map(isRightToLeft), [true, false, true, false]);
});

test("sizes name positions where there are no tokens, and count padding", () => {
  const layers = [{ heads: [1, 2, 3], T: 5, S: 7 }];
  assert.equal(sizes(/** @type {any} */ ({ layers, sequences: [] })), "1 layer × 3 heads · 5 to 7 positions");
  assert.equal(
    sizes(/** @type {any} */ ({ layers, sequences: [CAT] })),
    "1 layer × 3 heads · 5 to 7 tokens, 2 of them padding",
  );
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

test("a number has two decimals, the minus sign of the terminal, and no negative zero", () => {
  assert.deepEqual([0.125, -0.104, -0.004, 0, -1234.5, NaN].map(number), [
    "0.13",
    "−0.10",
    "0.00",
    "0.00",
    "−1235",
    "NaN",
  ]);
});
