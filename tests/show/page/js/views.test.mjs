// Views: one file each, and one line where they are listed.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Frame } from "../../../../src/regard/show/page/js/shell/frame.js";
import { pressKey } from "../../../../src/regard/show/page/js/shell/shortcuts.js";
import { Store } from "../../../../src/regard/show/page/js/shell/state.js";
import { hasView, makeView, VIEWS, viewFor } from "../../../../src/regard/show/page/js/views/list.js";

/** As much of an element as the frame around the views needs. */
class Element {
  children = [];
  attributes = {};
  style = {};
  dataset = {};
  classList = { add() {} };
  addEventListener() {}
  append(...parts) {
    this.children.push(...parts);
  }
  replaceChildren(...parts) {
    this.children = parts;
  }
  getAttribute(name) {
    return this.attributes[name] ?? null;
  }
  hasAttribute(name) {
    return name in this.attributes;
  }
  setAttribute(name, value) {
    this.attributes[name] = value;
  }
}

const layer = (T, grid = null) => /** @type {any} */ ({ T, S: T, grid });

test("one head is shown by the view that its length allows", () => {
  assert.equal(viewFor("head", layer(600, { rows: 512, cols: 512 })), "long");
  assert.equal(viewFor("long", layer(37)), "head");
  assert.equal(viewFor("long", layer(131)), "long");
  assert.ok(hasView("head", layer(131)) && hasView("heads", layer(37)));
});

test("a view that is listed has a tab and a key, and is made with the others", (context) => {
  const created = { createElement: () => new Element(), createElementNS: () => new Element() };
  Object.assign(globalThis, { Node: Element, document: created });
  const fake = { el: null, draw() {}, focus() {}, ask: () => ({ question: [], answer: [] }), shade: () => null };
  VIEWS.splice(1, VIEWS.length - 1); // the others need a whole browser
  VIEWS[0] = { name: "heads", label: "Heads", make: () => fake };
  VIEWS.push({ name: "fake", label: "Fake", make: () => fake, shows: ({ T }) => T > 7, instead: "heads" });
  context.after(() => VIEWS.splice(0));

  const store = new Store();
  const page = /** @type {any} */ ({ reports: [{ sequences: [] }], statistics: [], roles: [] });
  const frame = new Frame(new Element(), page, store, VIEWS, /** @type {any} */ ({}));
  const tabs = frame.tabs.children.map((tab) => [tab.getAttribute("data-view"), ...tab.children]);
  assert.deepEqual(tabs, [
    ["heads", "Heads"],
    ["fake", "Fake"],
  ]);

  const app = /** @type {any} */ ({ store, frame: { legend: {} }, shown: { unit: -1 } });
  assert.equal(makeView("fake", app), fake);
  pressKey(app, /** @type {any} */ ({ key: "2", preventDefault() {} }));
  assert.equal(store.state.view, "fake");
  assert.deepEqual([viewFor("fake", layer(11)), viewFor("fake", layer(5))], ["fake", "heads"]);
});
