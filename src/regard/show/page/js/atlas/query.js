// Which heads? "induction > 0.3 and layer < 4", a role, a head, a word of the examples. What cannot be read is answered
// by a sentence that says what can.

/**
 * What a query is asked of: a head with its place and its numbers, and the words of its examples.
 * @typedef {{layer: number, head: number, role: string, number: (name: string) => number | undefined,
 *   share: (role: string, of: "rows" | "texts") => number, says: (word: string) => boolean}} AskedHead
 */
/**
 * The names that a query may use. numbers: of a head, by how they are written. absent: those that this atlas did not
 * measure, and what would. knows: is this a word of some example?
 * @typedef {{numbers: Map<string, string>, absent: Map<string, string>, roles: string[],
 *   knows: (word: string) => boolean}} Vocabulary
 * @typedef {(head: AskedHead) => boolean} Test
 * @typedef {{test: Test, words: string[]}} Query
 * @typedef {{kind: "sign" | "quoted" | "word", text: string}} Part
 */

/** The sentence for a query that cannot be read. */
export class QueryError extends Error {}

const PART = /\s*(?:"([^"]*)"?|“([^”]*)”?|(<=|>=|!=|≤|≥|≠|==|[()<>=])|([^\s()<>=!≤≥≠"“]+|!))/gy;
/** @type {Record<string, (one: number, other: number) => boolean>} */
const COMPARE = {
  "<": (a, b) => a < b,
  ">": (a, b) => a > b,
  "<=": (a, b) => a <= b,
  ">=": (a, b) => a >= b,
  "=": (a, b) => a === b,
  "!=": (a, b) => a !== b,
};
/** @type {Record<string, string>} */
const SAME = { "≤": "<=", "≥": ">=", "≠": "!=", "==": "=" };
const EXAMPLES = "induction > 0.3 and layer < 4";

/**
 * Read a query; an empty one is for all heads.
 * @param {string} text @param {Vocabulary} vocabulary @returns {Query}
 */
export function readQuery(text, vocabulary) {
  const reader = new Reader(partsOf(text), vocabulary);
  if (!reader.parts.length) return { test: () => true, words: [] };
  const test = reader.either();
  const rest = reader.parts[reader.at];
  if (rest) throw new QueryError(`“${rest.text}” is not expected here; join conditions with and, or: ${EXAMPLES}`);
  return { test, words: reader.words };
}

/** @param {string} text @returns {Part[]} */
function partsOf(text) {
  return [...text.matchAll(PART)].map(([, straight, curly, sign, word]) => {
    const quoted = straight ?? curly;
    if (quoted !== undefined) return { kind: "quoted", text: quoted.trim().toLowerCase() };
    return sign ? { kind: "sign", text: SAME[sign] ?? sign } : { kind: "word", text: word.toLowerCase() };
  });
}

/** Reads the parts from left to right. */
class Reader {
  /** @param {Part[]} parts @param {Vocabulary} vocabulary */
  constructor(parts, vocabulary) {
    this.parts = parts;
    this.vocabulary = vocabulary;
    this.at = 0;
    /** @type {string[]} */
    this.words = [];
  }

  /** @returns {Test} */
  either() {
    const tests = [this.both()];
    while (this.#take("or")) tests.push(this.both());
    return tests.length === 1 ? tests[0] : (head) => tests.some((test) => test(head));
  }

  /** @returns {Test} */
  both() {
    const tests = [this.one()];
    while (this.#take("and")) tests.push(this.one());
    return tests.length === 1 ? tests[0] : (head) => tests.every((test) => test(head));
  }

  /** @returns {Test} */
  one() {
    if (this.#take("not")) {
      const test = this.one();
      return (head) => !test(head);
    }
    if (this.#take("(")) {
      const test = this.either();
      if (!this.#take(")")) throw new QueryError("A bracket is open; close it with )");
      return test;
    }
    const part = this.parts[this.at];
    if (!part) throw new QueryError(`Something is missing at the end, such as: ${EXAMPLES}`);
    if (part.kind === "quoted") return this.at++, this.#word(part.text);
    if (part.kind === "sign") throw new QueryError(`A name comes before “${part.text}”, such as: ${EXAMPLES}`);
    return this.#place() ?? this.#share() ?? this.#number() ?? this.#role() ?? this.#anyWord(part.text);
  }

  /** A head: 4.3. @returns {Test | undefined} */
  #place() {
    const [, layer, head] = /^(\d+)\.(\d+)$/.exec(this.parts[this.at].text) ?? [];
    if (head === undefined) return undefined;
    this.at++;
    return (one) => one.layer === Number(layer) && one.head === Number(head);
  }

  /** A share of rows or texts: rows induction > 10%. @returns {Test | undefined} */
  #share() {
    const of = this.parts[this.at].text;
    if (of !== "rows" && of !== "texts") return undefined;
    this.at++;
    const role = this.#name(this.vocabulary.roles);
    if (!role) throw new QueryError(`After “${of}” comes a role: ${list(this.vocabulary.roles)}`);
    const compare = this.#comparison(`${of} ${role}`);
    return (head) => compare(head.share(role, of));
  }

  /** A number of a head: entropy < 1. @returns {Test | undefined} */
  #number() {
    const { numbers, absent } = this.vocabulary;
    const start = this.at;
    const name = this.#name([...numbers.keys(), ...absent.keys()]);
    if (!name) return undefined;
    const isCompared = this.parts[this.at]?.kind === "sign" && this.parts[this.at].text in COMPARE;
    if (!isCompared && this.#isRole(start)) return (this.at = start), undefined;
    const missing = absent.get(name);
    if (missing) throw new QueryError(missing);
    const compare = this.#comparison(name);
    const stored = numbers.get(name) ?? name;
    return (head) => {
      const value = head.number(stored);
      return value !== undefined && compare(value);
    };
  }

  /** A role: previous token, role = local. @returns {Test | undefined} */
  #role() {
    const { roles } = this.vocabulary;
    const isNamed = this.parts[this.at].text === "role";
    if (isNamed) this.at++;
    const isNot = isNamed && this.#take("!=");
    if (isNamed && !isNot) this.#take("=");
    const name = this.#name(roles);
    if (name) return (head) => (head.role === name) !== isNot;
    if (isNamed) throw new QueryError(`After “role” comes one of: ${list(roles)}`);
    return undefined;
  }

  /** A word without quotes, if it is in the examples. @param {string} text @returns {Test} */
  #anyWord(text) {
    const { numbers, roles, knows } = this.vocabulary;
    const after = this.parts[this.at + 1];
    if (after?.kind === "sign" && after.text in COMPARE)
      throw new QueryError(`“${text}” is no number of a head; numbers are ${list(labels(numbers))}`);
    if (COMMON.has(text) || !knows(text))
      throw new QueryError(`“${text}” is no role, and no word of an example; roles are ${list(roles)}`);
    this.at++;
    return this.#word(text);
  }

  /** @param {string} text @returns {Test} */
  #word(text) {
    if (!this.vocabulary.knows(text)) throw new QueryError(`No example of any head looks from or at “${text}”`);
    this.words.push(text);
    return (head) => head.says(text);
  }

  /** @param {string} name @returns {(value: number) => boolean} */
  #comparison(name) {
    const sign = this.parts[this.at];
    const compare = sign?.kind === "sign" ? COMPARE[sign.text] : undefined;
    if (!compare) throw new QueryError(`After “${name}” comes <, > or =, and a number, such as: ${name} > 0.3`);
    const [, digits, percent] = /^(-?(?:\d+\.?\d*|\.\d+))(%?)$/.exec(this.parts[this.at + 1]?.text ?? "") ?? [];
    if (digits === undefined)
      throw new QueryError(`After “${name} ${sign.text}” comes a number, such as: ${name} ${sign.text} 0.3`);
    this.at += 2;
    const bound = Number(digits) / (percent ? 100 : 1);
    return (value) => compare(value, bound);
  }

  /** The longest of these names that is next: a name may have two words. @param {string[]} names */
  #name(names) {
    const next = this.parts.slice(this.at, this.at + 2).filter((part) => part.kind === "word");
    for (let count = next.length; count > 0; count--) {
      const text = next.slice(0, count).map((part) => part.text);
      const name = names.find((one) => one === text.join(" "));
      if (name) return (this.at += count), name;
    }
    return undefined;
  }

  /** Is there a role at this place? @param {number} start */
  #isRole(start) {
    const end = this.at;
    this.at = start;
    const found = this.#name(this.vocabulary.roles);
    this.at = end;
    return found !== undefined;
  }

  /** @param {string} text */
  #take(text) {
    const part = this.parts[this.at];
    const is = part?.kind !== "quoted" && part?.text === text;
    if (is) this.at++;
    return is;
  }
}

/** Words of the language, which are words of examples only in quotes. */
const COMMON = new Set(["and", "or", "not", "role", "rows", "texts"]);

/** Of each number, the first of its names. @param {Map<string, string>} numbers */
function labels(numbers) {
  const names = [...numbers.keys()];
  return names.filter((name) => names.find((one) => numbers.get(one) === numbers.get(name)) === name);
}

/** @param {string[]} names */
function list(names) {
  return names.join(", ");
}
