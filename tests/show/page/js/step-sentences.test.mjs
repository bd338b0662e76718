import assert from "node:assert/strict";
import { test } from "node:test";
import { StepTensor } from "../../../../src/regard/show/page/js/data/step-tensors.js";
import { readNumber } from "../../../../src/regard/show/page/js/words/equations.js";
import { Flow, keyColumns } from "../../../../src/regard/show/page/js/words/step-sentences.js";

// Two heads of five numbers, three words, causal: computed here, step by step.
const [T, H, D] = [3, 2, 5];
const words = { query: "sat", key: "cat", names: { query: "sat", key: "cat" } };
const wave = (length, shift) => Float32Array.from({ length }, (_, i) => 2 * Math.sin(1.7 * i + shift));

function tensor(
  name,
  axes,
  sizes,
  values,
  heads = 1,
  strides = sizes.map((_, i) => sizes.slice(i + 1).reduce((a, b) => a * b, 1)),
) {
  const info = {
    name,
    operation: "",
    shape: "",
    why: `why ${name}`,
    dtype: "float32",
    axes,
    sizes,
    heads,
    bytes: 3,
    block: "b",
    strides,
  };
  return new StepTensor(info, values, H);
}

/** The steps of a layer of two heads; scale: what scores are multiplied by. */
function layer(scale = 1 / Math.sqrt(D)) {
  const [q, k, v] = [wave(T * H * D, 0), wave(T * H * D, 1), wave(T * H * D, 2)];
  const [sizes, moved] = [
    [H, T, D],
    [D, H * D, 1],
  ];
  const scores = new Float32Array(H * T * T);
  const context = new Float32Array(T * H * D);
  const [mask, scaled, weights] = [scores, scores, scores].map((one) => one.slice());
  for (let head = 0; head < H; head++) {
    for (let i = 0; i < T; i++) {
      const at = (j) => (head * T + i) * T + j;
      for (let j = 0; j < T; j++) {
        for (let d = 0; d < D; d++) scores[at(j)] += q[(i * H + head) * D + d] * k[(j * H + head) * D + d];
        mask[at(j)] = j <= i ? scores[at(j)] : -Infinity;
        scaled[at(j)] = mask[at(j)] * scale;
      }
      const sum = [0, 1, 2].reduce((total, j) => total + Math.exp(scaled[at(j)]), 0);
      for (let j = 0; j < T; j++) weights[at(j)] = Math.exp(scaled[at(j)]) / sum;
      for (let d = 0; d < D; d++)
        for (let j = 0; j < T; j++) context[(i * H + head) * D + d] += weights[at(j)] * v[(j * H + head) * D + d];
    }
  }
  const map = (name, values) => tensor(name, ["head", "query", "key"], [H, T, T], values);
  return [
    tensor("x", ["query", "width"], [T, 7], wave(T * 7, 3)),
    tensor("queries", ["query", "width"], [T, H * D], q, H),
    tensor("keys", ["key", "width"], [T, H * D], k, H),
    tensor("values", ["key", "width"], [T, H * D], v, H),
    tensor("transpose", ["head", "query", "width"], sizes, q, 1, moved),
    tensor("transpose keys", ["head", "key", "width"], sizes, k, 1, moved),
    tensor("transpose values", ["head", "key", "width"], sizes, v, 1, moved),
    map("scores", scores),
    map("mask", mask),
    map("scaled", scaled),
    map("weights", weights),
    tensor("context", ["head", "query", "width"], sizes, context, 1, moved),
    tensor("concat", ["query", "width"], [T, H * D], context, H),
    tensor("out", ["query", "width"], [T, 7], wave(T * 7, 4)),
  ];
}

/** What a sum gives on a calculator. */
function calculate(sum) {
  const text = sum
    .replace(" =", "")
    .replaceAll("−", "-")
    .replaceAll("×", "*")
    .replaceAll("÷", "/")
    .replace(/e\^(\S+)/, "Math.exp($1)");
  return Function(`return ${text.replace("Math.exp(-∞)", "0")}`)();
}

const choices = [0, 1].flatMap((head) =>
  [1, 2].flatMap((query) => [0, 1].flatMap((key) => [0, 3].map((number) => ({ head, query, key, number })))),
);

test("every sum gives its number, from the digits that are printed", () => {
  let sums = 0;
  for (const choice of choices) {
    for (const { tensor, lines } of new Flow(layer()).rows(choice, words)) {
      for (const { sum, number } of lines) {
        if (!sum || sum.includes("more")) continue;
        sums += 1;
        const digits = number.split(".")[1].length;
        assert.equal(
          Math.abs(calculate(sum)).toFixed(digits),
          number.replace("−", ""),
          `${tensor.name}: ${sum} ${number}`,
        );
      }
    }
  }
  assert.equal(sums, choices.length * 4); // product, scaled, weights, context
});

test("the number of each step is that of its tensor", () => {
  for (const choice of choices) {
    const steps = layer();
    const rows = new Flow(steps).rows(choice, words);
    const number = (name) => readNumber(rows.find((row) => row.tensor.name === name).lines.at(-1).number);
    const { head, query, key, number: d } = choice;
    const map = (name) => steps.find((one) => one.name === name).values[(head * T + query) * T + key];
    const vector = (name, word) => steps.find((one) => one.name === name).values[(word * H + head) * D + d];
    for (const name of ["scores", "mask", "scaled", "weights"])
      assert.ok(Math.abs(number(name) - map(name)) <= 0.005, name);
    for (const [name, word] of [
      ["queries", query],
      ["keys", key],
      ["values", key],
      ["transpose", query],
      ["context", query],
      ["concat", query],
    ]) {
      assert.ok(Math.abs(number(name) - vector(name, word)) <= 0.005, name);
    }
  }
});

test("the number to follow is that of the largest product", () => {
  const flow = new Flow(layer());
  const choice = { head: 1, query: 2, key: 0, number: 0 };
  const products = flow.products(choice);
  assert.equal(Math.abs(products[flow.telling(choice)]), Math.max(...products.map(Math.abs)));
});

test("a hidden key gets −∞, and weight 0", () => {
  const rows = new Flow(layer()).rows({ head: 0, query: 1, key: 2, number: 0 }, words);
  const said = Object.fromEntries(rows.map(({ tensor, lines }) => [tensor.name, lines.at(-1)]));
  assert.equal(said.mask.number, "−∞");
  assert.equal(said.scaled.number, "−∞");
  assert.equal(`${said.weights.sum} ${said.weights.number}`, "e^−∞ = 0");
  assert.match(said.context.sum, /^0 × /);
});

test("a word that sees one key gets its value, and no rest is added", () => {
  const rows = new Flow(layer()).rows({ head: 0, query: 0, key: 0, number: 1 }, words);
  const { sum, note } = rows.find((row) => row.tensor.name === "context").lines[0];
  assert.match(sum, /^1\.00 × \S+ =$/);
  assert.equal(note, "“cat” by its weight");
});

test("a scale that is not a root is a factor", () => {
  const rows = new Flow(layer(0.3)).rows({ head: 0, query: 2, key: 1, number: 0 }, words);
  const { sum, note } = rows.find((row) => row.tensor.name === "scaled").lines[0];
  assert.match(sum, / × 0\.30/);
  assert.equal(note, "why scaled");
});

test("scores that are not the product of queries and keys get no sum", () => {
  const steps = layer();
  steps[7].values.forEach((_, i, all) => (all[i] += 1));
  const rows = new Flow(steps).rows({ head: 0, query: 2, key: 1, number: 0 }, words);
  const lines = rows.find((row) => row.tensor.name === "scores").lines;
  assert.deepEqual(
    lines.map(({ sum, note }) => [sum, note]),
    [["", "why scores"]],
  );
});

test("a step with another name is shown without a sentence", () => {
  const steps = [
    ...layer(),
    tensor("gated", ["query", ""], [T, 7], wave(T * 7, 5)),
    tensor("loss", [], [], new Float32Array(1)),
  ];
  const rows = new Flow(steps).rows({ head: 0, query: 2, key: 1, number: 0 }, words);
  for (const { lines } of rows.slice(-2))
    assert.deepEqual(
      lines.map(({ sum, number }) => sum + number),
      [""],
    );
});

test("a layer that scales before it masks is followed in its own order", () => {
  const steps = layer();
  const [mask, scaled] = [steps[8], steps[9]];
  mask.values.set(scaled.values);
  scaled.values.set(steps[7].values.map((score) => score / Math.sqrt(D)));
  [steps[8], steps[9]] = [scaled, mask];
  const rows = new Flow(steps).rows({ head: 1, query: 1, key: 0, number: 0 }, words);
  const said = Object.fromEntries(rows.map(({ tensor, lines }) => [tensor.name, lines.at(-1)]));
  assert.match(said.scaled.sum, / ÷ 2\.2[34]/);
  assert.equal(said.mask.number, said.scaled.number);
  assert.equal(said.mask.note, "kept; 1 of 3 keys is hidden");
  assert.match(said.weights.sum, /^e\^/);
});

test("without queries, a step called transpose is not taken for theirs", () => {
  const steps = layer().slice(4);
  const flow = new Flow(steps);
  const rows = flow.rows({ head: 1, query: 1, key: 0, number: 0 }, words);
  assert.deepEqual(
    rows[0].lines.map(({ number, note }) => [number, note]),
    [["", "why transpose"]],
  );
  const scores = rows.find((row) => row.tensor.name === "scores");
  assert.deepEqual(
    scores.lines.map(({ sum, note }) => [sum, note]),
    [["", "why scores"]],
  );
  assert.deepEqual(
    flow.links().map(({ from }) => steps[from].name),
    ["scores", "mask", "scaled", "weights"],
  );
});

test("one step is made of another: three lanes meet in scores and in context", () => {
  const steps = layer();
  const links = new Flow(steps).links().map(({ from, to, lane }) => `${steps[from].name} → ${steps[to].name} ${lane}`);
  for (const link of [
    "x → queries 0",
    "x → keys 1",
    "x → values 2",
    "transpose → scores 0",
    "transpose keys → scores 1",
    "transpose values → context 2",
    "weights → context 0",
    "context → concat 0",
  ]) {
    assert.ok(links.includes(link), link);
  }
});

test("of many keys, those with the largest weights are shown in the order of the text, with a hidden one", () => {
  const weights = [0.1, 0.02, 0.4, 0.03, 0.3, 0.15, 0, 0];
  const scores = [1, 1, 1, 1, 1, 1, -Infinity, -Infinity];
  assert.deepEqual(keyColumns(weights, scores, [3, -1], 5), [2, 3, 4, 5, 6]);
  assert.deepEqual(keyColumns(weights, scores, [], 8), [0, 1, 2, 3, 4, 5, 6, 7]);
});
