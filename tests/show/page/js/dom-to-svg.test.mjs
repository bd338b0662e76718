import assert from "node:assert/strict";
import { test } from "node:test";
import { intersection, overlaps, printable } from "../../../../src/regard/show/page/js/shell/dom-to-svg.js";

test("characters that XML refuses are replaced", () => {
  assert.equal(printable("a\u0000b\uffffc\u{1f600}\ud800\n"), "a\ufffdb\ufffdc\u{1f600}\ufffd\n");
});

test("boxes meet where both are", () => {
  const a = { x: 0, y: 0, width: 10, height: 10 };
  assert.deepEqual(intersection(a, { x: 6, y: 7, width: 10, height: 10 }), { x: 6, y: 7, width: 4, height: 3 });
  assert.deepEqual(intersection(a, { x: 16, y: 2, width: 1, height: 1 }), { x: 16, y: 2, width: 0, height: 1 });
});

test("a line that is scrolled out of sight is left out", () => {
  const clip = { x: 0, y: 100, width: 300, height: 60 };
  assert.ok(overlaps({ x: 5, y: 110, width: 40, height: 20 }, clip));
  assert.ok(!overlaps({ x: 5, y: 155, width: 40, height: 20 }, clip));
  assert.ok(!overlaps({ x: 5, y: 170, width: 40, height: 20 }, clip));
});
