// A local server as the source of reports: a text goes to it, and blocks are fetched when they are needed.

import { gunzip } from "./page-data.js";

/**
 * A question may name a head to cut, "4.3".
 * @typedef {{text: string, model: string, cut?: string}} Question
 * @typedef {{id: string, document: import("./page-data.js").Page}} Answer id: what the server calls it
 */

export class Server {
  constructor() {
    /** @type {Map<Question, string>} what the server calls the report of a question now */
    this.ids = new Map();
  }

  /** @param {Question} question @returns {Promise<Answer>} */
  async ask(question) {
    const headers = { "Content-Type": "application/json" };
    const answer = await fetchFrom("api/see", { method: "POST", headers, body: JSON.stringify(question) });
    if (!answer.ok) throw new Error(await refusalOf(answer));
    return answer.json();
  }

  /**
   * A block of the report; where the server no longer keeps it, its text is sent again.
   * @param {string} id @param {string} key @param {Question} question @returns {Promise<Uint8Array>}
   */
  async block(id, key, question) {
    let answer = await fetchFrom(`api/block/${this.ids.get(question) ?? id}/${key}`);
    if (answer.status === 404) {
      this.ids.set(question, (await this.ask(question)).id);
      answer = await fetchFrom(`api/block/${this.ids.get(question)}/${key}`);
    }
    if (!answer.ok) throw new Error(await refusalOf(answer));
    return gunzip(new Uint8Array(await answer.arrayBuffer()));
  }
}

/** @param {string} path @param {RequestInit} [options] */
async function fetchFrom(path, options) {
  try {
    return await fetch(path, options);
  } catch {
    throw new Error("The server does not answer. Start it again: regard serve");
  }
}

/** Why the server refused, in its own words. @param {Response} answer @returns {Promise<string>} */
async function refusalOf(answer) {
  const content = await answer.json().catch(() => ({}));
  return typeof content.error === "string" ? content.error : `The server answers with status ${answer.status}.`;
}
