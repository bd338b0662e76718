import assert from "node:assert/strict";
import { test } from "node:test";
import { fromSearch, toSearch } from "../../../../src/regard/show/page/js/shell/served-page.js";

const SETTINGS = { models: ["tiny", "other"], text: "The cat", longest: 17 };

test("a question comes back from its address", () => {
  for (const question of [
    { text: "a & b = c?\n#猫", model: "other" },
    { text: "The cat", model: "tiny" },
    { text: "  two  spaces", model: "tiny" },
  ]) {
    assert.deepEqual(fromSearch(toSearch(question, SETTINGS), SETTINGS), question);
  }
});

test("what the server begins with needs no address", () => {
  assert.equal(toSearch({ text: "The cat", model: "tiny" }, SETTINGS), "");
});

test("a long text is not kept in the address", () => {
  assert.equal(toSearch({ text: "x".repeat(2001), model: "tiny" }, SETTINGS), "");
});

test("a model that is not here is the first", () => {
  assert.deepEqual(fromSearch("?model=evil&text=a", SETTINGS), { text: "a", model: "tiny" });
});

test("a head to cut is part of the address, where the server cuts heads", () => {
  const question = { text: "a", model: "other", cut: "4.3" };
  assert.deepEqual(fromSearch(toSearch(question, SETTINGS), { ...SETTINGS, cuts: true }), question);
  assert.deepEqual(fromSearch(toSearch(question, SETTINGS), SETTINGS), { text: "a", model: "other" });
  assert.equal(fromSearch("?cut=../x", { ...SETTINGS, cuts: true }).cut, undefined);
});
