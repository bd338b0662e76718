// Roles: a readable name for what a head does, by the rules of regard/heads/report/roles.py, which explains them.

import { largestKey } from "./statistics.js";

/** @import { Mean, Measures } from "./statistics.js" */
/** @typedef {{name: string, score: number, threshold: number, evidence: string}} Role */
/** @typedef {Measures["roles"][number]} Kind */

/**
 * The role of a head.
 * @param {Measures} measures @param {Record<string, Mean>} means @param {Float32Array[]} rows @returns {Role}
 */
export function roleOf(measures, means, rows) {
  const patterns = measures.roles.flatMap((kind) => {
    const role = kind.statistic ? patternOf(measures, means, kind) : null;
    return role ? [{ kind, role }] : [];
  });
  const passed = patterns.filter(({ role }) => role.score >= role.threshold);
  const simpler = patterns.filter(({ kind }) => measures.positional.includes(kind.statistic));
  const most = simpler.reduce((score, { role }) => Math.max(score, role.score), 0);
  for (const [repeated, moreThan] of /** @type {[boolean, number][]} */ ([
    [true, most],
    [false, 0],
  ])) {
    const able = passed.filter(({ kind, role }) => kind.repeated === repeated && role.score > moreThan);
    if (able.length)
      return highest(
        able.map(({ role }) => role),
        (role) => role.score,
      );
  }
  const others = measures.roles.flatMap(({ name }) => COMPUTED[name]?.(measures, means, rows) ?? []);
  for (const role of others) {
    const near = role.name !== "local" || means.distance.mean <= measures.local_tokens;
    if (role.score >= role.threshold && near) return role;
  }
  return mixed([...patterns.map(({ role }) => role), ...others], measures.enough);
}

/**
 * Where a head stands in the list of all: induction first, mixed last, and first token late, as many heads have it.
 * @param {Measures} measures @param {Role} role @returns {[number, number]}
 */
export function rankOf(measures, role) {
  const at = measures.roles.findIndex(({ name }) => name === role.name);
  const count = measures.roles.length;
  if (!measures.roles[at].clear) return [count + Number(role.name === "mixed"), 0];
  return [role.name === "first token" ? count - 1 : at, -role.score];
}

/** Mean and threshold of a statistic; null where rows are too few. @param {Measures} measures @param {Mean} [mean] */
function known(measures, mean) {
  if (!mean || mean.rows < measures.enough) return null;
  return { ...mean, threshold: mean.chance + measures.pattern * (1 - mean.chance) };
}

/** @param {Measures} measures @param {Record<string, Mean>} means @param {Kind} kind @returns {Role | null} */
function patternOf(measures, means, kind) {
  const one = known(measures, means[kind.statistic]);
  if (!one) return null;
  const over = kind.repeated ? ` over ${one.rows} repeated tokens` : " on average";
  const { mean: score, threshold } = one;
  const evidence = `weight on ${kind.phrase} ${score.toFixed(2)}${over}, threshold ${threshold.toFixed(2)}`;
  return { name: kind.name, score, threshold, evidence };
}

/** Roles whose score is no weight on one key. @type {Record<string, (measures: Measures, means: Record<string, Mean>,
 * rows: Float32Array[]) => Role[]>} */
const COMPUTED = {
  position: (measures, means, rows) => {
    const one = known(measures, means.largest);
    if (!one) return [];
    const [back, places] = [new Float64Array(rows.length + 1), new Float64Array(rows.length + 1)];
    rows.forEach((row, query) => {
      const key = largestKey(row);
      if (Number.isNaN(row[key])) return;
      places[key] += row[key];
      back[query - key] += row[key];
    });
    back.fill(0, 0, 2); // the token itself and the previous one are roles of their own
    const [steps, place] = [firstLargest(back), firstLargest(places)];
    const candidates = [
      { score: back[steps] / one.rows, place: `the token ${steps} back` },
      { score: places[place] / one.rows, place: `token ${place}` },
    ];
    const best = highest(candidates, ({ score }) => score);
    const { threshold } = one;
    const evidence = `weight on ${best.place} ${best.score.toFixed(2)} on average, threshold ${threshold.toFixed(2)}`;
    return [{ name: "position", score: best.score, threshold, evidence }];
  },
  local: (measures, means) => {
    const one = known(measures, means.distance);
    if (!one || !(one.uniform > 0)) return [];
    const { mean, uniform } = one;
    const score = 1 - mean / uniform;
    const evidence =
      `looks ${mean.toFixed(1)} tokens away on average where uniform attention would be ${uniform.toFixed(1)}: ` +
      `${score.toFixed(2)} nearer, threshold ${measures.local.toFixed(2)} and at most ${measures.local_tokens} tokens`;
    return [{ name: "local", score, threshold: measures.local, evidence }];
  },
  broad: (measures, means) => {
    const one = known(measures, means.entropy);
    if (!one || !(one.uniform > 0)) return [];
    const [score, threshold] = [one.mean / one.uniform, measures.broad];
    const evidence = `entropy ${score.toFixed(2)} of uniform attention's, threshold ${threshold.toFixed(2)}`;
    return [{ name: "broad", score, threshold, evidence }];
  },
};

/** @param {Role[]} others @param {number} enough @returns {Role} */
function mixed(others, enough) {
  if (!others.length) {
    const evidence = `fewer than ${enough} tokens, or nothing collected to compute a role from`;
    return { name: "mixed", score: Number.NaN, threshold: Number.NaN, evidence };
  }
  const nearest = highest(others, (role) => role.score - role.threshold);
  const evidence = `nothing passes; nearest is ${nearest.name}: ${nearest.evidence}`;
  return { ...nearest, name: "mixed", evidence };
}

/**
 * The first of those with the largest value.
 * @template T @param {T[]} all @param {(one: T) => number} value @returns {T}
 */
function highest(all, value) {
  return all.reduce((best, one) => (value(one) > value(best) ? one : best));
}

/** @param {Float64Array} values @returns {number} */
function firstLargest(values) {
  return values.indexOf(values.reduce((most, one) => Math.max(most, one)));
}
