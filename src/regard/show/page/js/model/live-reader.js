// Reads the texts that people type: one question after the other, a newer one in place of the older. The beginning that
// a text has in common with the one before is not read again.

import { describeReading } from "./live-report.js";
import { stepsOf } from "./live-steps.js";
import { likely, sample } from "./next-token.js";

/** @import { Cut, Model, Reading } from "./engine.js" */
/** @import { Tokenizer } from "./tokenizer.js" */
/** @import { NextToken } from "./next-token.js" */
/** @import { LayerSteps } from "./live-steps.js" */
/** @import { Report } from "../data/page-data.js" */
/** @import { Measures } from "./statistics.js" */
/**
 * ids: the tokens that a text was written with, where they are known; cut: what to leave out, in a second reading.
 * @typedef {{text: string, ids?: number[] | null, titles: string[], cut?: Cut | null}} LiveQuestion
 * lost: the token of the text whose probability a cut lowers most, and that in both readings.
 * @typedef {{at: number, chances: number[]}} Lost
 * @typedef {{ids: number[], text: string, reports: Report[], blocks: Map<string, Uint8Array>, next: NextToken[], lost:
 *   Lost | null}} LiveAnswer
 * pause: milliseconds after a token.
 * @typedef {{ids: number[], cut?: Cut | null, temperature: number, count: number, pause?: number}} WriteQuestion
 * @typedef {{id: number, text: string, rows: Float32Array}} Written a token, the text so far, and the newest row of
 *   every head, one after the other
 */

const LEAST = 0.05; // of a probability that is lost

/**
 * Where the probability of what the text has there falls most; null where it falls nowhere by LEAST.
 * @param {Float64Array} before @param {Float64Array} after @returns {Lost | null}
 */
function mostLost(before, after) {
  let best = 0; // whose probability is NaN
  for (let at = 1; at < before.length; at++) if (!(before[at] - after[at] <= before[best] - after[best])) best = at;
  return before[best] - after[best] >= LEAST ? { at: best, chances: [before[best], after[best]] } : null;
}

export class LiveReader {
  /**
   * @param {Model} model @param {Tokenizer} tokenizer @param {Measures} measures @param {number} longest tokens
   * @param {LayerSteps[]} steps of each layer, without numbers
   */
  constructor(model, tokenizer, measures, longest, steps = []) {
    this.model = model;
    this.tokenizer = tokenizer;
    this.measures = measures;
    this.longest = Math.min(longest, model.plan.context);
    this.steps = steps;
    /** Of the text before: without a cut, and with one. @type {{cut: string, reading: Reading}[]} */
    this.kept = [];
    /** The readings of the newest answer. @type {Reading[]} */
    this.shown = [];
  }

  /**
   * The reports of a text: as it is, and where something is cut also without that.
   * @param {LiveQuestion} question
   * @param {() => Promise<boolean>} mayGoOn lets others run; false: a newer question is waiting
   * @returns {Promise<LiveAnswer | null>} null where it was given up
   */
  async answer({ text, ids: written, titles, cut }, mayGoOn) {
    const ids = written ?? this.tokenizer.encode(text);
    this.#check(ids);
    const readings = [];
    for (const one of cut ? [{}, cut] : [{}]) {
      const reading = this.#reading(one, ids);
      for (const _ of reading.add(ids.slice(reading.ids.length))) if (!(await mayGoOn())) return null;
      readings.push(reading);
    }
    this.shown = readings;
    const next = likely(
      readings.map((one) => one.logits),
      this.tokenizer,
      this.model.plan.ends,
    );
    const shown = written ? this.tokenizer.decode(ids) : text;
    const lost = readings.length > 1 ? mostLost(readings[0].chances(), readings[1].chances()) : null;
    const answer = /** @type {LiveAnswer} */ ({ ids, text: shown, reports: [], blocks: new Map(), next, lost });
    readings.forEach((reading, number) => {
      const { report, blocks } = describeReading(reading, this, titles[number] ?? "", number);
      answer.reports.push(report);
      for (const [key, block] of blocks) answer.blocks.set(key, block);
    });
    return answer;
  }

  /**
   * The numbers of a layer's steps, in the newest answer. @param {number} report @param {number} layer
   * @returns {Map<string, Uint8Array>}
   */
  stepsOf(report, layer) {
    const { cut, ids } = this.shown[report];
    const reading = this.model.read(cut, layer).addAll(ids);
    reading.end();
    return stepsOf(reading, `steps.${report}.${layer}`);
  }

  /**
   * Write on, token by token, until the model ends the text.
   * @param {WriteQuestion} question @returns {Generator<Written>}
   */
  *write({ ids, cut, temperature, count }) {
    const reading = this.#reading(cut ?? {}, ids);
    reading.addAll(ids.slice(reading.ids.length));
    for (let n = 0; n < count && reading.ids.length < this.longest; n++) {
      const id = sample(reading.logits, temperature, Math.random());
      if (this.model.plan.ends.includes(id)) return;
      reading.addAll([id]);
      const newest = reading.weights.flatMap((heads) => heads.map((rows) => rows.row(rows.length - 1)));
      const rows = new Float32Array(newest.length * reading.ids.length);
      newest.forEach((row, i) => rows.set(row, i * reading.ids.length));
      yield { id, text: this.tokenizer.decode(reading.ids), rows };
    }
  }

  /** @param {number[]} ids */
  #check(ids) {
    if (!ids.length) throw new Error("The text is empty. Type a few words.");
    if (ids.length > this.longest)
      throw new Error(`The text has ${ids.length} tokens; at most ${this.longest} are read here. Shorten it.`);
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
}
