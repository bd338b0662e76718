// Follow: one number from x to out, in words and sums. A sum is only written where the numbers of the tensors fulfil
// it.

import { abs, round, sqrt } from "../data/math.js";
import { equation, factor, holds, MINUS, shortNumber, summand, sumOf } from "./equations.js";

/** @import { Choice, StepTensor } from "../data/step-tensors.js" */
/**
 * bars: the numbers of one word, the same ones under the same id; marked: the one we follow (-1: none); from, to: those
 * of the chosen head, where there are more.
 * keys: one number for each key.
 * @typedef {{kind: "bars", id: string, whose: string, values: Float32Array, marked: number, from: number, to: number,
 *   heads: number} | {kind: "keys", whose: string, values: Float32Array, weights: boolean} | {kind: "none"}} StepPart
 * sum: what gives the number ("1.93 × 5.52 ="), or ""; number: the number we follow, or "".
 * @typedef {{part: StepPart, sum: string, number: string, note: string}} StepLine
 * @typedef {{tensor: StepTensor, lines: StepLine[]}} StepRow
 * @typedef {{query: string, key: string, names: {query: string, key: string}}} Pair the words as labels ("the@4"), and
 *   as they are written
 */

const MAPS = ["scores", "mask", "scaled", "bias", "weights", "dropout"];
export const QUERY_CHAIN = ["queries", "split", "transpose", "normed", "turned"];
const KEY_CHAIN = ["keys", "split keys", "transpose keys", "normed keys", "turned keys"];
const VALUE_CHAIN = ["values", "split values", "transpose values"];

/** The steps by name, and which of them give the scores and the context. */
export class Flow {
  /** @param {StepTensor[]} steps */
  constructor(steps) {
    this.steps = steps;
    this.byName = new Map(steps.filter((one) => one.axes.some(Boolean) && one.values).map((one) => [one.name, one]));
    // Without queries, a step called split or transpose may be of anything.
    const last = (/** @type {string[]} */ names) => names.map((name) => this.byName.get(name)).findLast(Boolean);
    const named = this.byName.has("queries");
    this.queries = last(named ? QUERY_CHAIN : ["x"]);
    this.keys = last(named ? KEY_CHAIN : ["x", "source"]);
    this.values = last(named ? VALUE_CHAIN : ["x", "source"]);
    /** From scores to weights, in the order in which they were computed. */
    this.maps = steps.filter((one) => MAPS.includes(one.name) && this.byName.has(one.name));
    this.beforeSoftmax = this.#before("weights");
    this.kept = last(["weights", "dropout"]);
  }

  /** The step before this one, of those from scores to weights. @param {string} name */
  #before(name) {
    return this.maps[this.maps.findIndex((one) => one.name === name) - 1];
  }

  /**
   * The products of query and key, number by number, where their sum is the score; else null.
   * @param {Choice} choice @returns {Float32Array | null}
   */
  products(choice) {
    const scores = this.byName.get("scores");
    if (!scores || !this.queries || !this.keys) return null;
    const [q, k] = [this.queries.part(choice), partOfKey(this.keys, choice)];
    if (q.length !== k.length) return null;
    const products = q.map((value, i) => value * k[i]);
    return holds(sumOf(products), scores.row(choice)[choice.key], sumOf(products.map(abs))) ? products : null;
  }

  /**
   * What each key's value adds to a number of the context, where their sum is that number; else null.
   * @param {Choice} choice
   * @returns {{weight: number, value: number, rest: number, others: number, result: number} | null} rest: what the
   *   others add
   */
  mixed(choice) {
    const context = this.byName.get("context");
    if (!context || !this.kept || !this.values) return null;
    const [weights, values] = [this.kept.row(choice), this.values];
    const at = (/** @type {number} */ key) => partOfKey(values, { ...choice, key })[choice.number];
    const parts = weights.map((weight, key) => (weight ? weight * at(key) : 0));
    const result = context.part(choice)[choice.number];
    if (!holds(sumOf(parts), result, sumOf(parts.map(abs)))) return null;
    const others = weights.reduce((count, weight, key) => count + (weight && key !== choice.key ? 1 : 0), 0);
    return {
      weight: weights[choice.key],
      value: at(choice.key),
      rest: others ? result - parts[choice.key] : 0,
      others,
      result,
    };
  }

  /**
   * The number of a head whose product of query and key is largest: the one to follow unless another is chosen.
   * @param {Choice} choice @returns {number}
   */
  telling(choice) {
    const products = this.products(choice);
    if (!products) return 0;
    return products.reduce((best, value, i) => (abs(value) > abs(products[best]) ? i : best), 0);
  }

  /** How many numbers a query has. */
  get width() {
    return this.queries?.width ?? 1;
  }

  /**
   * Which step is made of which: their numbers, and the path between them: 0 queries and on, 1 keys, 2 values.
   * @returns {{from: number, to: number, lane: number}[]}
   */
  links() {
    const index = new Map(this.steps.map((one, i) => [one.name, i]));
    /** @type {{from: number, to: number, lane: number}[]} */
    const links = [];
    const chain = (/** @type {string[]} */ names, /** @type {number} */ lane) => {
      const at = names.flatMap((name) => index.get(name) ?? []);
      at.slice(1).forEach((to, i) => links.push({ from: at[i], to, lane }));
    };
    const source = index.has("source") ? "source" : "x";
    const maps = this.maps.map((one) => one.name);
    if (!this.byName.has("queries")) {
      chain([...maps, "context"], 0);
      const ofX = this.products({ head: 0, query: 0, key: 0, number: 0 }) !== null; // as in rung 1 of the ladder
      if (ofX) ["scores", "scores", "context"].forEach((name, path) => chain(["x", name], path));
      return links;
    }
    chain(["x", ...QUERY_CHAIN, ...maps, "context", "back", "concat", "out"], 0);
    chain([source, ...KEY_CHAIN, "scores"], 1);
    chain([source, ...VALUE_CHAIN, "context"], 2);
    return links;
  }

  /** What to show of every step. @param {Choice} choice @param {Pair} words @returns {StepRow[]} */
  rows(choice, words) {
    return this.steps.map((tensor) => ({ tensor, lines: this.#lines(tensor, choice, words) }));
  }

  /** @param {StepTensor} tensor @param {Choice} choice @param {Pair} words @returns {StepLine[]} */
  #lines(tensor, choice, words) {
    const { name, info } = tensor;
    if (!tensor.values)
      return [{ part: { kind: "none" }, sum: "", number: "", note: "its numbers are not in this file" }];
    if (!this.byName.has(name))
      return [{ part: { ...bars(tensor, choice, ""), marked: -1 }, sum: "", number: "", note: info.why }];
    if (tensor.axes.at(-1) === "key") return this.#mapLines(tensor, choice, words);
    const part = bars(tensor, choice, tensor.ofKeys ? words.names.key : words.names.query);
    const line = {
      part,
      sum: "",
      number: part.marked < 0 ? "" : shortNumber(part.values[part.marked]),
      note: info.why,
    };
    if (name === "context") return [this.#context(line, choice, words)];
    const note = this.byName.has("queries") || name === "x" ? vectorNote(tensor, choice, words, part) : null;
    if (note !== null && (name !== "x" || this.queries === tensor)) return [{ ...line, note }];
    const count = `${part.values.length}${name === "out" ? " new" : ""} numbers for “${words.query}”`;
    return [
      { part: { ...part, marked: -1 }, sum: "", number: "", note: name === "x" || name === "out" ? count : info.why },
    ];
  }

  /** @param {StepLine} line @param {Choice} choice @param {Pair} words @returns {StepLine} */
  #context(line, choice, words) {
    const mixed = this.mixed(choice);
    if (!mixed) return line;
    const { weight, value, rest, others, result } = mixed;
    const sum = equation([weight, value, rest], ([w, v, r]) => w * v + r, result);
    if (!sum) return line;
    const [w, v, r] = sum.operands;
    const and = others ? `, and ${others} other${others === 1 ? "" : "s"}` : "";
    return {
      ...line,
      sum: `${w} × ${factor(v)} ${others ? `${summand(r)} ` : ""}=`,
      number: sum.result,
      note: `“${words.key}” by its weight${and}`,
    };
  }

  /** @param {StepTensor} tensor @param {Choice} choice @param {Pair} words @returns {StepLine[]} */
  #mapLines(tensor, choice, words) {
    const { name, info } = tensor;
    const values = tensor.row(choice);
    const value = values[choice.key];
    const weights = name === "weights" || name === "dropout";
    /** @type {StepLine} */
    const line = {
      part: { kind: "keys", whose: words.names.query, values, weights },
      sum: "",
      number: shortNumber(value),
      note: info.why,
    };
    const before = this.#before(name)?.row(choice)[choice.key] ?? NaN;
    if (name === "scores") return this.#scores(line, choice, words);
    if (name === "mask") {
      const hidden = values.reduce((count, one) => count + (one === -Infinity ? 1 : 0), 0);
      const kept = `kept; ${hidden || "no"} of ${values.length} keys ${hidden === 1 ? "is" : "are"} hidden`;
      if (value === -Infinity) return [{ ...line, note: `“${words.key}” is hidden: −∞ becomes weight 0` }];
      return [{ ...line, note: before === value ? kept : info.why }];
    }
    if (value === -Infinity) return [{ ...line, note: "hidden stays hidden" }];
    if (name === "scaled") return [scaledLine(line, before, value, this.width)];
    if (name === "bias") {
      const sum = equation([before, value - before], ([a, b]) => a + b, value);
      return [sum ? { ...line, sum: `${sum.operands[0]} ${summand(sum.operands[1])} =`, number: sum.result } : line];
    }
    if (name === "dropout") {
      return [{ ...line, note: before === value ? "the same: dropout is for training only" : info.why }];
    }
    const scores = this.beforeSoftmax?.row(choice) ?? new Float32Array();
    const score = scores[choice.key];
    if (score === -Infinity && value === 0)
      return [{ ...line, sum: `e^${MINUS}∞ =`, number: "0", note: "a hidden key gets nothing" }];
    const sum = equation(
      [score, scores.reduce((total, one) => total + Math.exp(one), 0)],
      ([a, b]) => Math.exp(a) / b,
      value,
    );
    if (!sum) return [line];
    return [
      {
        ...line,
        sum: `e^${sum.operands[0]} ÷ ${sum.operands[1]} =`,
        number: sum.result,
        note: "÷ the sum over all keys: adds up to 1",
      },
    ];
  }

  /** @param {StepLine} line @param {Choice} choice @param {Pair} words @returns {StepLine[]} */
  #scores(line, choice, words) {
    const products = this.products(choice);
    if (!products || !this.queries || !this.keys) return [line];
    const [q, k] = [this.queries.part(choice)[choice.number], partOfKey(this.keys, choice)[choice.number]];
    const product = products[choice.number];
    const sum = equation([q, k], ([a, b]) => a * b, product);
    const number = sum?.result ?? shortNumber(product);
    const count = products.length - 1;
    const largest = products.every((one) => abs(one) <= abs(product));
    const whose = `${words.names.query} × ${words.names.key}`;
    const id = `${choice.head} ${choice.query} ${choice.key}`;
    /** @type {StepPart} */
    const part = {
      kind: "bars",
      id,
      whose,
      values: products,
      marked: choice.number,
      from: 0,
      to: products.length,
      heads: 1,
    };
    const note = largest && count ? "query × key: the largest product" : "query × key, number by number";
    return [
      { part, sum: sum ? `${sum.operands[0]} × ${factor(sum.operands[1])} =` : "", number, note },
      {
        ...line,
        sum: count ? `${number} + ${count} more =` : "",
        note: `the score of “${words.key}” for “${words.query}”`,
      },
    ];
  }
}

/** @param {StepLine} line @param {number} score @param {number} value @param {number} width @returns {StepLine} */
function scaledLine(line, score, value, width) {
  const root = equation([score, sqrt(width)], ([a, b]) => a / b, value);
  if (root && holds(score / sqrt(width), value, abs(value))) {
    const note = `÷ √${width}: a score adds up ${width} products`;
    return { ...line, sum: `${root.operands[0]} ÷ ${root.operands[1]} =`, number: root.result, note };
  }
  const sum = score ? equation([score, value / score], ([a, b]) => a * b, value) : null;
  return sum ? { ...line, sum: `${sum.operands[0]} × ${factor(sum.operands[1])} =`, number: sum.result } : line;
}

/**
 * What a step of vectors says of the number we follow; null where it is not in this step.
 * @param {StepTensor} tensor
 * @param {Choice} choice
 * @param {Pair} words
 * @param {StepPart & {kind: "bars"}} part
 * @returns {string | null}
 */
function vectorNote(tensor, choice, words, part) {
  const { name, info, width, sizes, axes } = tensor;
  const [base, whose] = name.split(" ");
  const which = `number ${choice.number}`;
  const heads = axes.indexOf("head");
  if (name === "x") return `${which} of ${part.values.length} for “${words.query}”`;
  if (name === "queries") return `what “${words.query}” looks for, ${which}`;
  if (name === "keys") return `what “${words.key}” offers, ${which}`;
  if (name === "values") return `what “${words.key}” hands over, ${which}`;
  if (whose && heads >= 0 && (base === "split" || base === "transpose")) return "";
  if (base === "split" && heads >= 0) return `the same ${part.values.length}, as ${sizes[heads]} heads of ${width}`;
  if (base === "transpose" && heads >= 0)
    return `head ${choice.head} is now one matrix, ${sizes[1 - heads]} × ${width}`;
  if (name === "concat" && info.heads > 1) return `now number ${part.marked} of ${part.values.length}`;
  if (name === "back" || base === "normed" || base === "turned") return info.why;
  return null;
}

/**
 * The numbers of one word in a step: in all heads, with the chosen head's part, where the heads are side by side.
 * @param {StepTensor} tensor @param {Choice} choice @param {string} whose @returns {StepPart & {kind: "bars"}}
 */
function bars(tensor, choice, whose) {
  const axis = tensor.axes.indexOf("head");
  const beside = tensor.info.heads > 1 || (axis > 0 && axis < tensor.axes.length - 1);
  const values = beside ? tensor.all(choice) : tensor.row(choice);
  const heads = beside ? round(values.length / tensor.width) : 1;
  const from = beside ? tensor.at(choice.head) * tensor.width : 0;
  const marked = from + choice.number;
  // Of a step whose axes are not known, the first row is shown.
  const known = tensor.axes.every((name, i) => name || i === tensor.axes.length - 1);
  const id = `${beside ? "" : choice.head} ${tensor.ofKeys ? choice.key : choice.query}`;
  const to = beside ? from + tensor.width : values.length;
  return {
    kind: "bars",
    id,
    whose: known ? whose : "first row",
    values,
    marked: marked < values.length ? marked : -1,
    from,
    to,
    heads,
  };
}

/**
 * The numbers of the key, also where a step holds them for queries: in rung 1, x is both.
 * @param {StepTensor} tensor @param {Choice} choice
 */
function partOfKey(tensor, choice) {
  return tensor.part(tensor.ofKeys ? choice : { ...choice, query: choice.key });
}

/**
 * The keys to show, in the order of the text: those with the largest weights, the chosen one, and one that is hidden.
 * @param {ArrayLike<number>} weights
 * @param {ArrayLike<number>} scores −∞ where hidden
 * @param {number[]} always
 * @param {number} most
 * @returns {number[]}
 */
export function keyColumns(weights, scores, always, most) {
  const all = Array.from(weights, (_, key) => key);
  if (all.length <= most) return all;
  const hidden = all.find((key) => scores[key] === -Infinity);
  const first = [...always, ...(hidden === undefined ? [] : [hidden])].filter((key) => key >= 0);
  const chosen = new Set(first.slice(0, most));
  for (const key of [...all].sort((a, b) => weights[b] - weights[a])) if (chosen.size < most) chosen.add(key);
  return all.filter((key) => chosen.has(key));
}
