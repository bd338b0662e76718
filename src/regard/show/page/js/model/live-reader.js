// Reads the texts that people type: one question after the other, a newer one in place of the older. The beginning that
// a text has in common with the one before is not read again.

import { describeReading } from "./live-report.js";

/** @import { Cut, Model, Reading } from "./engine.js" */
/** @import { Tokenizer } from "./tokenizer.js" */
/** @import { Report } from "../data/page-data.js" */
/** @import { Measures } from "./statistics.js" */
/** @typedef {{text: string, title: string, cut?: Cut}} LiveQuestion */
/** @typedef {{reports: Report[], blocks: Map<string, Uint8Array>, next: NextToken[][]}} LiveAnswer */
/** @typedef {{id: number, text: string, probability: number}} NextToken */

const LIKELY = 10; // next tokens that are named

export class LiveReader {
  /** @param {Model} model @param {Tokenizer} tokenizer @param {Measures} measures @param {number} longest tokens */
  constructor(model, tokenizer, measures, longest) {
    this.model = model;
    this.tokenizer = tokenizer;
    this.measures = measures;
    this.longest = Math.min(longest, model.plan.context);
    /** Of the text before: without a cut, and with one. @type {{cut: string, reading: Reading}[]} */
    this.kept = [];
  }

  /**
   * The reports of a text: as it is, and where something is cut also without that.
   * @param {LiveQuestion} question
   * @param {() => Promise<boolean>} mayGoOn lets others run; false: a newer question is waiting
   * @returns {Promise<LiveAnswer | null>} null where it was given up
   */
  async answer({ text, title, cut }, mayGoOn) {
    const ids = this.tokenizer.encode(text);
    if (!ids.length) throw new Error("The text is empty. Type a few words.");
    if (ids.length > this.longest)
      throw new Error(`The text has ${ids.length} tokens; at most ${this.longest} are read here. Shorten it.`);
    const cuts = cut ? [{}, cut] : [{}];
    const readings = [];
    for (const one of cuts) {
      const reading = this.#reading(one, ids);
      for (const _ of reading.add(ids.slice(reading.ids.length))) if (!(await mayGoOn())) return null;
      readings.push(reading);
    }
    const answer = /** @type {LiveAnswer} */ ({ reports: [], blocks: new Map(), next: [] });
    readings.forEach((reading, number) => {
      const name = cut ? (number ? named(cut) : "uncut") : title;
      const { report, blocks } = describeReading(reading, this.tokenizer, this.measures, name, number);
      answer.reports.push(report);
      for (const [key, block] of blocks) answer.blocks.set(key, block);
      answer.next.push(this.#likely(reading.logits));
    });
    return answer;
  }

  /** A reading with this cut, of as much of the text as the last one had. @param {Cut} cut @param {number[]} ids */
  #reading(cut, ids) {
    const key = JSON.stringify(cut);
    let found = this.kept.find((one) => one.cut === key);
    if (!found) {
      while (this.kept.length > 1) this.kept.pop()?.reading.end(); // the first is without a cut
      found = { cut: key, reading: this.model.read(cut) };
      this.kept.push(found);
    }
    const { reading } = found;
    let same = 0;
    while (same < ids.length - 1 && reading.ids[same] === ids[same]) same++; // the last is read for what follows it
    reading.keep(same);
    return reading;
  }

  /** @param {Float32Array} logits @returns {NextToken[]} */
  #likely(logits) {
    const most = logits.reduce((a, b) => Math.max(a, b));
    const sum = logits.reduce((all, one) => all + Math.exp(one - most), 0);
    const order = Array.from(logits.keys()).sort((a, b) => logits[b] - logits[a]);
    return order.slice(0, LIKELY).map((id) => {
      const probability = Math.exp(logits[id] - most) / sum;
      return { id, text: this.tokenizer.decode([id]), probability };
    });
  }
}

/** What a cut leaves out, in words. @param {Cut} cut */
function named({ heads = [], edges = [] }) {
  const parts = [...heads.map(([layer, head]) => `${layer}.${head}`), ...edges.map(([q, k]) => `${q}→${k}`)];
  return `without ${parts.join(", ")}`;
}
