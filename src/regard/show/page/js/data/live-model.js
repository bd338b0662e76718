// The model in the page as the source of reports: a worker runs it, and blocks are in memory.

import { blockOf } from "./page-data.js";

/** @import { Answer, Question, Source } from "./server.js" */
/** @import { Page, Report } from "./page-data.js" */
/**
 * @typedef {{plan: object, tokenizer: object, measures: object, longest: number, page: Omit<Page, "reports">}} Live
 *   what regard/show/page/live.py writes: `page` is what reports have in common
 */

/** @implements {Source} */
export class LiveModel {
  /** @param {Worker} worker @param {Live} live */
  constructor(worker, live) {
    this.isLive = true;
    this.worker = worker;
    this.live = live;
    this.number = 0;
    /** @type {Map<number, (data: any) => void>} */
    this.waiting = new Map();
    /** Of the newest answer. @type {Map<string, Uint8Array>} */
    this.blocks = new Map();
    worker.onmessage = ({ data }) => this.#receive(data);
    worker.onerror = (event) => this.#receive({ number: this.number, error: event.message });
  }

  /**
   * Start the worker that the page carries, and give it the model.
   * @param {Document} document @param {Live} live @returns {Promise<LiveModel>}
   */
  static async start(document, live) {
    const source = new TextDecoder().decode(await blockOf(document, "worker"));
    const address = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
    const model = new LiveModel(new Worker(address), live);
    const { plan, tokenizer, measures, longest } = live;
    const weights = await blockOf(document, "model");
    await model.#send({ model: { plan, tokenizer, measures, longest, weights, wasm: true } }, [weights.buffer]);
    return model;
  }

  /** @param {Question} question @returns {Promise<Answer | null>} */
  async ask({ text, model, cut }) {
    const heads = cut ? [cut.split(".").map(Number)] : [];
    const data = await this.#send({ question: { text, title: model, cut: cut ? { heads } : undefined } });
    if (!data) return null;
    const { reports, blocks } = data.answer;
    this.blocks = blocks;
    const start = cut ? { view: "compare", ...mostChanged(reports) } : {};
    return { id: String(data.number), document: { ...this.live.page, reports, start } };
  }

  /** @param {string} _ @param {string} key @returns {Promise<Uint8Array>} */
  async block(_, key) {
    const block = this.blocks.get(key);
    if (!block) throw new Error(`${key} is not in this report.`);
    return block;
  }

  /** @param {object} message @param {Transferable[]} [transfer] @returns {Promise<any>} null: a newer one was sent */
  #send(message, transfer = []) {
    for (const resolve of this.waiting.values()) resolve(null);
    this.waiting.clear();
    const number = ++this.number;
    this.worker.postMessage({ number, ...message }, transfer);
    return new Promise((resolve, reject) => {
      this.waiting.set(number, (data) => (data?.error === undefined ? resolve(data) : reject(new Error(data.error))));
    });
  }

  /** @param {{number: number, error?: string}} data */
  #receive(data) {
    this.waiting.get(data.number)?.(data);
    this.waiting.delete(data.number);
  }
}

/**
 * The head whose means changed most from the first report to the second, each as a share of its largest value.
 * @param {Report[]} reports
 */
function mostChanged([before, after]) {
  let best = { layer: 0, head: 0, size: -1 };
  before.layers.forEach((one, layer) =>
    one.heads.forEach(({ means }, head) => {
      for (const [name, mean] of Object.entries(means)) {
        const other = after.layers[layer].heads[head].means[name];
        const size = mean === null || other === null ? -1 : Math.abs(other - mean) / one.most[name];
        if (size > best.size) best = { layer, head, size };
      }
    }),
  );
  return { layer: best.layer, head: best.head };
}
