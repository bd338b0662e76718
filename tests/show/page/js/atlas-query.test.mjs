// Queries of heads: what they find, and what is said of those that cannot be read.

import assert from "node:assert/strict";
import { test } from "node:test";
import { fromHash, START, toHash } from "../../../../src/regard/show/page/js/atlas/address.js";
import { Atlas, exampleOf, hasWord } from "../../../../src/regard/show/page/js/atlas/atlas-data.js";
import { QueryError, readQuery } from "../../../../src/regard/show/page/js/atlas/query.js";

const ROLES = ["induction", "previous token", "first token", "local"].map((name) => ({ name }));
const measure = (name, label = name) => ({ name, label, unit: "weight", about: "" });
const head = (role, means, jobs = {}) => ({ role, means, jobs, texts: jobs });

/** Two layers of two heads. */
function small() {
  const first = [
    head("previous token", { induction: 0.1, sink: 0.0, entropy: 0.4 }, { "previous token": 1 }),
    head("first token", { induction: 0.2, sink: 0.9 }, { "first token": 0.8, induction: 0.2 }),
  ];
  const second = [
    head("induction", { induction: 0.5, sink: 0.3, entropy: 1.5 }, { induction: 0.6, local: 0.4 }),
    head("local", { induction: 0.35, sink: 0.1, entropy: 2 }, { local: 1 }),
  ];
  const info = {
    layers: [{ heads: first }, { heads: second }],
    roles: ROLES,
    statistics: [measure("induction"), measure("sink", "first"), measure("entropy")],
    beside: [
      { ...measure("stability"), measured: true },
      { ...measure("effect"), measured: false },
    ],
  };
  return new Atlas(info, { alice: [0, 3], and: [1], constructor_: [2] }, async () => ({}));
}

const found = (text) => {
  const atlas = small();
  const { test: holds } = readQuery(text, atlas.vocabulary());
  return atlas.heads.filter(holds).map(({ name }) => name);
};

test("queries find heads by numbers, roles, places, shares and words", () => {
  const expected = {
    "": ["0.0", "0.1", "1.0", "1.1"],
    "induction > 0.3 and layer < 4": ["1.0", "1.1"],
    "induction > 0.3 and layer < 1": [],
    induction: ["1.0"],
    "Previous Token": ["0.0"],
    "role = local": ["1.1"],
    "role != local": ["0.0", "0.1", "1.0"],
    "first token": ["0.1"],
    "first >= 30%": ["0.1", "1.0"],
    "sink = .9": ["0.1"],
    "not (first > 0.2 or local)": ["0.0"],
    "entropy < 1": ["0.0"],
    "not entropy < 1": ["0.1", "1.0", "1.1"],
    1.1: ["1.1"],
    "1.1 or 0.0": ["0.0", "1.1"],
    "head = 1": ["0.1", "1.1"],
    "rows induction > 10%": ["0.1", "1.0"],
    "texts local ≤ 0.4 and rows local > 0": ["1.0"],
    '"alice"': ["0.0", "1.1"],
    "alice and layer > 0": ["1.1"],
    "“and”": ["0.1"],
  };
  for (const [text, names] of Object.entries(expected)) assert.deepEqual(found(text), names, text);
});

test("and binds more than or", () => {
  assert.deepEqual(found("0.0 or layer = 1 and local"), ["0.0", "1.1"]);
  assert.deepEqual(found("(0.0 or layer = 1) and local"), ["1.1"]);
});

test("what cannot be read is answered by what is accepted", () => {
  const said = {
    "inductin > 0.3":
      "“inductin” is no number of a head; numbers are induction, first, entropy, stability, layer, head",
    nonsense:
      "“nonsense” is no role, and no word of an example; roles are induction, previous token, first token, local",
    constructor:
      "“constructor” is no role, and no word of an example; roles are induction, previous token, first token, local",
    '"nonsense"': "No example of any head looks from or at “nonsense”",
    entropy: "After “entropy” comes <, > or =, and a number, such as: entropy > 0.3",
    "entropy >": "After “entropy >” comes a number, such as: entropy > 0.3",
    "entropy > much": "After “entropy >” comes a number, such as: entropy > 0.3",
    "effect > 1": "Effects were not measured in this atlas; regard atlas … --effect 8 measures them",
    "(local": "A bracket is open; close it with )",
    "local and": "Something is missing at the end, such as: induction > 0.3 and layer < 4",
    "local 4": "“4” is not expected here; join conditions with and, or: induction > 0.3 and layer < 4",
    "> 3": "A name comes before “>”, such as: induction > 0.3 and layer < 4",
    "rows of": "After “rows” comes a role: induction, previous token, first token, local",
    "role = big": "After “role” comes one of: induction, previous token, first token, local",
    and: "“and” is no role, and no word of an example; roles are induction, previous token, first token, local",
    "!": "“!” is no role, and no word of an example; roles are induction, previous token, first token, local",
  };
  for (const [text, sentence] of Object.entries(said))
    assert.throws(
      () => found(text),
      (error) => error instanceof QueryError && assert.equal(error.message, sentence) === undefined,
    );
});

test("the words of a query are known, for the examples that have them", () => {
  assert.deepEqual(readQuery('alice or "and" or local', small().vocabulary()).words, ["alice", "and"]);
});

test("an address keeps every state", () => {
  const state = { q: 'first > 0.2 and "a&b"', sort: "sink", head: "1.0", of: "entropy", rows: "9", theme: "dark" };
  assert.deepEqual(fromHash(`#${toHash(state)}`, START), state);
  assert.equal(toHash(START), "");
  assert.deepEqual(fromHash("#head=4.3&what=ever", START), { ...START, head: "4.3" });
});

test("an example has its tokens in order, with gaps, and is found by whole words", () => {
  const words = [
    [" A", 0],
    ["lice", 1],
    [" saw", 0],
    [" her", 0],
  ];
  const example = exampleOf([0.9, 7, [1, 6], [0.9, 0.05], [0, 1, 6, 7], [0, 1, 2, 3]], words);
  assert.deepEqual(
    example.tokens.map(({ at, text, weight, gap }) => [at, text, weight, gap]),
    [
      [0, " A", 0, false],
      [1, "lice", 0.9, false],
      [6, " saw", 0.05, true],
      [7, " her", 0, false],
    ],
  );
  for (const [word, there] of [
    ["alice", true],
    ["her", true],
    ["saw", false],
    ["lice", false],
  ])
    assert.equal(hasWord(example, word), there, word);
});
