import assert from "node:assert/strict";
import { test } from "node:test";
import { decodeExact, fromHalf } from "../../../../src/regard/show/page/js/data/exact-weights.js";

test("16-bit floats are read: ordinary, small, infinite and none", () => {
  assert.deepEqual([0x3c00, 0xc000, 0x0001, 0x7bff, 0x7c00, 0x0000].map(fromHalf), [
    1,
    -2,
    2 ** -24,
    65504,
    Infinity,
    0,
  ]);
  assert.ok(Number.isNaN(fromHalf(0x7e00)));
});

test("a weight is computed from query, key and lse, and hidden after the query", () => {
  const [T, S, width] = [2, 3, 2];
  const bytes = new Uint8Array((T + S) * width * 2 + T * 4);
  const view = new DataView(bytes.buffer);
  const one = 0x3c00;
  [one, 0, 0, one, one, 0, 0, one, one, one].forEach((code, i) => view.setUint16(2 * i, code, true)); // q: x, y; k: x, y, x + y
  [0.5, -Infinity].forEach((value, i) => view.setFloat32(20 + 4 * i, value, true));
  const head = decodeExact(bytes, T, S, { width, scale: 2, causal: true, error: 0 });
  assert.equal(head.at(0, 0), Math.exp(2 - 0.5));
  assert.equal(head.at(0, 1), Math.exp(-0.5));
  assert.ok(Number.isNaN(head.at(0, 2))); // after the query, which is at position 1
  assert.ok(Number.isNaN(head.at(1, 0))); // a row that sees nothing
});
