// A training run as its page has it: the loss, and every statistic of every head at each kept step.
// show/page/training_page.py writes it.

import { max, min } from "../data/math.js";
import { blockOf } from "../data/page-data.js";

/** @import { RoleInfo } from "./atlas-data.js" */

/**
 * where: measured on random tokens, or in the texts. role: whose colour it has; "" for none.
 * @typedef {{name: string, label: string, where: "probe" | "texts", statistic: string, unit: string, about: string,
 *   role: string}} Curve
 * @typedef {{layer: number, head: number, step: number, first: boolean}} Birth
 * @typedef {(number | null)[]} Numbers null where it is unknown, or not finite
 * @typedef {{roles: number[], means: Record<string, Numbers>, noise: Record<string, Numbers>}} HeadCurves
 * @typedef {{model: string, texts: number, tokens: number, steps: number[], losses: Numbers,
 *   curve: [number, number | null][], validation: [number, number][], seconds: Numbers, statistics: Curve[],
 *   roles: RoleInfo[], layers: {name: string, heads: number}[], births: Record<string, Birth[]>,
 *   best: Record<string, string[]>, threshold: number, many: number}} RunDocument
 */

const LEAST = 0.5; // the smallest weight at which an axis of weights ends

/** One head of a run, at the step that is shown. */
export class RunHead {
  /** @param {Run} run @param {number} layer @param {number} head @param {HeadCurves} curves */
  constructor(run, layer, head, curves) {
    this.run = run;
    this.layer = layer;
    this.head = head;
    this.curves = curves;
    this.name = `${layer}.${head}`;
    this.info = { jobs: {} };
  }

  /** By the texts, at the step that is shown. */
  get role() {
    return this.run.info.roles[this.curves.roles[this.run.at]].name;
  }

  /** @param {string} name @returns {number | undefined} */
  number(name) {
    return this.curves.means[name]?.[this.run.at] ?? undefined;
  }

  /** The standard error of that. @param {string} name @returns {number | undefined} */
  noise(name) {
    return this.curves.noise[name]?.[this.run.at] ?? undefined;
  }
}

/** The heads of a model over the steps of its training. */
export class Run {
  /** @param {RunDocument} info @param {HeadCurves[]} curves of all heads, layer by layer */
  constructor(info, curves) {
    this.info = info;
    /** Which of the kept steps is shown. */
    this.at = 0;
    const places = info.layers.flatMap(({ heads }, layer) => Array.from({ length: heads }, (_, head) => [layer, head]));
    this.heads = places.map(([layer, head], i) => new RunHead(this, layer, head, curves[i]));
    this.byName = new Map(this.heads.map((one) => [one.name, one]));
    this.roles = new Map(info.roles.map((one) => [one.name, one]));
    this.most = max(1, ...info.layers.map(({ heads }) => heads));
    /** Heads of each layer, as a map counts them. */
    this.sizes = info.layers.map(({ heads }) => heads);
    this.statistics = info.statistics.filter(({ name }) => curves.some(({ means }) => means[name]));
    /** @type {Map<string, [number, number]>} */
    this.ranges = new Map();
  }

  /** The run of a document. @param {Document} source */
  static async open(source) {
    const curves = JSON.parse(new TextDecoder().decode(await blockOf(source, "heads")));
    return new Run(JSON.parse(source.getElementById("regard-document")?.textContent ?? ""), curves);
  }

  /** Is the statistic a weight, from 0 to 1? @param {string} name */
  isWeight(name) {
    return this.statistics.find((one) => one.name === name)?.unit === "weight";
  }

  /** The smallest, or 0, and the largest value of a statistic, with its noise, of all heads at all steps.
   * @param {string} name @returns {[number, number]} */
  range(name) {
    let known = this.ranges.get(name);
    if (!known) {
      known = [0, this.isWeight(name) ? LEAST : 1e-9];
      for (const { curves } of this.heads)
        for (const [i, value] of (curves.means[name] ?? []).entries()) {
          if (value === null) continue;
          const noise = this.info.many * (curves.noise[name]?.[i] ?? 0);
          known = [min(known[0], value), max(known[1], value + noise)];
        }
      this.ranges.set(name, known);
    }
    return known;
  }

  /** How far along the range of all steps a head is. @param {string} name @returns {(head: RunHead) => number} */
  scale(name) {
    const [low, high] = this.range(name);
    return (head) => ((head.number(name) ?? 0) - low) / (high - low);
  }

  /** The kept step that is nearest. @param {number} step */
  nearest(step) {
    const { steps } = this.info;
    const distance = (/** @type {number} */ i) => Math.abs(steps[i] - step);
    return steps.reduce((best, _, i) => (distance(i) < distance(best) ? i : best), 0);
  }
}

/** The mean of the values around each; null where all are unknown. @param {Numbers} values @param {number} around */
export function smooth(values, around) {
  return values.map((_, i) => {
    const near = values.slice(max(0, i - around), i + around + 1).filter((one) => one !== null);
    return near.length ? near.reduce((a, b) => a + b, 0) / near.length : null;
  });
}

/**
 * Some round numbers from low to high, at most so many.
 * @param {number} low @param {number} high @param {number} most
 */
export function ticks(low, high, most) {
  if (!(high > low)) return [low];
  const rough = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((one) => one * power >= rough) ?? 10);
  const first = Math.ceil(low / step - 1e-9);
  const count = Math.floor(high / step + 1e-9) - first + 1;
  return Array.from({ length: max(0, count) }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}
