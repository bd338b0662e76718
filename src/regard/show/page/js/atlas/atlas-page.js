// The page of an atlas: a query, all heads as a map, and one head. The address keeps what is chosen.

import { preferredTheme } from "../draw/color.js";
import { attributes, fill, h, isPlain } from "../draw/dom.js";
import { roleMark } from "../draw/head-picker.js";
import { Strips } from "../draw/statistic-strips.js";
import { number } from "../words/names.js";
import { fromHash, START, toHash } from "./address.js";
import { Atlas } from "./atlas-data.js";
import { HeadCard } from "./head-card.js";
import { HeadMap } from "./head-map.js";
import { QueryError, readQuery } from "./query.js";

/** @import { Theme } from "../draw/color.js" */
/** @import { State } from "./address.js" */
/** @import { AtlasHead } from "./atlas-data.js" */

const WAIT = 120; // milliseconds after a key, before a query is read

export class AtlasPage {
  /** @param {HTMLElement} root @param {Atlas} atlas */
  constructor(root, atlas) {
    this.root = root;
    this.atlas = atlas;
    this.vocabulary = atlas.vocabulary();
    /** @type {State} */
    this.state = fromHash(location.hash, START);
    this.query = readQuery("", this.vocabulary);
    this.wrong = "";
    const { info } = atlas;
    this.question = h("h1");
    this.answer = h("p");
    this.box = /** @type {HTMLInputElement} */ (
      h("input", {
        type: "search",
        placeholder: "induction > 0.3 and layer < 4",
        "aria-label": "which heads",
        spellcheck: "false",
        autocomplete: "off",
      })
    );
    this.said = h("p.said-of-query", { role: "status" });
    this.tries = h("p.tries");
    this.roles = h("ul.roles");
    this.order = h("p.order");
    this.readout = h("p.readout-line");
    this.strips = new Strips("Statistics", (sort) => this.set({ sort: this.state.sort === sort ? "layer" : sort }));
    this.map = new HeadMap(
      (/** @type {AtlasHead} */ head) => this.set({ head: head.name }),
      (/** @type {AtlasHead | null} */ head) => this.#point(head),
    );
    this.card = new HeadCard(atlas, (change) => this.set(change));
    this.theme = h("button", { onclick: () => this.set({ theme: this.dark ? "light" : "dark" }) });
    this.stage = h("div.map-column", this.order, this.map.el, this.readout);
    const counts = [`${info.texts.toLocaleString("en")} texts`, `${info.tokens.toLocaleString("en")} tokens`];
    const heads = [...new Set(info.layers.map((one) => one.heads.length))].join(" or ");
    const sizes = `${info.layers.length} layers × ${heads} heads`;
    root.classList.add("regard");
    root.dataset.atlas = "";
    fill(
      root,
      h(
        "header",
        h("b", "regard"),
        h("span.meta", [info.model, sizes, ...counts].join(" · ")),
        h("span.tools", this.theme),
      ),
      h(
        "main",
        h("section.ask", this.question, this.answer),
        h(
          "form.which",
          { role: "search", onsubmit: (/** @type {Event} */ event) => this.#submit(event) },
          this.box,
          this.said,
          this.tries,
        ),
        h(
          "div.atlas",
          h("aside.side", h("section", h("h2", "Roles ", h("span", "click to find")), this.roles), this.strips.el),
          this.stage,
          this.card.el,
        ),
        h(
          "p.foot",
          h("span.keys", h("kbd", "/"), "find"),
          h("span.keys", h("kbd", "["), h("kbd", "]"), "head"),
          h("span.keys", h("kbd", "Esc"), "all heads"),
          this.#marks(),
        ),
      ),
    );
    this.box.addEventListener("input", () => this.#typed());
    addEventListener("keydown", (event) => this.#key(event));
    addEventListener("hashchange", () => this.#arrive());
    new ResizeObserver(() => this.#drawMap()).observe(this.stage);
    this.#arrive();
  }

  get dark() {
    return this.root.dataset.theme === "dark";
  }

  /** The heads of the query, in the order that is chosen. @returns {AtlasHead[]} */
  found() {
    const { sort } = this.state;
    const found = this.atlas.heads.filter((head) => this.query.test(head));
    if (sort === "layer") return found;
    return found.sort((a, b) => (b.number(sort) ?? -Infinity) - (a.number(sort) ?? -Infinity));
  }

  /** Change what is chosen. @param {Partial<State>} change */
  set(change) {
    this.state = { ...this.state, ...change };
    const hash = toHash(this.state);
    history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
    this.draw();
  }

  /** Show what the address says. */
  #arrive() {
    this.state = fromHash(location.hash, START);
    const { sort, head } = this.state;
    if (sort !== "layer" && !this.atlas.measures.some((one) => one.name === sort)) this.state.sort = "layer";
    if (!this.atlas.byName.has(head)) this.state.head = this.atlas.info.order[0].join(".");
    this.box.value = this.state.q;
    this.draw();
  }

  draw() {
    const { theme, q, sort } = this.state;
    const shown = theme || preferredTheme();
    this.root.dataset.theme = document.documentElement.dataset.theme = shown;
    attributes(this.theme, { text: shown === "dark" ? "light" : "dark" });
    try {
      this.query = readQuery(q, this.vocabulary);
      this.wrong = "";
    } catch (error) {
      if (!(error instanceof QueryError)) throw error;
      this.wrong = error.message;
    }
    const head = /** @type {AtlasHead} */ (this.atlas.byName.get(this.state.head));
    this.strips.draw(/** @type {any} */ (this.atlas.info), /** @type {any} */ (this.atlas.measures));
    this.strips.choose(head.layer, head.head, sort);
    this.#drawRoles();
    this.#drawOrder();
    this.#drawMap();
    this.#drawAnswer();
    this.#point(null);
    this.card.draw(head, this.state, this.query.words, /** @type {Theme} */ (shown)).then(
      () => attributes(this.root, { "data-ready": head.name }),
      (error) => fill(this.card.el, h("p.error", `This head cannot be shown: ${error.message}`)),
    );
  }

  #drawMap() {
    const width = this.stage.clientWidth;
    if (!width) return;
    this.map.draw(this.atlas, this.found(), this.state.sort, width, this.dark ? "dark" : "light");
    this.map.choose(this.atlas.byName.get(this.state.head) ?? null);
  }

  #drawAnswer() {
    const { q } = this.state;
    const found = this.found();
    const count = `${found.length} of ${this.atlas.heads.length}`;
    attributes(this.said, {
      text: this.wrong || (q.trim() ? `${count} heads` : ""),
      "data-wrong": Boolean(this.wrong),
    });
    attributes(this.box, { "aria-invalid": this.wrong ? "true" : null });
    const isAll = !q.trim() || this.wrong;
    fill(
      this.question,
      isAll ? `What do the heads of ${this.atlas.info.model} do?` : "Which heads? ",
      isAll ? null : h("em", q.trim()),
    );
    const roles = new Map(/** @type {[string, number][]} */ ([]));
    for (const { role } of found) roles.set(role, (roles.get(role) ?? 0) + 1);
    const named = this.atlas.info.roles.filter(({ name }) => roles.has(name));
    const parts = named.flatMap(({ name }, i) => [i ? ", " : "", h("b", String(roles.get(name))), ` ${name}`]);
    const first = found
      .slice(0, 6)
      .map(({ name }) => name)
      .join(", ");
    if (isAll) fill(this.answer, ...parts, ".");
    else
      fill(
        this.answer,
        found.length ? h("b", count) : "None",
        found.length ? `: ${first}${found.length > 6 ? ", …" : "."}` : " of them.",
      );
    this.#drawTries();
  }

  /** Queries to try. */
  #drawTries() {
    const { q } = this.state;
    const [word] = Object.keys(this.atlas.words)
      .filter((one) => /^\p{L}{4,}$/u.test(one))
      .sort((a, b) => this.atlas.words[b].length - this.atlas.words[a].length);
    const tries = [
      "first > 0.5 and layer > 0",
      "rows induction > 5%",
      ...(word ? [`"${word}"`] : []),
      ...(q ? [""] : []),
    ];
    fill(
      this.tries,
      q ? "" : "try ",
      ...tries.map((one) => h("button", { type: "button", onclick: () => this.#ask(one) }, one || "all heads")),
    );
  }

  #drawRoles() {
    const items = this.atlas.info.roles.flatMap((role) => {
      const heads = this.atlas.heads.filter((one) => one.role === role.name);
      if (!heads.length) return [];
      const query = `role = ${role.name}`;
      const isChosen = this.state.q.trim() === query;
      const listed = heads.length <= 3 ? heads.map(({ name }) => name).join(" ") : String(heads.length);
      return [
        h(
          "li",
          h(
            "button",
            { "aria-pressed": isChosen, title: role.about, onclick: () => this.#ask(isChosen ? "" : query) },
            roleMark(role),
            h("span", role.name),
            h("span.num", listed),
          ),
        ),
      ];
    });
    fill(this.roles, ...items);
  }

  #drawOrder() {
    const { sort } = this.state;
    const label = this.atlas.measures.find((one) => one.name === sort)?.label;
    const choice = (/** @type {string} */ text, /** @type {string} */ value) =>
      h("button", { "aria-pressed": sort === value, onclick: () => this.set({ sort: value }) }, text);
    const shown = label ? `bars: ${label}` : "bars: the share of rows that do each job";
    fill(
      this.order,
      choice("by layer", "layer"),
      ...(label ? [choice(`by ${label}`, sort)] : []),
      h("span.quiet", shown),
    );
  }

  /** @param {AtlasHead | null} pointed */
  #point(pointed) {
    const head = pointed ?? this.atlas.byName.get(this.state.head);
    if (!head) return;
    const { sort } = this.state;
    const jobs = Object.entries(head.info.jobs)
      .slice(0, 2)
      .map(([job, share]) => `${job} ${Math.round(share * 100)}%`);
    const value = sort === "layer" ? undefined : head.number(sort);
    const measure = this.atlas.measures.find((one) => one.name === sort);
    const text = [head.role, jobs.join(", "), value === undefined ? "" : `${measure?.label} ${number(value)}`];
    fill(this.readout, h("b.num", head.name), ` ${text.filter(Boolean).join(" · ")}`);
    this.strips.choose(head.layer, head.head, sort);
  }

  #marks() {
    const marks = [...new Set(this.atlas.info.layers.flatMap((one) => one.marks))];
    return marks.length ? h("span", marks.join("; ")) : null;
  }

  /** @param {string} q */
  #ask(q) {
    this.box.value = q;
    this.set({ q });
  }

  #typed() {
    clearTimeout(this.typing);
    this.typing = setTimeout(() => this.set({ q: this.box.value }), WAIT);
  }

  /** @param {Event} event */
  #submit(event) {
    event.preventDefault();
    clearTimeout(this.typing);
    const [first] = (this.set({ q: this.box.value }), this.wrong ? [] : this.found());
    if (first && this.state.q.trim()) this.set({ head: first.name });
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.defaultPrevented || !isPlain(event)) return;
    const isTyping = event.target === this.box;
    if (event.key === "Escape") this.#ask("");
    else if (isTyping) return;
    else if (event.key === "/") this.box.select();
    else if (event.key === "[" || event.key === "]") this.#step(event.key === "]" ? 1 : -1);
    else return;
    event.preventDefault();
  }

  /** The next head of the query, or the one before. @param {number} by */
  #step(by) {
    const found = this.found();
    const at = found.findIndex(({ name }) => name === this.state.head);
    const next = found[(at + by + found.length) % found.length];
    if (next) this.set({ head: next.name });
  }
}

export { startRun } from "./training-page.js";

/** Start the page. */
export async function startAtlas() {
  const root = /** @type {HTMLElement} */ (document.getElementById("regard"));
  try {
    return new AtlasPage(root, await Atlas.open(document));
  } catch (error) {
    fill(root, h("p.error", `This atlas cannot be shown: ${error instanceof Error ? error.message : error}`));
    throw error;
  }
}
