// The model in the page as the source of reports: a worker runs it, and blocks are in memory.

import { blockOf } from "./page-data.js";

/** @import { Page, Report } from "./page-data.js" */
/** @import { Cut } from "../model/engine.js" */
/** @import { Lost, Written } from "../model/live-reader.js" */
/** @import { NextToken } from "../model/next-token.js" */
/**
 * @typedef {{plan: object, tokenizer: object, measures: object, steps: object[], longest: number, page: Omit<Page,
 *   "reports">}} Live what regard/show/page/live.py writes: `page` is what reports have in common
 * @typedef {{document: Page, ids: number[], text: string, next: NextToken[], lost: Lost | null, blocks: Map<string,
 *   Uint8Array>}} LiveReport
 */

export class LiveModel {
  /** @param {Worker} worker @param {Live} live */
  constructor(worker, live) {
    this.worker = worker;
    this.live = live;
    this.number = 0;
    /** @type {Map<number, {receive: (data: any) => void, stays: boolean}>} stays: not given up for a newer one */
    this.waiting = new Map();
    worker.onmessage = ({ data }) => this.#receive(data);
    worker.onerror = (event) => {
      for (const number of [...this.waiting.keys()]) this.#receive({ number, error: event.message });
    };
  }

  /**
   * Start the worker that the page carries, and give it the model.
   * @param {Document} document @param {Live} live @returns {Promise<LiveModel>}
   */
  static async start(document, live) {
    const [source, weights] = await Promise.all([blockOf(document, "worker"), blockOf(document, "model")]);
    document.getElementById("block-model")?.remove(); // 15 MB of text
    const address = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
    const model = new LiveModel(new Worker(address), live);
    const { plan, tokenizer, measures, longest, steps } = live;
    const wasm = !new URLSearchParams(location.search).has("plain"); // ?plain: as in a browser without WebAssembly
    await model.#send({ model: { plan, tokenizer, measures, longest, steps, weights, wasm } }, [weights.buffer]);
    return model;
  }

  /**
   * Read a text, and where something is cut also without that.
   * @param {{text: string, ids?: number[] | null, titles: string[], cut?: Cut | null}} question
   * @returns {Promise<LiveReport | null>} null: given up for a newer one
   */
  async ask(question) {
    const data = await this.#send({ question });
    if (!data) return null;
    const { reports, blocks, ids, text, next, lost } = data.answer;
    const start = reports.length > 1 ? { view: "compare", ...mostChanged(reports) } : {};
    return { ids, text, next, lost, blocks, document: { ...this.live.page, reports, start, runs: true } };
  }

  /**
   * Write on, until the text ends, enough is written or another question is asked.
   * @param {import("../model/live-reader.js").WriteQuestion} write
   * @param {(written: Written) => void} show @returns {Promise<any>}
   */
  write(write, show) {
    return this.#send({ write }, [], (data) => show(data.wrote));
  }

  /** End what is being read or written. */
  stop() {
    return this.#send({ stop: {} });
  }

  /**
   * A block of a report; the numbers of steps are computed now.
   * @param {LiveReport} report @param {string} key @returns {Promise<Uint8Array>}
   */
  async block({ blocks }, key) {
    const steps = /^steps\.(\d+)\.(\d+)\./.exec(key);
    if (!blocks.has(key) && steps) {
      const data = await this.#send({ steps: { report: Number(steps[1]), layer: Number(steps[2]) } });
      for (const [name, block] of data?.blocks ?? []) blocks.set(name, block);
    }
    const block = blocks.get(key);
    if (!block) throw new Error(`${key} is not in this report.`);
    return block;
  }

  /**
   * @param {object} message @param {Transferable[]} [transfer] @param {(data: any) => void} [wrote] of each token
   * @returns {Promise<any>} null: a newer one was sent
   */
  #send(message, transfer = [], wrote) {
    const stays = "steps" in message;
    const number = ++this.number;
    if (!stays) {
      for (const one of this.waiting.values()) if (!one.stays) one.receive(null);
    }
    return new Promise((resolve, reject) => {
      const receive = (/** @type {any} */ data) => {
        if (data?.wrote) return wrote?.(data);
        this.waiting.delete(number);
        if (data?.error === undefined) resolve(data);
        else reject(new Error(data.error));
      };
      this.waiting.set(number, { receive, stays });
      this.worker.postMessage({ number, ...message }, transfer);
    });
  }

  /** @param {{number: number, error?: string}} data */
  #receive(data) {
    this.waiting.get(data.number)?.receive(data);
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
