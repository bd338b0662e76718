// What is cut, as texts: a head is "4.3", an edge in it "4.3:25-7" (token 25 may not look at token 7).

/** @import { Cut } from "../model/engine.js" */

const ONE = /^(\d+)\.(\d+)(?::(\d+)-(\d+))?$/;

/**
 * Cuts in an address; what names no head of the model is left out.
 * @param {string} text @param {number[]} heads of each layer @returns {string[]}
 */
export function readCuts(text, heads) {
  const known = (/** @type {string} */ one) => {
    const found = ONE.exec(one);
    return found !== null && Number(found[2]) < (heads[Number(found[1])] ?? 0);
  };
  return [...new Set(text.split(",").filter(known))];
}

/** With this one, or without it where it was there. @param {string[]} cuts @param {string} one */
export function toggled(cuts, one) {
  return cuts.includes(one) ? cuts.filter((other) => other !== one) : [...cuts, one];
}

/** For the engine; null where nothing is cut. @param {string[]} cuts @returns {Cut | null} */
export function cutOf(cuts) {
  if (!cuts.length) return null;
  const numbers = cuts.map((one) => (ONE.exec(one) ?? []).slice(1).flatMap((part) => (part ? [Number(part)] : [])));
  const heads = numbers.flatMap(([layer, head, query]) => (query === undefined ? [[layer, head]] : []));
  const edges = numbers.filter(({ length }) => length === 4);
  return /** @type {Cut} */ ({ heads, edges });
}

/** Cuts of which no edge is beyond the text. @param {string[]} cuts @param {number} tokens */
export function within(cuts, tokens) {
  return cuts.filter((one) => Number(ONE.exec(one)?.[3] ?? 0) < tokens);
}

/**
 * A cut in words: "4.3", or "very@25 → tired@7 in 4.3".
 * @param {string} cut @param {(token: number) => string} name of a token
 */
export function nameOf(cut, name = String) {
  const [, layer, head, query, key] = ONE.exec(cut) ?? [];
  return query === undefined ? cut : `${name(Number(query))} → ${name(Number(key))} in ${layer}.${head}`;
}
