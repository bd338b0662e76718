// The page of a training run: the steps as a film, the loss, every head, and the moment when induction appears.

import { max, min } from "../data/math.js";
import { preferredTheme } from "../draw/color.js";
import { attributes, fill, h, isPlain, styles } from "../draw/dom.js";
import { roleMark } from "../draw/head-picker.js";
import { number } from "../words/names.js";
import { fromHash, toHash } from "./address.js";
import { barRow } from "./distribution.js";
import { HeadMap } from "./head-map.js";
import { TrainingChart } from "./training-chart.js";
import { Run } from "./training-data.js";

/** @import { Curve, RunHead } from "./training-data.js" */
/** step: one of the kept ones; "" for that at which induction appears. of: the statistic.
 * @typedef {{step: string, head: string, of: string, theme: "" | "light" | "dark"}} State */

/** @type {State} */
const START = { step: "", head: "", of: "probe.induction", theme: "" };
const FILM = 9000; // milliseconds of the whole film, if its steps are neither too slow nor too fast
const [FASTEST, SLOWEST] = [40, 500];
const WAIT = 120; // milliseconds after which the address keeps a step: browsers allow few changes
const MOST_NAMED = 4; // heads in a sentence
const EDGE = 4; // pixels around the map, for its focus
const THUMB = 8; // half of that of a slider, in pixels
/** Steps that a key goes. @type {Record<string, number>} */
const KEYS = { ArrowLeft: -1, ArrowRight: 1, PageDown: -10, PageUp: 10, Home: -Infinity, End: Infinity };

export class TrainingPage {
  /** @param {HTMLElement} root @param {Run} run */
  constructor(root, run) {
    this.root = root;
    this.run = run;
    /** @type {State} */
    this.state = fromHash(location.hash, START);
    const { info } = run;
    const [birth] = info.births.induction;
    const [best] = [info.best.induction.at(-1)];
    this.start = { at: birth ? info.steps.indexOf(birth.step) : info.steps.length - 1, head: best ?? "0.0" };
    if (birth) this.start.head = `${birth.layer}.${birth.head}`;
    this.answer = h("p");
    this.readout = h("p.run-readout");
    this.play = h("button.run-play", { onclick: () => this.#press() });
    this.slider = /** @type {HTMLInputElement} */ (
      h("input", { type: "range", "aria-label": "step", step: "any", min: info.steps[0], max: info.steps.at(-1) })
    );
    this.chart = new TrainingChart(run, (at) => this.#stay(at));
    this.map = new HeadMap(
      (/** @type {RunHead} */ head) => this.set({ head: head.name }),
      () => {},
    );
    this.card = h("section.head-card.run-card", { "aria-label": "head" });
    this.theme = h("button", { onclick: () => this.set({ theme: this.dark ? "light" : "dark" }) });
    this.figure = h(
      "div.run-curves",
      h("div.run-player", this.play, this.slider),
      this.readout,
      this.chart.el,
      this.#note(),
    );
    this.stage = h("div.run-map", this.map.el);
    this.heads = h("div.run-heads", h("h2", "Heads at this step"), this.stage, this.card);
    const counts = [...new Set(run.sizes)].join(" or ");
    const sizes = [`${run.sizes.length} layers × ${counts} heads`, count(info.steps.length, "kept step")];
    root.classList.add("regard");
    root.dataset.atlas = "";
    fill(
      root,
      h("header", h("b", "regard"), h("span.meta", [info.model, ...sizes].join(" · ")), h("span.tools", this.theme)),
      h(
        "main",
        h("section.ask", h("h1", "When does induction appear?"), this.answer),
        h("div.run", this.figure, this.heads),
        h(
          "p.foot",
          h("span.keys", h("kbd", "space"), "play"),
          h("span.keys", h("kbd", "←"), h("kbd", "→"), "step"),
          h("span.keys", h("kbd", "["), h("kbd", "]"), "head"),
        ),
      ),
    );
    this.#sayAnswer(birth);
    this.slider.addEventListener("input", () => this.#stay(run.nearest(Number(this.slider.value))));
    addEventListener("keydown", (event) => this.#key(event));
    addEventListener("hashchange", () => this.#arrive());
    new ResizeObserver(() => this.draw()).observe(this.root);
    this.#arrive();
  }

  get dark() {
    return this.root.dataset.theme === "dark";
  }

  get head() {
    return /** @type {RunHead} */ (this.run.byName.get(this.state.head));
  }

  get statistic() {
    return /** @type {Curve} */ (this.run.statistics.find(({ name }) => name === this.state.of));
  }

  /** Is less motion asked for? Then play goes one step. */
  get isStill() {
    return globalThis.matchMedia?.("(prefers-reduced-motion: reduce)").matches ?? false;
  }

  /** Change what is chosen. @param {Partial<State>} change */
  set(change) {
    this.state = { ...this.state, ...change };
    this.draw();
    this.#remember();
  }

  /** Show what the address says; what is not in this run is as at the start. */
  #arrive() {
    const { run } = this;
    this.state = fromHash(location.hash, START);
    const step = Number.parseInt(this.state.step, 10);
    run.at = Number.isFinite(step) ? run.nearest(step) : this.start.at;
    if (!run.byName.has(this.state.head)) this.state.head = this.start.head;
    if (!this.statistic) this.state.of = START.of;
    this.draw();
  }

  draw() {
    const shown = this.state.theme || preferredTheme();
    this.root.dataset.theme = document.documentElement.dataset.theme = shown;
    attributes(this.theme, { text: shown === "dark" ? "light" : "dark" });
    const width = this.figure.clientWidth;
    if (!width) return;
    this.chart.draw(this.head, this.statistic, width, shown);
    const { steps } = this.run.info;
    const [from, to] = [this.chart.x(steps[0]), this.chart.x(steps.at(-1) ?? 0)];
    this.slider.hidden = this.play.hidden = steps.length < 2;
    styles(this.slider, { left: from - THUMB, width: max(0, to - from) + 2 * THUMB });
    this.#drawStep();
  }

  /** What changes with the step. */
  #drawStep() {
    const { run, head, statistic } = this;
    const { info, at } = run;
    const theme = this.dark ? "dark" : "light";
    this.chart.move(head, statistic);
    this.map.draw(run, run.heads, "layer", this.stage.clientWidth - 2 * EDGE, theme, statistic.name);
    this.map.choose(head);
    this.#keepInView();
    const [step, loss, seconds] = [info.steps[at].toLocaleString("en"), info.losses[at], info.seconds[at]];
    const said = [`step ${step}`, loss === null ? "loss unknown" : `loss ${loss.toFixed(2)}`];
    this.slider.value = String(info.steps[at]);
    attributes(this.slider, { "aria-valuetext": said.join(", ") });
    attributes(this.play, { text: this.isPlaying ? "stop" : this.isStill ? "next" : "play" });
    fill(this.readout, h("b", said[0]), ` · ${said[1]}`, seconds === null ? "" : ` · after ${time(seconds)}`);
    this.#drawCard();
    attributes(this.root, { "data-ready": `${head.name}@${info.steps[at]}` });
  }

  /** Where a model has many layers, the map scrolls: the chosen head stays in it. */
  #keepInView() {
    const { mark } = this.map;
    const { scrollTop, clientHeight } = this.stage;
    const isSeen = mark.offsetTop >= scrollTop && mark.offsetTop + mark.offsetHeight <= scrollTop + clientHeight;
    if (!isSeen) this.stage.scrollTop = mark.offsetTop - clientHeight / 2;
  }

  #drawCard() {
    const { run, head } = this;
    const role = run.roles.get(head.role);
    const rows = (/** @type {"probe" | "texts"} */ where) =>
      run.statistics
        .filter((one) => one.where === where && head.curves.means[one.name])
        .map((one) => this.#row(one, head));
    fill(
      this.card,
      h(
        "h2",
        h("span.num", head.name),
        role ? roleMark(role) : null,
        h("b", ` ${head.role}`),
        h("span.quiet", ` ${run.info.layers[head.layer].name}[${head.head}]`),
      ),
      h("p.note", this.#learned(head)),
      h("h3", "on repeated random tokens"),
      h("ul.bar-rows", ...rows("probe")),
      h("h3", "in the texts"),
      h("ul.bar-rows", ...rows("texts")),
    );
  }

  /** One statistic of the head at this step; a click shows its curve. @param {Curve} one @param {RunHead} head */
  #row(one, head) {
    const [mean, noise] = [head.number(one.name), head.noise(one.name)];
    const value =
      mean === undefined
        ? "–"
        : `${number(mean)}${noise === undefined ? "" : ` ± ${noise < 0.01 ? noise.toFixed(3) : number(noise)}`}`;
    const color = this.run.roles.get(one.role)?.[this.dark ? "dark" : "light"];
    const row = barRow("", this.run.isWeight(one.name) ? (mean ?? 0) : this.run.scale(one.name)(head), value, color);
    const options = {
      "aria-pressed": one.name === this.state.of,
      title: one.about,
      onclick: () => this.set({ of: one.name }),
    };
    row.firstElementChild?.replaceWith(h("button", { ...options, "data-of": one.name }, one.label));
    return row;
  }

  /** When the head learned something. @param {RunHead} head */
  #learned(head) {
    const found = Object.entries(this.run.info.births).flatMap(([score, births]) =>
      births
        .filter((one) => one.layer === head.layer && one.head === head.head)
        .map(({ step, first }) => `${SCORES[score]} ${first ? "before" : "since"} step ${step.toLocaleString("en")}`),
    );
    return found.length ? `${capital(found.join("; "))}.` : "It learned neither induction nor the previous token.";
  }

  /** @param {import("./training-data.js").Birth | undefined} birth */
  #sayAnswer(birth) {
    const { births, best, steps, threshold } = this.run.info;
    if (birth) {
      const { step, first } = birth;
      const at = steps.indexOf(step);
      const together = births.induction.filter((one) => one.step === step);
      const names = together.map((one) => `${one.layer}.${one.head}`);
      const others = births.induction.length - names.length;
      fill(
        this.answer,
        first ? "Before " : "At ",
        h("button.run-birth", { onclick: () => this.#stay(at) }, `step ${step.toLocaleString("en")}`),
        `${first ? ", the first that was kept" : ""}, in ${names.length > 1 ? "heads" : "head"} `,
        h("b", names.slice(0, MOST_NAMED).join(", ")),
        names.length > MOST_NAMED ? ` and ${names.length - MOST_NAMED} more` : "",
        others ? `; later in ${others} more.` : ".",
      );
      return;
    }
    const name = best.induction.at(-1) ?? "";
    const last = this.run.byName.get(name)?.curves.means["probe.induction"]?.at(-1);
    fill(
      this.answer,
      "No head learned induction in this run. Nearest is ",
      h("b", name),
      `, with ${number(last ?? 0)} at the last step; it takes ${threshold}.`,
    );
  }

  /** What the band and the marks are. */
  #note() {
    const { info } = this.run;
    const { many, threshold, texts } = info;
    const noise = this.run.heads.map(({ curves }) => curves.noise["probe.induction"] ?? []);
    const isKnown = noise.some((one) => one.some((value) => value !== null));
    const probed = isKnown ? ", and 8 of random tokens" : "";
    const band =
      `The band of a head is ± ${many} standard errors of its mean between texts: ${texts} texts of the validation ` +
      `data${probed}; there is none where they are fewer than eight. Other heads are grey.`;
    const beyond = isKnown
      ? ` by more than ${many} standard errors`
      : "; how much that score varies is not in these files";
    const rule =
      "A head has learned induction, or the previous token, at the first kept step from which on, up to the last, " +
      `its score on repeated random tokens is above ${threshold}${beyond}.`;
    const loss = "The line of the loss is a mean over neighbouring steps, the faint one each step.";
    return h("p.note.run-note", `${loss} ${band} ${rule}`);
  }

  get isPlaying() {
    return this.timer !== undefined;
  }

  #press() {
    const { steps } = this.run.info;
    if (this.isPlaying) return this.#stay(this.run.at);
    if (this.run.at === steps.length - 1) this.run.at = -1;
    if (this.isStill) return this.#stay(this.run.at + 1);
    const wait = min(SLOWEST, max(FASTEST, FILM / steps.length));
    const next = () => {
      this.timer = this.run.at + 2 < steps.length ? setTimeout(next, wait) : undefined;
      this.run.at += 1;
      this.#drawStep();
      if (!this.isPlaying) this.#stay(this.run.at);
    };
    next();
  }

  /** Stop the film, and show this of the kept steps. @param {number} at */
  #stay(at) {
    clearTimeout(this.timer);
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
    this.run.at = at;
    this.state.step = String(this.run.info.steps[at]);
    this.#drawStep();
    this.#remember();
  }

  /** Keep the state in the address, a moment after the last change. */
  #remember() {
    clearTimeout(this.writing);
    this.writing = setTimeout(() => {
      const hash = toHash(this.state, START);
      history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
    }, WAIT);
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.defaultPrevented || !isPlain(event)) return;
    const { run } = this;
    if (event.key in KEYS) this.#stay(min(run.info.steps.length - 1, max(0, run.at + KEYS[event.key])));
    else if (event.key === "[" || event.key === "]") this.#turn(event.key === "]" ? 1 : -1);
    else if (event.key === " " && !(event.target instanceof HTMLButtonElement)) this.#press();
    else return;
    event.preventDefault();
  }

  /** The next head, or the one before. @param {number} by */
  #turn(by) {
    const { heads } = this.run;
    this.set({ head: heads[(heads.indexOf(this.head) + by + heads.length) % heads.length].name });
  }
}

/** @type {Record<string, string>} */
const SCORES = { induction: "induction", previous: "previous token" };

/** @param {number} seconds */
function time(seconds) {
  const minutes = Math.floor(seconds / 60);
  return minutes ? `${minutes} min ${Math.round(seconds - 60 * minutes)} s` : `${Math.round(seconds)} s`;
}

/** @param {number} n @param {string} name */
function count(n, name) {
  return `${n.toLocaleString("en")} ${name}${n === 1 ? "" : "s"}`;
}

/** @param {string} text */
function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Start the page. */
export async function startRun() {
  const root = /** @type {HTMLElement} */ (document.getElementById("regard"));
  try {
    return new TrainingPage(root, await Run.open(document));
  } catch (error) {
    fill(root, h("p.error", `This run cannot be shown: ${error instanceof Error ? error.message : error}`));
    throw error;
  }
}
