// An atlas as its page has it: all heads at once, the distributions and examples of a layer when they are asked for.
// show/page/atlas_page.py writes it.

import { blockOf } from "../data/page-data.js";
import { PromiseCache } from "../data/promise-cache.js";

/**
 * @typedef {{name: string, label: string, unit: string, about: string, measured?: boolean}} Measure
 * @typedef {{name: string, short: string, about: string, glyph: string, light: string, dark: string,
 *   clear: boolean}} RoleInfo clear: does a head of this role do one thing?
 * @typedef {{role: string, evidence: string, clear: boolean, means: Record<string, number>,
 *   jobs: Record<string, number>, texts: Record<string, number>, noise: number | null,
 *   probe: Record<string, number>}} HeadSummary
 * @typedef {{format: string, model: string, texts: number, tokens: number, statistics: Measure[], beside: Measure[],
 *   roles: RoleInfo[], layers: {name: string, marks: string[], heads: HeadSummary[]}[], order: [number, number][]}}
 *   AtlasDocument
 * @typedef {{ends: [number, number], bins: number[], deciles: number[], spread: number, texts: number | null,
 *   position: Record<string, number>, class: Record<string, number>}} Shape
 * @typedef {[number, number, number[], number[], number[], number[]]} Stored strength, position, keys, weights,
 *   positions of the tokens shown, and their words by number
 * @typedef {{shapes: Record<string, Shape>, examples: Stored[], groups: Record<string, number[]>}} HeadDetail
 * @typedef {{words: [string, number][], heads: HeadDetail[]}} LayerDetail
 * @typedef {{at: number, text: string, continues: boolean, weight: number, gap: boolean}} ExampleToken
 * @typedef {{strength: number, token: number, tokens: ExampleToken[]}} Example
 */

export const MARKED = 0.1; // weight from which a key is marked
const PLACES = [
  ["layer", "layer"],
  ["head", "head"],
];
/** What would measure a number that is not in the atlas. @type {Record<string, string>} */
const MEASURED_BY = {
  probe: "The probe was not measured in this atlas; regard atlas … --probe measures it",
  effect: "Effects were not measured in this atlas; regard atlas … --effect 8 measures them",
};

/** One head of an atlas. */
export class AtlasHead {
  /** @param {Atlas} atlas @param {number} index @param {number} layer @param {number} head @param {HeadSummary} info */
  constructor(atlas, index, layer, head, info) {
    this.atlas = atlas;
    this.index = index;
    this.layer = layer;
    this.head = head;
    this.info = info;
    this.name = `${layer}.${head}`;
    this.role = info.role;
  }

  /** A number by which heads are sorted and found. @param {string} name @returns {number | undefined} */
  number(name) {
    if (name === "layer") return this.layer;
    return name === "head" ? this.head : this.info.means[name];
  }

  /** @param {string} role @param {"rows" | "texts"} of */
  share(role, of) {
    return (of === "rows" ? this.info.jobs : this.info.texts)[role] ?? 0;
  }

  /** Does some example of it look from or at this word? @param {string} word */
  says(word) {
    return this.atlas.saying(word).has(this.index);
  }
}

/** All heads of a model over a corpus. */
export class Atlas {
  /**
   * @param {AtlasDocument} info
   * @param {Record<string, number[]>} words heads by the words of their examples
   * @param {(key: string) => Promise<any>} read a block as JSON
   */
  constructor(info, words, read) {
    this.info = info;
    this.words = words;
    this.read = read;
    const places = info.layers.flatMap(({ heads }, layer) => heads.map((one, head) => ({ layer, head, one })));
    this.heads = places.map(({ layer, head, one }, index) => new AtlasHead(this, index, layer, head, one));
    this.byName = new Map(this.heads.map((one) => [one.name, one]));
    this.roles = new Map(info.roles.map((one) => [one.name, one]));
    /** What heads are sorted and found by. */
    this.measures = [...info.statistics, ...info.beside.filter((one) => one.measured)];
    /** Heads of each layer. */
    this.sizes = info.layers.map(({ heads }) => heads.length);
    this.most = Math.max(1, ...this.sizes);
    /** @type {PromiseCache<LayerDetail>} */
    this.layers = new PromiseCache(8);
    /** @type {Map<string, Set<number>>} */
    this.found = new Map();
  }

  /** The atlas of a document. @param {Document} source */
  static async open(source) {
    const read = async (/** @type {string} */ key) => JSON.parse(new TextDecoder().decode(await blockOf(source, key)));
    return new Atlas(
      JSON.parse(source.getElementById("regard-document")?.textContent ?? ""),
      await read("words"),
      read,
    );
  }

  /** The heads whose examples have this word, by their index. @param {string} word */
  saying(word) {
    const known = this.found.get(word) ?? new Set(Object.hasOwn(this.words, word) ? this.words[word] : []);
    this.found.set(word, known);
    return known;
  }

  /** The names of queries. @returns {import("./query.js").Vocabulary} */
  vocabulary() {
    const named = [
      ...this.measures.flatMap(({ name, label }) => [
        [label, name],
        [name, name],
      ]),
      ...PLACES,
    ];
    const absent = this.info.beside.flatMap((one) => (one.measured ? [] : [[one.label, MEASURED_BY[one.name]]]));
    return {
      numbers: new Map(/** @type {[string, string][]} */ (named)),
      absent: new Map(/** @type {[string, string][]} */ (absent)),
      roles: this.info.roles.map((one) => one.name),
      knows: (word) => Object.hasOwn(this.words, word),
    };
  }

  /**
   * The distributions and examples of a head.
   * @param {AtlasHead} head @returns {Promise<HeadDetail & {words: [string, number][]}>}
   */
  async detail(head) {
    const key = `layer.${head.layer}`;
    const layer = await this.layers.get(key, () => this.read(key));
    return { ...layer.heads[head.head], words: layer.words };
  }
}

/**
 * An example as tokens in a row; a gap is before a token that does not follow the one before it.
 * @param {Stored} stored @param {[string, number][]} words @returns {Example}
 */
export function exampleOf([strength, token, keys, weights, positions, numbers], words) {
  const tokens = positions.map((at, i) => {
    const [text, continues] = words[numbers[i]];
    const key = keys.indexOf(at);
    const gap = i > 0 ? at !== positions[i - 1] + 1 : at > 0;
    return { at, text, continues: continues === 1, weight: key < 0 ? 0 : weights[key], gap };
  });
  return { strength, token, tokens };
}

/** Does the word look, or is it looked at, in this example? @param {Example} example @param {string} word */
export function hasWord({ token, tokens }, word) {
  return tokens.some(({ at, weight }, i) => (at === token || weight >= MARKED) && wordAt(tokens, i) === word);
}

/** The word that a token is of, in lower case. @param {ExampleToken[]} tokens @param {number} i */
function wordAt(tokens, i) {
  const joined = (/** @type {number} */ at) => tokens[at]?.continues && !tokens[at].gap && at > 0;
  let [start, end] = [i, i];
  while (joined(start)) start--;
  while (joined(end + 1)) end++;
  return tokens
    .slice(start, end + 1)
    .map(({ text }) => text)
    .join("")
    .trim()
    .toLowerCase();
}
