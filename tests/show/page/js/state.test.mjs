// The state: listeners hear what changed, and an address holds what was chosen.

import assert from "node:assert/strict";
import { test } from "node:test";
import { fromHash, START, Store, toHash } from "../../../../src/regard/show/page/js/shell/state.js";

test("listeners hear once, of what is different", () => {
  const store = new Store();
  const heard = [];
  const stop = store.listen((changed) => heard.push([...changed]));
  store.set({ layer: 3, head: 0, view: "heads" });
  store.set({ layer: 3 });
  stop();
  store.set({ layer: 5 });
  assert.deepEqual(heard, [["layer", "view"]]);
});

test("what was chosen survives the address", () => {
  const chosen = {
    ...START,
    view: "heads",
    report: 1,
    layer: 4,
    head: 3,
    side: "key",
    focus: 7,
    pinned: true,
    text: 1,
    words: true,
  };
  const state = { ...chosen, role: "previous token", sort: "entropy", theme: "dark" };
  assert.deepEqual({ ...START, ...fromHash(`#${toHash(state)}`) }, state);
});

test("what the pointer passes over is not in the address", () => {
  assert.equal(toHash({ ...START, focus: 7 }), "head=0.0");
});

test("nonsense in an address is left out", () => {
  assert.deepEqual(fromHash("#head=x&report=many&looks=-1&view=head"), { view: "head" });
});
