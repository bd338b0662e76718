// The text and the cuts of a live page in its address, before the #; the head, the word and the view are after it.

import { readCuts } from "./cuts.js";

/** @typedef {{text: string, cuts: string[]}} Place */

const LONGEST = 2000; // characters in an address; longer texts are not kept in it

/**
 * What an address asks for; what is missing is as the page begins.
 * @param {string} search the part that begins with ? @param {string} text @param {number[]} heads of each layer
 * @returns {Place}
 */
export function fromSearch(search, text, heads) {
  const parts = new URLSearchParams(search);
  return { text: parts.get("text") || text, cuts: readCuts(parts.get("cut") ?? "", heads) };
}

/**
 * A place as a part of an address; "?" where it is that of the beginning, or too long.
 * @param {Place} place @param {string} beginning @param {string} search the address so far, whose other parts stay
 */
export function toSearch({ text, cuts }, beginning, search = "") {
  const parts = new URLSearchParams(search);
  for (const name of ["text", "cut"]) parts.delete(name);
  if (text !== beginning) parts.set("text", text);
  if (cuts.length) parts.set("cut", cuts.join(","));
  const written = parts.toString();
  return written.length <= LONGEST ? `?${written}` : "?";
}
