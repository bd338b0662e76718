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
 * Draw a report into a cell of a notebook; returns what takes it down.
 * @param {{model: Model, el: HTMLElement}} cell
 * @returns {() => void}
 */
export function renderWidget({ model, el }) {
  /** @type {Map<string, {answer: (bytes: Uint8Array<ArrayBuffer>) => void, fail: (error: Error) => void}>} */
  const waiting = new Map();
  const receive = (
    /** @type {{key: string, error?: string}} */ message,
    /** @type {DataView<ArrayBuffer>[]} */ buffers,
  ) => {
    const one = waiting.get(message.key);
    waiting.delete(message.key);
    if (!one) return;
    if (message.error) one.fail(new Error(message.error));
    else one.answer(new Uint8Array(buffers[0].buffer, buffers[0].byteOffset, buffers[0].byteLength));
  };
  model.on("msg:custom", receive);
  /** @type {import("./data.js").Transport} */
  const transport = async (key) => {
    const bytes = await new Promise((/** @type {(bytes: Uint8Array<ArrayBuffer>) => void} */ answer, fail) => {
      waiting.set(key, { answer, fail });
      model.send({ key });
      setTimeout(() => {
        if (waiting.delete(key)) fail(new Error("The kernel does not answer. Run the cell again."));
      }, PATIENCE);
    });
    return gunzip(bytes);
  };
  const root = h("div");
  el.append(root);
  const app = new App(root, JSON.parse(model.get("document")), transport, {
    address: false,
    state: model.get("start"),
  });
  return () => {
    model.off("msg:custom", receive);
    app.destroy();
    root.remove();
  };
}
