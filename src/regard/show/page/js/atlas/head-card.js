// One head: its jobs, how its statistics are distributed, and examples from its strongest rows to its weakest.

import { attributes, fill, h } from "../draw/dom.js";
import { roleMark } from "../draw/head-picker.js";
import { number } from "../words/names.js";
import { exampleOf, hasWord } from "./atlas-data.js";
import { barRow, drawShape } from "./distribution.js";
import { drawExample } from "./example-text.js";

/** @import { Theme } from "../draw/color.js" */
/** @import { State } from "./address.js" */
/** @import { Atlas, AtlasHead } from "./atlas-data.js" */

const FEW = 12; // examples at once
const PERCENT = 100;
const NONE = "There is no example: no row is in this tenth, or the token ids were unknown.";

export class HeadCard {
  /** @param {Atlas} atlas @param {(change: Partial<State>) => void} set */
  constructor(atlas, set) {
    this.atlas = atlas;
    this.set = set;
    this.title = h("h2");
    this.jobs = h("section.jobs");
    this.statistics = h("p.order", { role: "group", "aria-label": "statistic" });
    this.shape = h("div.shapes");
    this.groups = h("p.order", { role: "group", "aria-label": "examples" });
    this.examples = h("ol.examples");
    this.note = h("p.note");
    this.el = h(
      "section.head-card",
      { "aria-label": "head" },
      this.title,
      this.jobs,
      this.statistics,
      this.shape,
      h("h3", "Examples"),
      this.groups,
      this.note,
      this.examples,
    );
    this.drawn = 0;
  }

  /**
   * @param {AtlasHead} head @param {State} state @param {string[]} words of the query @param {Theme} theme
   */
  async draw(head, state, words, theme) {
    const drawing = ++this.drawn;
    const { info } = head;
    const layer = this.atlas.info.layers[head.layer];
    const role = this.atlas.roles.get(info.role);
    fill(
      this.title,
      h("span.num", `${head.name} `),
      role ? roleMark(role) : null,
      h("b", ` ${info.role}`),
      h("span.quiet", ` ${layer.name}${layer.name ? `[${head.head}]` : ""}`),
    );
    this.#drawJobs(head, theme);
    const detail = await this.atlas.detail(head);
    if (drawing !== this.drawn) return;
    const known = this.atlas.info.statistics.filter(({ name }) => detail.shapes[name]);
    const shown =
      known.find(({ name }) => name === state.of) ?? known.find(({ name }) => name === "largest") ?? known[0];
    fill(
      this.statistics,
      ...known.map(({ name, label, about }) =>
        h(
          "button",
          { "aria-pressed": name === shown?.name, title: about, onclick: () => this.set({ of: name }) },
          label,
        ),
      ),
    );
    fill(this.shape, ...(shown ? drawShape(shown, detail.shapes[shown.name]) : []));
    this.#drawExamples(detail, state.rows, words, theme);
    attributes(this.el, { "data-head": head.name });
  }

  /** @param {AtlasHead} head @param {Theme} theme */
  #drawJobs({ info }, theme) {
    const names = [...new Set([...Object.keys(info.jobs), ...Object.keys(info.texts)])];
    const share = (/** @type {number | undefined} */ value) => `${Math.round((value ?? 0) * PERCENT)}%`;
    const kept = names.filter((name) => (info.jobs[name] ?? 0) >= 0.005 || (info.texts[name] ?? 0) >= 0.005);
    const color = (/** @type {string} */ name) => this.atlas.roles.get(name)?.[theme];
    const list = (/** @type {string} */ title, /** @type {Record<string, number>} */ shares) =>
      h(
        "div",
        h("h3", title),
        h("ul.bar-rows", ...kept.map((name) => barRow(name, shares[name] ?? 0, share(shares[name]), color(name)))),
      );
    const { effect } = info.means;
    const facts = [
      `${capital(info.evidence)}.`,
      effect === undefined
        ? ""
        : `Without it, the loss per token ${effect < 0 ? "falls" : "grows"} by ${Math.abs(effect).toFixed(3)}${
            info.noise === null ? "" : ` ± ${info.noise.toFixed(3)}`
          }.`,
      Object.keys(info.probe).length
        ? `On repeated random tokens: ${Object.entries(info.probe)
            .map(([name, score]) => `${name} ${number(score)}`)
            .join(", ")}.`
        : "",
    ];
    fill(
      this.jobs,
      ...facts.filter(Boolean).map((text) => h("p.note", text)),
      h("div.two", list("rows that do it", info.jobs), list("texts in which it does it most", info.texts)),
    );
  }

  /**
   * @param {Awaited<ReturnType<Atlas["detail"]>>} detail @param {string} rows @param {string[]} words
   * @param {Theme} theme
   */
  #drawExamples(detail, rows, words, theme) {
    const all = detail.examples.map((one) => exampleOf(one, detail.words));
    const [word] = words;
    const group = rows === "word" && !word ? "strongest" : rows;
    const names = [
      ...(word ? [["word", `with “${word}”`, "rows that look from or at this word"]] : []),
      ["strongest", "strongest", "the rows with the largest weights"],
      ...[9, 8, 7, 6, 5, 4, 3, 2, 1, 0].map((one) => [String(one), ...tenth(one)]),
      ["uniform", "any row", "a sample of all rows"],
    ];
    const chosen = names.some(([name]) => name === group) ? group : "strongest";
    fill(
      this.groups,
      ...names.flatMap(([name, label, title]) => [
        name === "9" ? h("span.quiet", "tenths of all rows") : "",
        h("button", { "aria-pressed": name === chosen, title, onclick: () => this.set({ rows: name }) }, label),
      ]),
    );
    const found =
      chosen === "word" ? all.filter((one) => hasWord(one, word)) : (detail.groups[chosen] ?? []).map((i) => all[i]);
    const sorted = [...found].sort((a, b) => b.strength - a.strength);
    const shown = chosen === "uniform" ? found.slice(0, FEW) : sorted.slice(0, FEW);
    attributes(this.note, {
      text: chosen === "word" ? `No example of this head looks from or at “${word}”.` : NONE,
    });
    this.note.hidden = shown.length > 0;
    fill(this.examples, ...shown.map((one) => drawExample(one, theme)));
  }
}

/** @param {number} decile @returns {[string, string]} */
function tenth(decile) {
  const ends = { 9: "strongest", 0: "weakest" }[decile];
  return [`${decile + 1}`, ends ? `the ${ends} tenth of all rows` : `tenth ${decile + 1} of 10 by strength`];
}

/** @param {string} text */
function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
