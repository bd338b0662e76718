// Runs the page's engine and tokenizer for the tests in Python: a request in JSON comes in, a result goes out, by line.

import { readFileSync, writeFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { loadSteps } from "../../../../src/regard/show/page/js/data/step-tensors.js";
import { Model } from "../../../../src/regard/show/page/js/model/engine.js";
import { describeSteps, stepsOf } from "../../../../src/regard/show/page/js/model/live-steps.js";
import { sequenceOf } from "../../../../src/regard/show/page/js/model/pieces.js";
import { rankOf, roleOf } from "../../../../src/regard/show/page/js/model/roles.js";
import { earlier, meansOf } from "../../../../src/regard/show/page/js/model/statistics.js";
import { Tokenizer } from "../../../../src/regard/show/page/js/model/tokenizer.js";
import { wasmLinear } from "../../../../src/regard/show/page/js/model/wasm-linear.js";

const WASM = new URL("../../../../src/regard/show/page/js/model/linear.wasm", import.meta.url);
let model;
let tokenizer;

/** A reading as plain values: rows are as long as a query has keys. */
const described = (reading) => ({
  weights: reading.weights.map((l) => l.map((h) => h.all().map((r) => [...r]))),
  logits: [...reading.logits],
});

/** Every number of a step, in the order of its axes. */
function numbersOf({ values, sizes, strides }) {
  const count = sizes.reduce((product, size) => product * size, 1);
  return Array.from({ length: count }, (_, at) => {
    let [rest, place] = [at, 0];
    for (let axis = sizes.length - 1; axis >= 0; axis--) {
      place += (rest % sizes[axis]) * strides[axis];
      rest = Math.floor(rest / sizes[axis]);
    }
    return values[place];
  });
}

const answers = {
  load: async ({ plan, weights, wasm }) => {
    model = new Model(plan, new Uint8Array(readFileSync(weights)), wasm ? await wasmLinear(readFileSync(WASM)) : null);
  },
  read: ({ parts, cut, file }) => {
    const reading = model.read(cut);
    for (const ids of parts) reading.addAll(ids);
    if (file)
      writeFileSync(file, Buffer.concat(reading.weights.flat().map((rows) => new Uint8Array(rows.numbers().buffer))));
    const result = file ? { logits: [...reading.logits] } : described(reading);
    reading.end();
    return result;
  },
  edit: ({ before, keep, after }) => {
    const reading = model.read().addAll(before);
    reading.keep(keep);
    const result = described(reading.addAll(after));
    reading.end();
    return result;
  },
  measure: ({ ids, measures }) => {
    const reading = model.read().addAll(ids);
    const before = earlier(ids);
    const heads = reading.weights.flatMap((layer, i) =>
      layer.map((kept) => {
        const rows = kept.all();
        const means = meansOf(measures, rows, before, model.layers[i].window);
        const role = roleOf(measures, means, rows);
        const values = Object.entries(means).map(([name, one]) => [name, one.mean]);
        return { means: Object.fromEntries(values), role, rank: rankOf(measures, role) };
      }),
    );
    reading.end();
    return heads;
  },
  write: ({ ids, count }) => {
    const reading = model.read().addAll(ids);
    const written = Array.from({ length: count }, () => {
      const next = reading.logits.indexOf(reading.logits.reduce((most, one) => (one > most ? one : most)));
      reading.addAll([next]);
      return next;
    });
    reading.end();
    return written;
  },
  steps: async ({ ids, layer, steps: { steps, length } }) => {
    const reading = model.read({}, layer).addAll(ids);
    const blocks = stepsOf(reading, "steps");
    const H = model.layers[layer].heads;
    const loaded = await loadSteps(describeSteps(steps, length, ids.length, "steps"), H, async (key) =>
      blocks.get(key),
    );
    reading.end();
    return loaded.map((one) => ({ ...one.info, numbers: numbersOf(one).map(String) }));
  },
  tokenizer: ({ tables }) => void (tokenizer = new Tokenizer(tables)),
  sequences: ({ lists }) => lists.map((ids) => sequenceOf(tokenizer, ids)),
  encode: ({ texts }) => texts.map((text) => tokenizer.encode(text)),
  decode: ({ lists }) => lists.map((ids) => tokenizer.decode(ids)),
};

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  try {
    console.log(JSON.stringify({ result: (await answers[request.do](request)) ?? null }));
  } catch (error) {
    console.log(JSON.stringify({ error: error.message }));
  }
}
