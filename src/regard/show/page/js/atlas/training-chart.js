// The curves of a run: the loss above, one statistic of all heads below, on the same steps.

import { max, min, round } from "../data/math.js";
import { attributes, fill, fitText, h, s } from "../draw/dom.js";
import { smooth, ticks } from "./training-data.js";

/** @import { Theme } from "../draw/color.js" */
/** @import { Birth, Curve, Numbers, Run, RunHead } from "./training-data.js" */
/** @typedef {(value: number) => number} Scale */
/** @typedef {{top: number, height: number, low: number, high: number, y: Scale}} Panel */

const LEFT = 40; // pixels for the numbers of an axis
const RIGHT = 42; // pixels for the names of heads
const MARKS = 20; // pixels of a row of marks
const TITLE = 24; // pixels above a panel
const AXIS = 22; // pixels below the last one
const NAMED = 3; // lines that have a name at their end, beside the chosen one
const APART = 13; // pixels between two names
const WINDOW = 40; // the loss is smoothed over this part of all points
/** Of the panels, by the width of the figure. */
const SIZES = [
  { width: 1400, loss: 220, heads: 400, ticks: 12 },
  { width: 640, loss: 150, heads: 260, ticks: 10 },
  { width: 0, loss: 110, heads: 190, ticks: 4 },
];
const MANY = 64; // heads from which their lines are fainter
const FONT = "12.5px system-ui, sans-serif";
/** Those that are marked, the most important last. @type {[string, string][]} */
const MARKED = [
  ["previous", "previous token"],
  ["induction", "induction"],
];

export class TrainingChart {
  /** @param {Run} run @param {(at: number) => void} go to one of the kept steps */
  constructor(run, go) {
    this.run = run;
    this.svg = s("svg.run-chart", { role: "img" });
    this.still = s("g");
    this.cursor = s("g.cursor");
    this.svg.append(this.still, this.cursor);
    this.el = h("div.run-figure", this.svg);
    /** @type {Scale} */
    this.x = () => 0;
    /** @type {Panel[]} */
    this.panels = [];
    /** The loss, smoothed. @type {Numbers} */
    this.curve = [];
    const point = (/** @type {PointerEvent} */ event) => {
      const left = event.clientX - this.svg.getBoundingClientRect().left;
      go(run.nearest((left - LEFT) / (this.x(1) - LEFT)));
    };
    this.svg.addEventListener("pointerdown", (/** @type {any} */ event) => {
      if (event.button !== 0) return;
      this.svg.setPointerCapture(event.pointerId);
      point(event);
    });
    this.svg.addEventListener("pointermove", (/** @type {any} */ event) => {
      if (this.svg.hasPointerCapture(event.pointerId)) point(event);
    });
  }

  /** Everything that stays while the step moves.
   * @param {RunHead} head @param {Curve} statistic @param {number} width @param {Theme} theme */
  draw(head, statistic, width, theme) {
    const { info } = this.run;
    const size = SIZES.find((one) => width >= one.width) ?? SIZES[SIZES.length - 1];
    const last = max(info.steps.at(-1) ?? 1, info.curve.at(-1)?.[0] ?? 1);
    const right = width - RIGHT;
    this.x = (step) => LEFT + (step / last) * (right - LEFT);
    const marks = MARKED.filter(([score]) => info.births[score].length);
    const top = marks.length * MARKS;
    const known = info.curve.flatMap(([, loss]) => (loss === null ? [] : [loss]));
    const bounds = known.length ? [min(...known), max(...known)] : [0, 1];
    const above = panel(top + TITLE, size.loss, bounds[0], bounds[1]);
    const [low, high] = this.run.range(statistic.name);
    const below = panel(above.top + above.height + TITLE + 12, size.heads, low, high);
    this.panels = [above, below];
    const bottom = below.top + below.height;
    attributes(this.svg, { width, height: bottom + AXIS });
    const where = statistic.where === "probe" ? "on repeated random tokens" : "in the texts";
    attributes(this.svg, {
      "aria-label": `the loss, and ${statistic.label} ${where} of every head, over ${last.toLocaleString("en")} steps`,
    });
    const title = (/** @type {number} */ y, /** @type {string} */ name, /** @type {string} */ says) =>
      s("text", { x: 0, y: y - 9 }, s("tspan.named", name), s("tspan.quiet", { dx: 8 }, says));
    const room = width - 90 - statistic.label.length * 7;
    fill(
      this.still,
      ...ticks(0, last, size.ticks).map((step) => this.#axis(step, bottom)),
      ...[above, below].flatMap((one) => this.#grid(one, right)),
      title(above.top, "loss", info.validation.length ? "training, and validation as dots" : "training"),
      title(below.top, statistic.label, fitText(`${where}; ${lower(statistic.about.split(";")[0])}`, room, FONT)),
      ...this.#loss(above),
      ...this.#statistic(head, statistic, below, theme),
      ...marks.map(([score, name], row) => this.#mark(info.births[score], name, row, right, theme)),
    );
    this.move(head, statistic);
  }

  /** The line at the step that is shown, with the values there. @param {RunHead} head @param {Curve} statistic */
  move(head, statistic) {
    const { info, at } = this.run;
    const x = this.x(info.steps[at]);
    const [above, below] = this.panels;
    const dot = (/** @type {Panel} */ one, /** @type {number | null | undefined} */ value) =>
      value === null || value === undefined ? null : s("circle", { cx: x, cy: one.y(value), r: 3.5 });
    const dots = [dot(above, this.#smoothed(info.steps[at])), dot(below, head.number(statistic.name))];
    fill(this.cursor, s("path", { d: this.#upright(x) }), ...dots);
  }

  /** Where the curve of the loss is at a step. @param {number} step */
  #smoothed(step) {
    const i = this.run.info.curve.findIndex((point) => point[0] >= step);
    return i < 0 ? null : this.curve[i];
  }

  /** @param {number} step @param {number} bottom */
  #axis(step, bottom) {
    const x = this.x(step);
    const text = s(
      "text.n",
      { x, y: bottom + 16, "text-anchor": step ? "middle" : "start" },
      step.toLocaleString("en"),
    );
    return s("g.grid-line", s("path", { d: `M${x.toFixed(1)} ${bottom}v4` }), text);
  }

  /** @param {Panel} one @param {number} right */
  #grid({ low, high, y, height }, right) {
    return ticks(low, high, height > 150 ? 6 : 4).map((value) =>
      s(
        "g.grid-line",
        s("path", { d: `M${LEFT} ${y(value).toFixed(1)}H${right}` }),
        s("text.n", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, String(value)),
      ),
    );
  }

  /** @param {Panel} one */
  #loss(one) {
    const { curve, validation } = this.run.info;
    const steps = curve.map(([step]) => step);
    const values = curve.map(([, loss]) => loss);
    this.curve = smooth(values, round(values.length / WINDOW / 2));
    const dots = validation.filter(([, loss]) => loss >= one.low && loss <= one.high);
    return [
      s("path.raw", { d: this.#line(steps, values, one) }),
      s("path.curve", { d: this.#line(steps, this.curve, one) }),
      ...dots.map(([step, loss]) => s("circle.validation", { cx: this.x(step), cy: one.y(loss), r: 1.8 })),
    ];
  }

  /** @param {RunHead} head @param {Curve} statistic @param {Panel} one @param {Theme} theme */
  #statistic(head, { name, where, statistic, role }, one, theme) {
    const { info, heads } = this.run;
    const color = this.run.roles.get(role)?.[theme] ?? "var(--ink)";
    const others = heads.filter((other) => other !== head).map(({ curves }) => curves.means[name] ?? []);
    const means = head.curves.means[name] ?? [];
    const isMarked = where === "probe" && info.births[statistic];
    return [
      isMarked
        ? s("path.threshold", { d: `M${LEFT} ${one.y(info.threshold).toFixed(1)}H${this.x(info.steps.at(-1) ?? 1)}` })
        : null,
      s(`path.others${heads.length > MANY ? ".many" : ""}`, {
        d: others.map((values) => this.#line(info.steps, values, one)).join(""),
      }),
      s("path.band", { d: this.#band(means, head.curves.noise[name] ?? [], one), style: { fill: color } }),
      s("path.chosen", { d: this.#line(info.steps, means, one), style: { stroke: color } }),
      info.steps.length === 1 && typeof means[0] === "number"
        ? s("circle", { cx: this.x(info.steps[0]), cy: one.y(means[0]), r: 3, style: { fill: color } })
        : null,
      ...this.#names(head, name, one),
    ].flatMap((node) => (node ? [node] : []));
  }

  /** The names of the highest lines, and of the chosen one, at their ends. @param {RunHead} chosen @param {string} name
   * @param {Panel} one */
  #names(chosen, name, one) {
    const ends = this.run.heads.flatMap((head) => {
      const value = head.curves.means[name]?.at(-1);
      return typeof value === "number" ? [{ head, value }] : [];
    });
    const own = ends.filter(({ head }) => head === chosen);
    const others = ends.filter(({ head }) => head !== chosen).sort((a, b) => b.value - a.value);
    const bottom = one.top + one.height;
    /** @type {{head: RunHead, value: number, y: number}[]} */
    const placed = [];
    const isFree = (/** @type {number} */ y) => y <= bottom && placed.every((other) => Math.abs(other.y - y) >= APART);
    for (const { head, value } of [...own, ...others.slice(0, NAMED)]) {
      const near = placed.find((other) => Math.abs(other.y - one.y(value)) < APART);
      const y = near ? near.y + (value > near.value ? -APART : APART) : one.y(value);
      if (isFree(y)) placed.push({ head, value, y });
    }
    const x = this.x(this.run.info.steps.at(-1) ?? 1) + 6;
    return placed.map(({ head, y }) => s(`text.n${head === chosen ? ".own" : ""}`, { x, y: y + 4 }, head.name));
  }

  /** The line at which the first head has learned something, and who. @param {Birth[]} births @param {string} name
   * @param {number} row @param {number} right @param {Theme} theme */
  #mark(births, name, row, right, theme) {
    const [{ step, first }] = births;
    const x = this.x(step);
    const who = births.filter((one) => one.step === step).map((one) => `${one.layer}.${one.head}`);
    const heads = `${who.slice(0, 3).join(", ")}${who.length > 3 ? " …" : ""}`;
    const text = `${name}: ${heads}, ${first ? "before " : ""}step ${step.toLocaleString("en")}`;
    const isLeft = x > (LEFT + right) / 2;
    const label = s(
      "text",
      { x: x + (isLeft ? -6 : 6), y: row * MARKS + 13, "text-anchor": isLeft ? "end" : "start" },
      text,
    );
    const mark = s(
      `g.birth.${name.split(" ")[0]}`,
      { "data-step": step },
      s("path", { d: `M${x.toFixed(1)} ${row * MARKS + 2}V${this.panels[0].top - TITLE}${this.#upright(x)}` }),
      label,
    );
    mark.style.setProperty("--role", this.run.roles.get(name)?.[theme] ?? "");
    return mark;
  }

  /** A line through both panels, not through their titles. @param {number} x */
  #upright(x) {
    return this.panels.map(({ top, height }) => `M${x.toFixed(1)} ${top - 4}v${height + 4}`).join("");
  }

  /** @param {number[]} steps @param {Numbers} values @param {Panel} one */
  #line(steps, values, one) {
    let pen = "M";
    return values
      .map((value, i) => {
        if (value === null) return (pen = "M"), "";
        const part = `${pen}${this.x(steps[i]).toFixed(1)} ${one.y(value).toFixed(1)}`;
        pen = "L";
        return part;
      })
      .join("");
  }

  /**
   * What lies within the noise, between each two steps where it is known.
   * @param {Numbers} means @param {Numbers} noise @param {Panel} one
   */
  #band(means, noise, one) {
    const { steps } = this.run.info;
    const edge = (/** @type {number} */ i, /** @type {number} */ sign) => {
      const [mean, error] = [means[i], noise[i]];
      const value =
        typeof mean === "number" && typeof error === "number" ? mean + sign * this.run.info.many * error : null;
      return value === null ? null : `${this.x(steps[i]).toFixed(1)} ${one.y(value).toFixed(1)}`;
    };
    return steps
      .slice(1)
      .map((_, i) => {
        const corners = [edge(i, 1), edge(i + 1, 1), edge(i + 1, -1), edge(i, -1)];
        return corners.includes(null) ? "" : `M${corners.join("L")}z`;
      })
      .join("");
  }
}

/** A panel whose axis holds these values. @param {number} top @param {number} height @param {number} low
 * @param {number} high @returns {Panel} */
function panel(top, height, low, high) {
  const spare = (high - low || 1) * 0.04;
  const [from, to] = [low === 0 ? 0 : low - spare, high + spare];
  const y = (/** @type {number} */ value) => top + height - ((min(max(value, from), to) - from) / (to - from)) * height;
  return { top, height, low: from, high: to, y };
}

/** @param {string} text */
function lower(text) {
  return text.charAt(0).toLowerCase() + text.slice(1);
}
