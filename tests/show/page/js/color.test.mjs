// Colours: darker is more, text in a cell can be read, and the dark theme is a mirror.

import assert from "node:assert/strict";
import { test } from "node:test";
import { css, inkOn, luminance, signedColor, weightColor } from "../../../../src/regard/show/page/js/draw/color.js";

const WEIGHTS = Array.from({ length: 101 }, (_, i) => i / 100);
const contrast = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);

test("a larger weight is darker in light and lighter in dark", () => {
  for (const [theme, sign] of [
    ["light", -1],
    ["dark", 1],
  ]) {
    const values = WEIGHTS.map((weight) => sign * luminance(weightColor(weight, theme)));
    for (let i = 1; i < values.length; i++) assert.ok(values[i] >= values[i - 1] - 1e-3, `${theme} ${i}`);
  }
});

test("the ends of the scale are its anchors", () => {
  assert.equal(css(weightColor(0, "light")), "rgb(240 243 247)");
  assert.equal(css(weightColor(1, "light")), "rgb(18 39 69)");
  assert.equal(css(weightColor(1, "dark")), "rgb(211 235 255)");
});

test("numbers in cells have a contrast of at least 4.5", () => {
  for (const theme of ["light", "dark"]) {
    for (const value of WEIGHTS) {
      for (const color of [weightColor(value, theme), signedColor(-value, theme), signedColor(value, theme)]) {
        const ink = inkOn(color) === "#000" ? 0 : 1;
        assert.ok(contrast(luminance(color), ink) >= 4.5, `${theme} ${value} ${color}`);
      }
    }
  }
});

test("gained is blue and lost is ochre", () => {
  const [r, , b] = signedColor(0.5, "light");
  const [r2, , b2] = signedColor(-0.5, "light");
  assert.ok(b > r && r2 > b2);
});
