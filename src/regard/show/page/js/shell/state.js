// State: what the person chose. Views read it, change it with `set`, and redraw by what changed. It is kept in the URL.

/** @import { Side } from "../data/page-data.js" */

/**
 * view: "" is the one that fits the length of the text.
 * report, other: numbers of the report shown and of the one it is compared with.
 * against: the head that the chosen one is compared with, as "4.3"; "" where reports are compared.
 * focus: the token that is looked from ("query") or looked at ("key"), by its number among the tokens; -1 is none.
 * pinned: the focus stays when the pointer moves on.
 * text: the number of the text that the pinned token is of, where a report has several; -1 is that of the layer.
 * step: in the view Steps, the pinned key and number of a head, "1.17", "1." or ".17".
 * @typedef {{view: string, report: number, other: number, layer: number, head: number, side: Side, focus: number,
 *   pinned: boolean, text: number, words: boolean, role: string, sort: string, step: string, against: string, theme: ""
 *   | "light" | "dark"}} State
 * @typedef {(changed: Set<keyof State>) => void} Listener
 */

/** @type {State} */
export const START = {
  view: "",
  report: 0,
  other: -1,
  layer: 0,
  head: 0,
  side: "query",
  focus: -1,
  pinned: false,
  text: -1,
  words: false,
  role: "",
  sort: "layer",
  step: "",
  against: "",
  theme: "",
};

/** Holds the state, and tells listeners what changed. */
export class Store {
  /** @param {Partial<State>} [state] */
  constructor(state = {}) {
    /** @type {State} */
    this.state = { ...START, ...state };
    /** @type {Set<Listener>} */
    this.listeners = new Set();
  }

  /**
   * Change the state; listeners hear of it once, with the names of what is different now.
   * @param {Partial<State>} change
   */
  set(change) {
    const names = /** @type {(keyof State)[]} */ (Object.keys(change));
    const changed = new Set(names.filter((name) => this.state[name] !== change[name]));
    if (!changed.size) return;
    this.state = { ...this.state, ...change };
    for (const listener of this.listeners) listener(changed);
  }

  /**
   * @param {Listener} listener
   * @returns {() => void} stops it
   */
  listen(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}

/** How each part of the state is written in the URL. What the pointer passes over is not. */
const WRITTEN = /** @type {const} */ (["view", "report", "other", "words", "role", "sort", "step", "against", "theme"]);

/** The state as the part of an address after #. @param {State} state @returns {string} */
export function toHash(state) {
  const parts = new URLSearchParams();
  for (const name of WRITTEN) if (state[name] !== START[name]) parts.set(name, String(state[name]));
  parts.set("head", `${state.layer}.${state.head}`);
  if (state.pinned && state.focus >= 0) {
    parts.set(state.side === "query" ? "looks" : "receives", String(state.focus));
    if (state.text >= 0) parts.set("text", String(state.text));
  }
  return parts.toString();
}

/**
 * The state in the part of an address after #; what is missing or makes no sense is left out.
 * @param {string} hash @returns {Partial<State>}
 */
export function fromHash(hash) {
  const parts = new URLSearchParams(hash.replace(/^#/, ""));
  /** @type {Record<string, any>} */
  const state = {};
  for (const name of WRITTEN) {
    const value = parts.get(name);
    if (value === null) continue;
    const start = START[name];
    if (typeof start === "number") {
      if (/^-?\d+$/.test(value)) state[name] = Number(value);
    } else if (typeof start === "boolean") state[name] = value === "true";
    else state[name] = value;
  }
  const head = /^(\d+)\.(\d+)$/.exec(parts.get("head") ?? "");
  if (head) Object.assign(state, { layer: Number(head[1]), head: Number(head[2]) });
  const pin = parts.get("looks") ?? parts.get("receives");
  if (pin !== null && /^\d+$/.test(pin)) {
    Object.assign(state, { side: parts.has("looks") ? "query" : "key", focus: Number(pin), pinned: true });
    const text = parts.get("text") ?? "";
    state.text = /^\d+$/.test(text) ? Number(text) : START.text;
  }
  return state;
}
