import assert from "node:assert/strict";
import { test } from "node:test";
import { PromiseCache } from "../../../../src/regard/show/page/js/data/promise-cache.js";

test("what was used last is kept, and made once", async () => {
  const made = [];
  const recent = new PromiseCache(2);
  const get = (key) =>
    recent.get(key, async () => {
      made.push(key);
      return key;
    });
  for (const key of ["a", "b", "a", "c", "a", "b"]) assert.equal(await get(key), key);
  assert.deepEqual(made, ["a", "b", "c", "b"]);
});

test("what failed is tried again", async () => {
  const recent = new PromiseCache(3);
  await assert.rejects(
    recent.get("a", () => Promise.reject(new Error("no"))),
    /no/,
  );
  assert.equal(await recent.get("a", async () => 7), 7);
});
