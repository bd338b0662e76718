// Pieces: the tokens of a text as a page shows them, by the rules of heads/inputs/pieces.py and support/tokens.py.
//
// Every token becomes its bytes, the bytes become characters, and each character goes to the token that it begins in. A
// character that is split over several tokens is named in each: 猫:1, 猫:2-3.

/** @import { Tokenizer } from "./tokenizer.js" */
/** @import { Sequence } from "../data/page-data.js" */

const [ZWJ, SELECTORS, JOINERS] = ["\u200d", "\ufe0e\ufe0f", "\u200c\u200d\ufe0e\ufe0f"];
// Scripts that are written without spaces, so that a letter beside another says nothing about words.
const SCRIPTS = ["Han", "Hira", "Kana", "Thai", "Laoo", "Khmr", "Mymr"].map((name) => `\\p{sc=${name}}`).join("");
const UNSPACED = new RegExp(`^(?![\\u3005\\u3007\\u3021-\\u303b\\uff66-\\uff9d])[\\u30fc${SCRIPTS}]`, "u");
// A character and some of its bytes, as in a name.
const PART = /(\\u[0-9a-f]{4}|\\U[0-9a-f]{8}|\\x[0-9a-f]{2}|[^\x00-\x7f]):([1-4])(?:-([1-4]))?/gu;

/**
 * The tokens of a text.
 * @param {Tokenizer} tokenizer @param {number[]} ids @returns {Sequence}
 */
export function sequenceOf(tokenizer, ids) {
  const special = ids.map((id) => tokenizer.isSpecial(id));
  const alone = [...special];
  const [pieces, shown] = [ids.map(() => ""), ids.map(() => "")];
  const split = new Set();
  for (const group of runs(special)) {
    for (const { character, owners } of characters(group.map((i) => [i, tokenizer.bytesOf(ids[i])]))) {
      const [first, last] = [owners[0], owners[owners.length - 1]];
      pieces[first] += character;
      for (const i of new Set(owners)) {
        shown[i] += first === last ? character : part(character, i, owners);
        if (first !== last) split.add(i);
      }
      if (character.length > 1 && character.startsWith("\\x")) alone[first] = true; // a byte that is no text
    }
  }
  const continues = ids.map((_, i) => isContinued(i, pieces, split, alone));
  const names = [...split].map((i) => /** @type {[number, string]} */ ([i, printable(shown[i])]));
  let word = -1;
  return {
    pieces,
    names: Object.fromEntries(names),
    bytes: Object.fromEntries(names.map(([i, name]) => [i, describePart(name)])),
    padding: [],
    words: continues.map((one) => (word += one ? 0 : 1)),
  };
}

/** Tokens that are read together: a special token is alone. @param {boolean[]} special @returns {number[][]} */
function runs(special) {
  /** @type {number[][]} */
  const groups = [];
  special.forEach((alone, i) => {
    if (alone || i === 0 || special[i - 1]) groups.push([i]);
    else groups[groups.length - 1].push(i);
  });
  return groups;
}

/**
 * The characters of some tokens, each with the token of each of its bytes; a byte that is no text is \xe7.
 * @param {[number, Uint8Array][]} tokens
 * @returns {{character: string, owners: number[]}[]}
 */
function characters(tokens) {
  const owners = tokens.flatMap(([i, bytes]) => Array.from(bytes, () => i));
  const data = tokens.flatMap(([, bytes]) => [...bytes]);
  const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  const found = [];
  for (let at = 0; at < data.length; ) {
    let size = data[at] < 0x80 ? 1 : data[at] < 0xe0 ? 2 : data[at] < 0xf0 ? 3 : 4;
    let character;
    try {
      character = strict.decode(Uint8Array.from(data.slice(at, at + size)));
    } catch {
      size = 1;
      character = `\\x${data[at].toString(16).padStart(2, "0")}`;
    }
    found.push({ character, owners: owners.slice(at, at + size) });
    at += size;
  }
  return found;
}

/** The bytes of a character that are in one token. @param {number} token @param {number[]} owners */
function bytesIn(token, owners) {
  return [owners.indexOf(token) + 1, owners.lastIndexOf(token) + 1];
}

/** 猫:1, or 猫:2-3. @param {string} character @param {number} token @param {number[]} owners */
function part(character, token, owners) {
  const [first, last] = bytesIn(token, owners);
  return `${printable(character)}:${first}${last > first ? `-${last}` : ""}`;
}

/** In words, the name of a token that has bytes of a character: 猫:2 is byte 2 of 3 of 猫. @param {string} name */
function describePart(name) {
  /** @type {string[]} */
  const texts = [];
  let end = 0;
  for (const found of name.matchAll(PART)) {
    const [whole, shown, first, last] = found;
    const character = shown[0] === "\\" ? String.fromCodePoint(Number.parseInt(shown.slice(2), 16)) : shown;
    const size = new TextEncoder().encode(character).length;
    const count = last === undefined ? `byte ${first}` : `bytes ${first}-${last}`;
    texts.push(name.slice(end, found.index), `${count} of ${size} of ${shown}`);
    end = found.index + whole.length;
  }
  return [...texts, name.slice(end)].filter(Boolean).join(" and ");
}

/**
 * Is a token part of the word before it?
 * @param {number} i @param {string[]} pieces @param {Set<number>} split @param {boolean[]} alone
 */
function isContinued(i, pieces, split, alone) {
  if (i === 0 || alone[i] || alone[i - 1]) return false;
  let before = i - 1;
  if (split.has(i) && split.has(before) && !pieces[i]) return true; // inside a character
  while (before && !pieces[before] && split.has(before)) before--; // the character is in the piece that it begins in
  return joins(pieces[before], pieces[i]);
}

/**
 * Is the second text part of the word, or of the emoji, that the first ends with?
 * @param {string} before @param {string} piece
 */
export function joins(before, piece) {
  const [last, first] = [[...before].at(-1) ?? "", [...piece][0] ?? ""];
  if (continuesEmoji(last, first)) return true;
  if (!(inWord(last) && inWord(first))) return false;
  return /^\p{M}/u.test(first) || !(UNSPACED.test(last) || UNSPACED.test(first));
}

/** @param {string} last @param {string} first */
function continuesEmoji(last, first) {
  if (!last || !first) return false;
  if (/^[\p{So}\p{Sk}]/u.test(last) || SELECTORS.includes(last))
    return first === ZWJ || /^[\u{1f3fb}-\u{1f3ff}\p{Mn}]/u.test(first);
  return last === ZWJ && /^\p{So}/u.test(first);
}

/** @param {string} character */
function inWord(character) {
  return character !== "" && (JOINERS.includes(character) || /^[\p{L}\p{N}\p{M}]/u.test(character));
}

/**
 * A token on one line: without the spaces around it, unless there is nothing else; control characters are escaped.
 * @param {string} piece @returns {string}
 */
export function printable(piece) {
  const inner = piece.replace(/^[\p{White_Space}\x1c-\x1f]+|[\p{White_Space}\x1c-\x1f]+$/gu, "");
  const plain =
    inner ||
    piece
      .replace(/\r\n|\n/g, "⏎")
      .replace(/\t/g, "⇥")
      .replace(/ /g, "␣");
  const visible = [...plain].some((character) => !JOINERS.includes(character)) ? JOINERS : "";
  const shown = Array.from(plain, (character) =>
    visible.includes(character) || !/[\p{C}\p{Zl}\p{Zp}\p{Zs}]/u.test(character) || character === " "
      ? character
      : escapedCharacter(character),
  );
  return shown.join("") || "∅";
}

/** As Python's unicode_escape writes it. @param {string} character */
function escapedCharacter(character) {
  const code = /** @type {number} */ (character.codePointAt(0));
  const short = { 9: "\\t", 10: "\\n", 13: "\\r" }[code];
  if (short) return short;
  const [mark, width] = code < 256 ? ["x", 2] : code < 65536 ? ["u", 4] : ["U", 8];
  return `\\${mark}${code.toString(16).padStart(Number(width), "0")}`;
}
