// The worker of a live page: it runs the model, so that the page never waits. First message: the model. Then questions
// and writing, each with a number; only the newest is answered. Numbers of steps are asked for in between.

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

/** What each kind of message does; `mayGoOn` lets newer ones in. */
const ANSWERS = {
  /** @param {any} data */
  async model({ plan, weights, tokenizer, measures, longest, steps, wasm }) {
    const model = new Model(plan, weights, wasm ? await wasmLinear(product) : null);
    weights.buffer.transfer?.(0); // they are in the model's memory now; do not wait for the garbage collector
    reader = new LiveReader(model, new Tokenizer(tokenizer), measures, longest, steps);
    return { ready: true };
  },
  /** @param {any} data @param {() => Promise<boolean>} mayGoOn */
  async question(data, mayGoOn) {
    const answer = (await mayGoOn()) && (await reader?.answer(data, mayGoOn)); // a newer question may be here already
    return answer ? { answer } : null;
  },
  /** @param {any} data @param {() => Promise<boolean>} mayGoOn @param {number} number */
  async write(data, mayGoOn, number) {
    for (const wrote of reader?.write(data) ?? []) {
      globalThis.postMessage({ number, wrote }, { transfer: [wrote.rows.buffer] });
      if (data.pause) await new Promise((resolve) => setTimeout(resolve, data.pause));
      if (!(await mayGoOn())) return { ended: "stopped" };
    }
    return { ended: "end" };
  },
  /** @param {any} data */
  async steps({ report, layer }) {
    return { blocks: reader?.stepsOf(report, layer) };
  },
  async stop() {
    return {};
  },
};

globalThis.onmessage = async (/** @type {MessageEvent} */ { data: { number, ...message } }) => {
  const [kind] = /** @type {(keyof typeof ANSWERS)[]} */ (Object.keys(message));
  if (kind !== "steps") newest = number;
  try {
    const result = await ANSWERS[kind](message[kind], async () => (await pause(), newest === number), number);
    if (!result) return;
    const blocks = /** @type {any} */ (result).answer?.blocks ?? /** @type {any} */ (result).blocks;
    const transfer = [...(blocks?.values() ?? [])].map((/** @type {Uint8Array} */ block) => block.buffer);
    globalThis.postMessage({ number, ...result }, { transfer });
  } catch (error) {
    globalThis.postMessage({ number, error: error instanceof Error ? error.message : String(error) });
  }
};
