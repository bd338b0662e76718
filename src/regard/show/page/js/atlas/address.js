// What the person chose on the page of an atlas, or of a run, and how the address keeps it.

/**
 * q: the query. sort: "layer", or the number that heads are ordered by. head: "4.3". of: the statistic whose
 * distribution is shown. rows: which examples: strongest, 9 to 0, uniform, or word, those with the word of the query.
 * @typedef {{q: string, sort: string, head: string, of: string, rows: string, theme: "" | "light" | "dark"}} State
 */

/** @type {State} */
export const START = { q: "", sort: "layer", head: "", of: "largest", rows: "strongest", theme: "" };

/**
 * The state as the part of an address after #: what differs from the start.
 * @param {Record<string, string>} state @param {Record<string, string>} [start]
 */
export function toHash(state, start = START) {
  const parts = new URLSearchParams();
  for (const [name, value] of Object.entries(state)) if (value !== start[name]) parts.set(name, value);
  return parts.toString();
}

/**
 * The state in that part; what is unknown is left out.
 * @template {Record<string, string>} T
 * @param {string} hash @param {T} start @returns {T}
 */
export function fromHash(hash, start) {
  const parts = new URLSearchParams(hash.replace(/^#/, ""));
  const known = Object.keys(start).filter((name) => parts.has(name));
  return { ...start, ...Object.fromEntries(known.map((name) => [name, parts.get(name)])) };
}
