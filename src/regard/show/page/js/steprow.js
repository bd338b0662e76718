// @ts-check
// One step: its name, a picture of the whole tensor, one word's part of it, and the number we follow.

import { css, inkOn, signedColor, weightColor } from "./color.js";
import { attributes, h, s, sizedContext } from "./dom.js";
import { MINUS, shortNumber } from "./sums.js";

/** @typedef {import("./color.js").Theme} Theme */
/** @typedef {import("./follow.js").StepLine} StepLine */
/** @typedef {import("./follow.js").StepRow} FollowedStep */
/** @typedef {import("./tensors.js").StepTensor} StepTensor */
/** @typedef {import("./tensors.js").Choice} Choice */
/** Sizes in pixels: of the picture, of the bars, and of a column of a key. @typedef {{whole: number, high: number, part: number, column: number}} RowSizes */

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
    this.outline = h("span", { class: "step-outline" });
    this.whole = h("div", { class: "step-whole", "aria-hidden": "true" }, this.canvas, this.outline);
    this.lines = h("div", { class: "step-lines" });
    /** @type {LineParts[]} */
    this.made = [];
    const name = h(
      "div",
      { class: "step-name", title: info.why },
      h("b", { text: info.name }),
      h("code", { text: info.operation, class: again ? "for-readers" : null }),
      h("span", { text: info.shape, class: again ? "for-readers" : "num" }),
    );
    this.el = h("li", { class: again ? "step again" : "step", "data-step": info.name }, name, this.whole, this.lines);
    this.drawn = "";
    /** @type {RowSizes} */
    this.sizes = { whole: 0, high: 0, part: 0, column: 0 };
    this.block = { width: 0, height: 0, step: 0, rows: 1 };
  }

  /** The middle of the first line, in pixels from the top of the view. */
  get middle() {
    return this.el.offsetTop + (this.again ? 14 : 19);
  }

  /** The width that bars and columns have. */
  partWidth() {
    if (!this.made.length) {
      this.made = [new LineParts()];
      this.lines.replaceChildren(this.made[0].el);
    }
    return this.made[0].body.clientWidth;
  }

  /**
   * Draw the picture of the tensor.
   * @param {Theme} theme
   * @param {RowSizes} sizes
   */
  draw(theme, sizes) {
    this.sizes = this.again ? { ...sizes, high: sizes.high - 10 } : sizes;
    const now = `${theme} ${sizes.whole} ${sizes.high}`;
    if (now === this.drawn || !this.tensor.values) return;
    this.drawn = now;
    const { blocks, rows, cols, at } = this.tensor.grid();
    const isMap = this.tensor.axes.at(-1) === "key";
    const gap = blocks > 1 ? Math.min(3, Math.max(1, Math.floor(sizes.whole / blocks / 6))) : 0;
    const room = Math.max(1, Math.floor((sizes.whole + gap) / blocks) - gap);
    const { high } = this.sizes;
    const size = Math.min(room, high, CELL * Math.max(rows, cols));
    const width = isMap ? Math.max(1, Math.round((size * cols) / Math.max(rows, cols))) : Math.min(room, CELL * cols);
    const height = isMap ? Math.max(1, Math.round((size * rows) / Math.max(rows, cols))) : Math.min(high, CELL * rows);
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
    const pixels = new ImageData(Math.max(1, blocks * cols), Math.max(1, rows));
    const values = new Float32Array(blocks * cols * rows);
    for (let r = 0; r < rows; r++)
      for (let b = 0; b < blocks; b++) for (let c = 0; c < cols; c++) values[(r * blocks + b) * cols + c] = at(b, r, c);
    // A few very large numbers would leave all others pale.
    const sorted = values.filter(Number.isFinite).map(Math.abs).sort();
    const most = sorted[Math.floor((sorted.length - 1) * 0.98)] || 1;
    for (let i = 0; i < values.length; i++) {
      if (!Number.isFinite(values[i]) || (isWeights && values[i] === 0)) continue;
      const [r, g, b] = isWeights
        ? weightColor(values[i], theme)
        : signedColor(Math.max(-1, Math.min(1, values[i] / most)) * 0.7, theme);
      pixels.data.set([r, g, b, 255], i * 4);
    }
    const image = new OffscreenCanvas(pixels.width, pixels.height);
    /** @type {OffscreenCanvasRenderingContext2D} */ (image.getContext("2d")).putImageData(pixels, 0, 0);
    return image;
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
      this.lines.replaceChildren(...this.made.map((one) => one.el));
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
    const high = Math.max(3, block.height / block.rows);
    const top = Math.min(block.height - high, (row * block.height) / block.rows);
    Object.assign(this.outline.style, {
      left: `${inBlock * block.step + joined * block.width}px`,
      top: `${top}px`,
      width: `${block.width / tensor.info.heads}px`,
      height: `${high}px`,
    });
  }
}

/** A line of a step: bars or numbers by key, and the sentence beside them. */
class LineParts {
  constructor() {
    this.label = h("span", { class: "whose" });
    this.body = h("div", { class: "step-part" });
    this.sum = h("span", { class: "sum" });
    this.number = h("b", { class: "followed" });
    this.note = h("span", { class: "note" });
    this.el = h(
      "div",
      { class: "step-line" },
      this.label,
      this.body,
      h("p", { class: "said" }, h("span", { class: "num" }, this.sum, this.number), this.note),
    );
    this.kind = "";
    /** @type {HTMLElement[]} */
    this.cells = [];
    this.drawn = "";
    /** The path of a bar. @type {(i: number) => string} */
    this.bar = () => "";
    this.up = s("path", { class: "up" });
    this.down = s("path", { class: "down" });
    this.mark = s("path", { class: "marked" });
    this.frame = s("rect", { class: "of-head" });
    this.texts = s("g");
    this.svg = s(
      "svg",
      { class: "bars", "aria-hidden": "true" },
      s("path", { class: "axis" }),
      this.up,
      this.down,
      this.frame,
      this.mark,
      this.texts,
    );
  }

  /**
   * @param {StepLine} line
   * @param {Choice} choice
   * @param {number[]} keys
   * @param {Theme} theme
   * @param {RowSizes} sizes
   */
  show({ part, sum, number, note }, choice, keys, theme, sizes) {
    const power = /^e\^(\S+)(.*)$/.exec(sum);
    const shown = sum && number ? `${sum} ` : sum;
    if (this.sum.dataset.text !== shown) {
      this.sum.dataset.text = shown;
      this.sum.replaceChildren(...(power ? ["e", h("sup", { text: power[1] }), `${power[2]} `] : [shown]));
    }
    attributes(this.number, { text: number, hidden: !number });
    attributes(this.note, { text: note, title: note });
    attributes(this.label, { text: part.kind === "none" ? "" : part.whose });
    if (this.kind !== part.kind) {
      this.kind = part.kind;
      this.body.replaceChildren(...(part.kind === "bars" ? [this.svg] : []));
      this.cells = [];
      this.drawn = "";
    }
    if (part.kind === "bars") this.#bars(part, theme, sizes);
    else if (part.kind === "keys") this.#keys(part, choice, keys, theme, sizes);
  }

  /**
   * @param {import("./follow.js").StepPart & {kind: "bars"}} part
   * @param {Theme} theme
   * @param {RowSizes} sizes
   */
  #bars({ id, values, marked, from, to, heads }, theme, { part: width, high }) {
    const count = Math.max(1, values.length);
    const step = Math.min(64, width / count);
    const gap = step >= 6 ? 1.5 : step >= 3 ? 0.5 : 0;
    const middle = high / 2;
    const numbered = step >= VALUES_FROM && high >= 30;
    const now = `${id} ${count} ${width} ${high} ${theme}`;
    if (this.drawn !== now) {
      this.drawn = now;
      let most = 0;
      for (const value of values) if (Number.isFinite(value)) most = Math.max(most, Math.abs(value));
      const scale = (middle - 4) / (most || 1);
      const [wide, back] = [(step - gap).toFixed(1), (gap - step).toFixed(1)];
      this.bar = (i) => {
        const tall = Number.isFinite(values[i]) ? Math.max(0.5, Math.abs(values[i]) * scale) : 0;
        return `M${(i * step).toFixed(1)} ${middle}h${wide}v${(values[i] < 0 ? tall : -tall).toFixed(1)}h${back}z`;
      };
      const paths = { up: "", down: "" };
      for (let i = 0; i < values.length; i++) paths[values[i] < 0 ? "down" : "up"] += this.bar(i);
      attributes(this.svg, { width, height: high });
      attributes(/** @type {Element} */ (this.svg.firstChild), { d: `M0 ${middle}h${(step * count).toFixed(1)}` });
      attributes(this.up, { d: paths.up, fill: css(signedColor(0.35, theme)) });
      attributes(this.down, { d: paths.down, fill: css(signedColor(-0.35, theme)) });
      const text = (/** @type {number} */ value, /** @type {number} */ i) =>
        s("text", {
          class: "n",
          x: i * step + (step - gap) / 2,
          y: middle + (value < 0 ? -5 : 13),
          "text-anchor": "middle",
          text: inCell(value),
        });
      this.texts.replaceChildren(...(numbered ? [...values].map(text) : []));
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
   * @param {import("./follow.js").StepPart & {kind: "keys"}} part
   * @param {Choice} choice
   * @param {number[]} keys
   * @param {Theme} theme
   * @param {RowSizes} sizes
   */
  #keys({ values, weights }, choice, keys, theme, { column }) {
    if (this.cells.length !== keys.length) {
      this.cells = keys.map(() => h("span", { class: "key-cell num" }));
      this.body.replaceChildren(h("div", { class: "by-key" }, ...this.cells));
    }
    this.cells.forEach((cell, i) => {
      const value = values[keys[i]];
      const color = weights && value > 0 ? weightColor(value, theme) : null;
      attributes(cell, {
        text: inCell(value),
        "data-key": keys[i],
        "data-on": keys[i] === choice.key,
        "data-hidden": value === -Infinity || (weights && value === 0),
        style: { width: `${column}px`, background: color ? css(color) : "", color: color ? inkOn(color) : "" },
      });
    });
  }
}

/**
 * A number where there is little room: two decimals, one from 10 on.
 * @param {number} value
 */
function inCell(value) {
  const size = Math.abs(value);
  if (value === 0 || !(size < 1000)) return shortNumber(value);
  return (value < 0 ? MINUS : "") + size.toFixed(size < 10 ? 2 : 1);
}
