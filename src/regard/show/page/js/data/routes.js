// Routes: the ways on which attention passes from a token in the input to a token after the last layer.
//
// By "mean": a step through a layer is ½ · (mean of the heads' weights), + ½ if the token stays itself, as in
// seen.rollout(): the half is for the residual stream. All routes from one token to another add up to the rollout.
// By "heads": a step to another token is the largest weight that one head gives, and to stay is 1. Such routes add up
// to nothing; each says which heads, one after the other, look along it.
// A route's strength is the product of its steps. heads/change/routes.py computes the same.

import { isMissing, max } from "./math.js";
import { largest } from "./page-data.js";

/** @import { LayerMean } from "./layer-sums.js" */
/** @typedef {"mean" | "heads"} By */
/**
 * tokens: where the route is before each layer, and after the last; strength: the product of its steps; share: by
 * mean, of all routes between its ends.
 * @typedef {{tokens: number[], strength: number, share: number}} Route
 */

export const KEEP = 0.5; // the part of a step that stays where it is

/** One step through a layer. @param {LayerMean} layer @param {number} query @param {number} key @param {By} by */
export function stepThrough({ mean, most }, query, key, by) {
  if (by === "heads") return query === key ? 1 : most[query * mean.S + key];
  const weight = mean.at(query, key);
  return (isMissing(weight) ? 0 : weight * (1 - KEEP)) + (query === key ? KEEP : 0);
}

/**
 * How much of each token of the input is in one token after all layers; by heads, the strength of its strongest route.
 * @param {LayerMean[]} layers the first one first @param {number} end @param {By} by @returns {Float64Array}
 */
export function sources(layers, end, by) {
  let amounts = new Float64Array(layers[0].mean.T);
  amounts[end] = 1;
  for (const layer of [...layers].reverse()) {
    const before = new Float64Array(layer.mean.S);
    for (let query = 0; query < amounts.length; query++) {
      if (!amounts[query]) continue;
      for (let key = 0; key < before.length; key++) {
        const amount = amounts[query] * stepThrough(layer, query, key, by);
        if (by === "mean") before[key] += amount;
        else if (amount > before[key]) before[key] = amount;
      }
    }
    amounts = before;
  }
  return amounts;
}

/**
 * The strongest routes from a token of the input to a token after the last layer, strongest first.
 * @param {LayerMean[]} layers
 * @param {number} start
 * @param {number} end
 * @param {number} count
 * @param {By} by
 * @returns {Route[]}
 */
export function routes(layers, start, end, count, by) {
  const { T } = layers[0].mean;
  /** The strongest ways from the start to each token, before the layer at hand. @type {Route[][]} */
  let ways = Array.from({ length: T }, (_, token) =>
    token === start ? [{ tokens: [start], strength: 1, share: 0 }] : [],
  );
  for (const [number, layer] of layers.entries()) {
    const from = ways;
    const reached = from.flatMap((list, token) => (list.length ? [token] : []));
    const ends = number === layers.length - 1 ? [end] : from.keys();
    /** @type {Route[][]} */
    const next = Array.from({ length: T }, () => []);
    for (const query of ends) {
      /** @type {{way: Route, strength: number}[]} */
      const found = [];
      for (const key of reached) {
        const step = stepThrough(layer, query, key, by);
        if (!step) continue;
        for (const way of from[key]) {
          const strength = way.strength * step;
          if (found.length === count && strength <= found[count - 1].strength) break; // the others are weaker
          let at = found.length;
          while (at > 0 && found[at - 1].strength < strength) at--;
          found.splice(at, 0, { way, strength });
          if (found.length > count) found.pop();
        }
      }
      next[query] = found.map(({ way, strength }) => ({ tokens: [...way.tokens, query], strength, share: 0 }));
    }
    ways = next;
  }
  const all = by === "mean" ? sources(layers, end, by)[start] : 0;
  return ways[end].map((one) => ({ ...one, share: all ? one.strength / all : 0 }));
}

/**
 * The token that most of the end comes from, other than the end itself and the first token, which takes what heads do
 * not need; one of these where there is no other. By heads: that by way of another token.
 * @param {Float64Array} amounts as sources() gives them @param {LayerMean[]} layers @param {number} end @param {By} by
 * @param {number[]} [worth] how much each token is worth reading
 */
export function tellingStart(amounts, layers, end, by, worth = []) {
  const direct = (/** @type {number} */ token) =>
    by === "mean" ? 0 : max(...layers.map(({ mean, most }) => most[end * mean.S + token]));
  const others = amounts.map((amount, token) =>
    token === end || token === 0 ? 0 : (amount - direct(token)) * (worth[token] ?? 1),
  );
  return (
    largest(others, 1, 1e-9)[0]?.index ??
    largest(
      amounts.map((one, i) => (i === end ? 0 : one)),
      1,
    )[0]?.index ??
    0
  );
}
