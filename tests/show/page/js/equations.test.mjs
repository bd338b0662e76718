import assert from "node:assert/strict";
import { test } from "node:test";
import { equation, readNumber, shortNumber } from "../../../../src/regard/show/page/js/words/equations.js";

/** Numbers that look random and are the same every time. */
function* numbers(seed) {
  for (let state = seed; ; ) {
    state = (state * 1103515245 + 12345) % 2147483648;
    yield state / 2147483648;
  }
}

const digitsAfterPoint = (text) => (text.includes("e") ? null : (text.split(".")[1]?.length ?? 0));

test("what is printed on the left gives what is printed on the right", () => {
  const random = numbers(7);
  for (let i = 0; i < 2000; i++) {
    const [a, b] = [0, 0].map(() => (random.next().value - 0.5) * 10 ** (random.next().value * 4 - 2));
    const sum = equation([a, b], ([x, y]) => x * y, a * b);
    assert.ok(sum, `${a} × ${b}`);
    const [x, y] = sum.operands.map(readNumber);
    const digits = digitsAfterPoint(sum.result);
    if (digits === null) continue;
    assert.equal(
      (x * y)
        .toFixed(digits)
        .replace("-", "−")
        .replace(/^−(0\.?0*)$/, "$1"),
      sum.result,
      `${sum.operands} ${sum.result}`,
    );
  }
});

test("every printed number is the real one, rounded", () => {
  const random = numbers(11);
  for (let i = 0; i < 500; i++) {
    const [score, scale] = [(random.next().value - 0.5) * 60, 5.656854];
    const sum = equation([score, scale], ([x, y]) => x / y, score / scale);
    for (const [text, value] of [
      [sum.operands[0], score],
      [sum.operands[1], scale],
      [sum.result, score / scale],
    ]) {
      assert.ok(
        Math.abs(readNumber(text) - value) <= 0.5 * 10 ** -digitsAfterPoint(text) + 1e-12,
        `${text} for ${value}`,
      );
    }
  }
});

test("digits are added only where the equation needs them", () => {
  assert.deepEqual(
    equation([2, 3], ([x, y]) => x * y, 6),
    { operands: ["2.00", "3.00"], result: "6.00" },
  );
  // 1.93 × 5.51 would be 10.63
  assert.deepEqual(
    equation([1.9296, 5.5149], ([x, y]) => x * y, 10.64155),
    { operands: ["1.93", "5.515"], result: "10.64" },
  );
});

test("numbers that do not fulfil an equation get none", () => {
  assert.equal(
    equation([2, 3], ([x, y]) => x * y, 7),
    null,
  );
  assert.equal(
    equation([0.5, 0.592], ([x, y]) => x * y, 0.304),
    null,
  ); // 0.296 is printed as 0.30, too
  assert.equal(
    equation([-Infinity, 3], ([x, y]) => Math.exp(x) / y, 0),
    null,
  );
});

test("small numbers keep two digits that say something, large ones lose those that do not", () => {
  const shown = { 0: "0", 0.00314: "0.0031", "-0.5": "−0.50", 1234.5678: "1235", 2.5e9: "2.5e9", 3.21e-12: "3.2e-12" };
  for (const [value, text] of Object.entries(shown)) assert.equal(shortNumber(Number(value)), text);
  assert.equal(shortNumber(-Infinity), "−∞");
});
