// The page inside a notebook: blocks of weights come from the kernel, when they are needed.

import { gunzip } from "../data/page-data.js";
import { h } from "../draw/dom.js";
import { App } from "./app.js";

/**
 * What anywidget hands over.
 * @typedef {{get: (name: string) => any, send: (content: any) => void, on: (event: string, act: (...values: any[]) =>
 *   void) => void, off: (event: string, act: (...values: any[]) => void) => void}} Model
 */

const PATIENCE = 3000; // milliseconds, after which the page says what it waits for
const WAITS =
  "Waiting for the kernel, which runs other cells or computes this. If it was stopped, run this cell again.";

/**
 * Asks the kernel for blocks; a block that is asked for twice is sent once. A kernel answers when its cells have run,
 * which can take hours, so waiting never ends in an error.
 * @param {(content: {key: string}) => void} send
 * @param {(isSlow: boolean) => void} [slow] called when an answer takes long, and when all are here
 * @param {number} [patience]
 */
export function kernelBlocks(send, slow = () => {}, patience = PATIENCE) {
  /** @typedef {Uint8Array<ArrayBuffer>} Bytes */
  /** @type {Map<string, {answer: (bytes: Bytes) => void, fail: (error: Error) => void}>} */
  const waiting = new Map();
  /** @type {Map<string, Promise<Bytes>>} */
  const asked = new Map();
  return {
    /** @param {string} key @returns {Promise<Bytes>} */
    get(key) {
      const known = asked.get(key);
      if (known) return known;
      /** @type {ReturnType<typeof setTimeout>} */
      let timer;
      const promise = new Promise((/** @type {(bytes: Bytes) => void} */ answer, fail) => {
        waiting.set(key, { answer, fail });
        timer = setTimeout(() => slow(true), patience);
        send({ key });
      }).finally(() => {
        clearTimeout(timer);
        waiting.delete(key);
        asked.delete(key);
        if (!waiting.size) slow(false);
      });
      asked.set(key, promise);
      return promise;
    },

    /**
     * A message of the kernel.
     * @param {{key: string, error?: string}} message @param {DataView<ArrayBuffer>[]} buffers
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
 * @param {{model: Model, el: HTMLElement}} cell @returns {() => void}
 */
export function renderWidget({ model, el }) {
  const note = h("p.note", { role: "status" }, WAITS);
  const tell = (/** @type {boolean} */ isSlow) => {
    note.hidden = !isSlow;
  };
  tell(false);
  const blocks = kernelBlocks((content) => model.send(content), tell);
  model.on("msg:custom", blocks.receive);
  const root = h("div");
  el.append(root);
  const app = new App(root, JSON.parse(model.get("document")), async (key) => gunzip(await blocks.get(key)), {
    address: false,
    state: model.get("start"),
    above: note,
  });
  return () => {
    model.off("msg:custom", blocks.receive);
    app.destroy();
    root.remove();
  };
}
