// One step: its name, a picture of the whole tensor, one word's part of it, and the number we follow.

import { abs, floor, max, min, round } from "../data/math.js";
import { MINUS, shortNumber } from "../words/equations.js";
import { css, inkOn, pixelImage, signedColor, weightColor } from "./color.js";
import { attributes, fill, h, s, sizedContext, styles } from "./dom.js";

/** @import { Theme } from "./color.js" */
/** @import { StepLine } from "../words/step-sentences.js" */
/** @typedef {import("../words/step-sentences.js").StepRow} FollowedStep */
/** @import { Choice, StepTensor } from "../data/step-tensors.js" */
/**
 * Sizes in pixels: of the picture, of the bars, and of a column of a key.
 * @typedef {{whole: number, high: number, part: number, column: number}} RowSizes
 */

const CELL = 12; // the most pixels of a number in a picture
const VALUES_FROM = 46; // pixels of a bar that carries its number

/** The row of one step. Everything in it is made once; `focus` changes what depends on the chosen words. */
export class StepItem {
  /**
   * @param {StepTensor} tensor
   * @param {boolean} again the operation and the shape are those of the step before: the row is low
   */
  constructor(tensor, again) {
    const { info } = tensor;
    this.tensor = tensor;
    this.again = again;
    this.canvas = /** @type {HTMLCanvasElement} */ (h("canvas"));
    this.outline = h("span.step-outline");
    this.whole = h("div.step-whole", { "aria-hidden": true }, this.canvas, this.outline);
    this.lines = h("div.step-lines");
    /** @type {LineParts[]} */
    this.made = [];
    const name = h(
      "div.step-name",
      { title: info.why },
      h("b", info.name),
      h("code", { class: again ? "for-readers" : null }, info.operation),
      h("span", { class: again ? "for-readers" : "num" }, info.shape),
    );
    this.el = h("li", { class: again ? "step again" : "step", "data-step": info.name }, name, this.whole, this.lines);
    this.drawn = "";
    /** @type {RowSizes} */
    this.sizes = { whole: 0, high: 0, part: 0, column: 0 };
    this.block = { width: 0, height: 0, step: 0, rows: 1 };
  }

  /** Say that the run before has no such step. */
  markNew() {
    this.el.querySelector(".step-name b")?.append(" ", h("span.new", "new"));
  }

  /** The middle of the first line, in pixels from the top of the view. */
  get middle() {
    return this.el.offsetTop + (this.again ? 14 : 19);
  }

  /** The width that bars and columns have. */
  partWidth() {
    if (!this.made.length) {
      this.made = [new LineParts()];
      fill(this.lines, this.made[0].el);
    }
    return this.made[0].body.clientWidth;
  }

  /** Draw the picture of the tensor. @param {Theme} theme @param {RowSizes} sizes */
  draw(theme, sizes) {
    this.sizes = this.again ? { ...sizes, high: sizes.high - 10 } : sizes;
    const now = `${theme} ${sizes.whole} ${sizes.high}`;
    if (now === this.drawn || !this.tensor.values) return;
    this.drawn = now;
    const { blocks, rows, cols, at } = this.tensor.grid();
    const isMap = this.tensor.axes.at(-1) === "key";
    const gap = blocks > 1 ? min(3, max(1, floor(sizes.whole / blocks / 6))) : 0;
    const room = max(1, floor((sizes.whole + gap) / blocks) - gap);
    const { high } = this.sizes;
    const size = min(room, high, CELL * max(rows, cols));
    const width = isMap ? max(1, round((size * cols) / max(rows, cols))) : min(room, CELL * cols);
    const height = isMap ? max(1, round((size * rows) / max(rows, cols))) : min(high, CELL * rows);
    this.block = { width, height, step: width + gap, rows };
    const image = this.#image(theme, blocks, rows, cols, at);
    const context = sizedContext(this.canvas, blocks * (width + gap) - gap, height);
    context.clearRect(0, 0, blocks * (width + gap), height);
    context.imageSmoothingEnabled = cols > width || rows > height;
    context.imageSmoothingQuality = "high";
    for (let i = 0; i < blocks; i++)
      context.drawImage(image, i * cols, 0, cols, rows, i * (width + gap), 0, width, height);
  }

  /**
   * Every number as a pixel; what is hidden has none.
   * @param {Theme} theme
   * @param {number} blocks
   * @param {number} rows
   * @param {number} cols
   * @param {(block: number, row: number, col: number) => number} at
   */
  #image(theme, blocks, rows, cols, at) {
    const isWeights = this.tensor.name === "weights" || this.tensor.name === "dropout";
    const values = new Float32Array(blocks * cols * rows);
    for (let r = 0; r < rows; r++)
      for (let b = 0; b < blocks; b++) for (let c = 0; c < cols; c++) values[(r * blocks + b) * cols + c] = at(b, r, c);
    // A few very large numbers would leave all others pale.
    const sorted = values.filter(Number.isFinite).map(abs).sort();
    const most = sorted[floor((sorted.length - 1) * 0.98)] || 1;
    return pixelImage(blocks * cols, rows, values, (value) => {
      if (!Number.isFinite(value) || (isWeights && value === 0)) return null;
      return isWeights ? weightColor(value, theme) : signedColor(max(-1, min(1, value / most)) * 0.7, theme);
    });
  }

  /**
   * Show the chosen word's part, and the number we follow.
   * @param {FollowedStep} followed
   * @param {Choice} choice
   * @param {number[]} keys the keys that have a column
   * @param {Theme} theme
   */
  focus({ lines }, choice, keys, theme) {
    this.#drawOutline(choice);
    if (this.made.length !== lines.length) {
      this.made = lines.map(() => new LineParts());
      fill(this.lines, ...this.made.map((one) => one.el));
    }
    lines.forEach((line, i) => this.made[i].show(line, choice, keys, theme, this.sizes));
  }

  /** @param {Choice} choice */
  #drawOutline(choice) {
    const { tensor, block } = this;
    const tokens = tensor.axes.findIndex(
      (axis, i) => i < tensor.axes.length - 1 && (axis === "query" || axis === "key"),
    );
    const known = tensor.axes.every((axis, i) => axis || i === tensor.axes.length - 1);
    if (!tensor.values || tokens < 0 || !known) return void (this.outline.hidden = true);
    const row = tensor.axes[tokens] === "query" ? choice.query : choice.key;
    const inBlock = tensor.axes.includes("head") ? tensor.at(choice.head) : 0;
    const joined = tensor.info.heads > 1 ? tensor.at(choice.head) / tensor.info.heads : 0;
    const high = max(3, block.height / block.rows);
    const top = min(block.height - high, (row * block.height) / block.rows);
    styles(this.outline, {
      left: inBlock * block.step + joined * block.width,
      top: top,
      width: block.width / tensor.info.heads,
      height: high,
    });
  }
}

/** A line of a step: bars or numbers by key, and the sentence beside them. */
class LineParts {
  constructor() {
    this.label = h("span.whose");
    this.body = h("div.step-part");
    this.sum = h("span.sum");
    this.number = h("b.followed");
    this.note = h("span.note");
    this.el = h("div.step-line", this.label, this.body, h("p.said", h("span.num", this.sum, this.number), this.note));
    this.kind = "";
    /** @type {HTMLElement[]} */
    this.cells = [];
    this.drawn = "";
    /** The path of a bar. @type {(i: number) => string} */
    this.bar = () => "";
    this.up = s("path.up");
    this.down = s("path.down");
    this.mark = s("path.marked");
    this.frame = s("rect.of-head");
    this.texts = s("g");
    this.svg = s(
      "svg.bars",
      { "aria-hidden": true },
      s("path.axis"),
      this.up,
      this.down,
      this.frame,
      this.mark,
      this.texts,
    );
  }

  /**
   * @param {StepLine} line @param {Choice} choice @param {number[]} keys @param {Theme} theme @param {RowSizes} sizes
   */
  show({ part, sum, number, note }, choice, keys, theme, sizes) {
    const power = /^e\^(\S+)(.*)$/.exec(sum);
    const shown = sum && number ? `${sum} ` : sum;
    if (this.sum.dataset.text !== shown) {
      this.sum.dataset.text = shown;
      fill(this.sum, ...(power ? ["e", h("sup", power[1]), `${power[2]} `] : [shown]));
    }
    attributes(this.sum, { title: sum && number ? `${sum} ${number}` : null });
    attributes(this.number, { text: number, hidden: !number });
    attributes(this.note, { text: note, title: note });
    attributes(this.label, { text: part.kind === "none" ? "" : part.whose });
    if (this.kind !== part.kind) {
      this.kind = part.kind;
      fill(this.body, ...(part.kind === "bars" ? [this.svg] : []));
      this.cells = [];
      this.drawn = "";
    }
    if (part.kind === "bars") this.#bars(part, theme, sizes);
    else if (part.kind === "keys") this.#keys(part, choice, keys, theme, sizes);
  }

  /**
   * @param {import("../words/step-sentences.js").StepPart & {kind: "bars"}} part
   * @param {Theme} theme
   * @param {RowSizes} sizes
   */
  #bars({ id, values, marked, from, to, heads }, theme, { part: width, high }) {
    const count = max(1, values.length);
    const step = min(64, width / count);
    const gap = step >= 6 ? 1.5 : step >= 3 ? 0.5 : 0;
    const middle = high / 2;
    const numbered = step >= VALUES_FROM && high >= 30;
    const now = `${id} ${count} ${width} ${high} ${theme}`;
    if (this.drawn !== now) {
      this.drawn = now;
      let most = 0;
      for (const value of values) if (Number.isFinite(value)) most = max(most, abs(value));
      const scale = (middle - 4) / (most || 1);
      const [wide, back] = [(step - gap).toFixed(1), (gap - step).toFixed(1)];
      this.bar = (i) => {
        const tall = Number.isFinite(values[i]) ? max(0.5, abs(values[i]) * scale) : 0;
        return `M${(i * step).toFixed(1)} ${middle}h${wide}v${(values[i] < 0 ? tall : -tall).toFixed(1)}h${back}z`;
      };
      const paths = { up: "", down: "" };
      for (let i = 0; i < values.length; i++) paths[values[i] < 0 ? "down" : "up"] += this.bar(i);
      attributes(this.svg, { width, height: high });
      attributes(/** @type {Element} */ (this.svg.firstChild), { d: `M0 ${middle}h${(step * count).toFixed(1)}` });
      attributes(this.up, { d: paths.up, fill: css(signedColor(0.35, theme)) });
      attributes(this.down, { d: paths.down, fill: css(signedColor(-0.35, theme)) });
      const text = (/** @type {number} */ value, /** @type {number} */ i) =>
        s(
          "text.n",
          { x: i * step + (step - gap) / 2, y: middle + (value < 0 ? -5 : 13), "text-anchor": "middle" },
          inCell(value),
        );
      fill(this.texts, ...(numbered ? [...values].map(text) : []));
    }
    attributes(this.svg, { "data-from": from, "data-step": step, "data-count": to - from });
    attributes(this.frame, {
      visibility: heads > 1 ? "visible" : "hidden",
      x: from * step,
      y: 1,
      width: (to - from) * step,
      height: high - 2,
    });
    [...this.texts.children].forEach((text, i) => text.classList.toggle("on", i === marked));
    // The marked bar has a pointer or a bold number, so that it is not told apart by colour alone.
    const [x, side] = [(marked + 0.5) * step - gap / 2, values[marked] < 0 ? -1 : 1];
    const pointer = numbered ? "" : `M${x.toFixed(1)} ${middle + 2 * side}l4 ${6 * side}h-8z`;
    attributes(this.mark, { d: marked < 0 ? "" : this.bar(marked) + pointer });
  }

  /**
   * @param {import("../words/step-sentences.js").StepPart & {kind: "keys"}} part
   * @param {Choice} choice
   * @param {number[]} keys
   * @param {Theme} theme
   * @param {RowSizes} sizes
   */
  #keys({ values, weights }, choice, keys, theme, { column }) {
    if (this.cells.length !== keys.length) {
      this.cells = keys.map(() => h("span.key-cell.num"));
      fill(this.body, h("div.by-key", ...this.cells));
    }
    this.cells.forEach((cell, i) => {
      const value = values[keys[i]];
      const color = weights && value > 0 ? weightColor(value, theme) : null;
      attributes(cell, {
        text: inCell(value),
        "data-key": keys[i],
        "data-on": keys[i] === choice.key,
        "data-hidden": value === -Infinity || (weights && value === 0),
        style: { width: column, background: color ? css(color) : "", color: color ? inkOn(color) : "" },
      });
    });
  }
}

/** A number where there is little room: two decimals, one from 10 on. @param {number} value */
function inCell(value) {
  const size = abs(value);
  if (value === 0 || !(size < 1000)) return shortNumber(value);
  return (value < 0 ? MINUS : "") + size.toFixed(size < 10 ? 2 : 1);
}
