// @ts-check
// The page inside a notebook: blocks of weights come from the kernel, when they are needed.

import { App } from "./app.js";
import { gunzip } from "./data.js";
import { h } from "./dom.js";

/**
 * What anywidget hands over.
 * @typedef {{get: (name: string) => any, send: (content: any) => void,
 *   on: (event: string, act: (...values: any[]) => void) => void, off: (event: string, act: (...values: any[]) => void) => void}} Model
 */

const PATIENCE = 30_000; // milliseconds for an answer of the kernel

/**
 * Asks the kernel for blocks; a block that is asked for twice is sent once.
 * @param {(content: {key: string}) => void} send
 * @param {number} [patience]
 */
export function kernelBlocks(send, patience = PATIENCE) {
  /** @typedef {Uint8Array<ArrayBuffer>} Bytes */
  /** @type {Map<string, {answer: (bytes: Bytes) => void, fail: (error: Error) => void}>} */
  const waiting = new Map();
  /** @type {Map<string, Promise<Bytes>>} */
  const asked = new Map();
  return {
    /**
     * @param {string} key
     * @returns {Promise<Bytes>}
     */
    get(key) {
      const known = asked.get(key);
      if (known) return known;
      /** @type {ReturnType<typeof setTimeout>} */
      let timer;
      const promise = new Promise((/** @type {(bytes: Bytes) => void} */ answer, fail) => {
        waiting.set(key, { answer, fail });
        timer = setTimeout(() => fail(new Error("The kernel does not answer. Run the cell again.")), patience);
        send({ key });
      }).finally(() => {
        clearTimeout(timer);
        waiting.delete(key);
        asked.delete(key);
      });
      asked.set(key, promise);
      return promise;
    },

    /**
     * A message of the kernel.
     * @param {{key: string, error?: string}} message
     * @param {DataView<ArrayBuffer>[]} buffers
     */
    receive(message, buffers) {
      const one = waiting.get(message.key);
      if (!one) return;
      if (message.error) one.fail(new Error(message.error));
      else one.answer(new Uint8Array(buffers[0].buffer, buffers[0].byteOffset, buffers[0].byteLength));
    },
  };
}

/**
 * Draw a report into a cell of a notebook; returns what takes it down.
 * @param {{model: Model, el: HTMLElement}} cell
 * @returns {() => void}
 */
export function renderWidget({ model, el }) {
  const blocks = kernelBlocks((content) => model.send(content));
  model.on("msg:custom", blocks.receive);
  const root = h("div");
  el.append(root);
  const app = new App(root, JSON.parse(model.get("document")), async (key) => gunzip(await blocks.get(key)), {
    address: false,
    state: model.get("start"),
  });
  return () => {
    model.off("msg:custom", blocks.receive);
    app.destroy();
    root.remove();
  };
}
