// The worker of a live page: it runs the model, so that the page never waits. First message: the model. Then questions,
// each with a number; only the newest is answered.

import { Model } from "./engine.js";
import product from "./linear.wasm";
import { LiveReader } from "./live-reader.js";
import { Tokenizer } from "./tokenizer.js";
import { wasmLinear } from "./wasm-linear.js";

/** @type {LiveReader | null} */
let reader = null;
let newest = 0;
const channel = new MessageChannel();
/** @type {(() => void)[]} */
const waiting = [];
channel.port1.onmessage = () => waiting.shift()?.();

/** Let messages in; a timer would wait for milliseconds. @returns {Promise<void>} */
function pause() {
  return new Promise((resolve) => {
    waiting.push(resolve);
    channel.port2.postMessage(null);
  });
}

globalThis.onmessage = async (/** @type {MessageEvent} */ { data }) => {
  const number = data.number;
  newest = number;
  try {
    if (data.model) {
      const { plan, weights, tokenizer, measures, longest, wasm } = data.model;
      const model = new Model(plan, weights, wasm ? await wasmLinear(product) : null);
      reader = new LiveReader(model, new Tokenizer(tokenizer), measures, longest);
      globalThis.postMessage({ number, ready: true });
      return;
    }
    await pause(); // a newer question may be here already
    if (newest !== number) return;
    const answer = await reader?.answer(data.question, async () => (await pause(), newest === number));
    const buffers = /** @type {ArrayBuffer[]} */ ([...(answer?.blocks.values() ?? [])].map((block) => block.buffer));
    if (answer) globalThis.postMessage({ number, answer }, { transfer: buffers });
  } catch (error) {
    globalThis.postMessage({ number, error: error instanceof Error ? error.message : String(error) });
  }
};
