// What the person chose on the page of an atlas, and how the address keeps it.

/**
 * q: the query. sort: "layer", or the number that heads are ordered by. head: "4.3". of: the statistic whose
 * distribution is shown. rows: which examples: strongest, 9 to 0, uniform, or word, those with the word of the query.
 * @typedef {{q: string, sort: string, head: string, of: string, rows: string, theme: "" | "light" | "dark"}} State
 */

/** @type {State} */
export const START = { q: "", sort: "layer", head: "", of: "largest", rows: "strongest", theme: "" };

/** The state as the part of an address after #. @param {State} state */
export function toHash(state) {
  const parts = new URLSearchParams();
  for (const [name, value] of Object.entries(state))
    if (value !== START[/** @type {keyof State} */ (name)]) parts.set(name, value);
  return parts.toString();
}

/** The state in that part; what is unknown is left out. @param {string} hash @returns {State} */
export function fromHash(hash) {
  const parts = new URLSearchParams(hash.replace(/^#/, ""));
  const known = Object.keys(START).filter((name) => parts.has(name));
  return { ...START, ...Object.fromEntries(known.map((name) => [name, parts.get(name)])) };
}
