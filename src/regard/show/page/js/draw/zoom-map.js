// A map of a long text that can be zoomed: from the whole text down to single weights. Beside it the entropy of every
// query, below it what every key receives.

import { abs, floor, isMissing, max, min, sqrt } from "../data/math.js";
import { paintBroken, pixelImage, weightColor } from "./color.js";
import { attributes, fill, finish, h, isPlain, mapGrid, moveIn, s, sizedContext, styles } from "./dom.js";
import { paintRibbon, paintSingle, RIBBON } from "./zoom-paint.js";

/** @import { LongHead } from "../data/long-head.js" */
/** @import { ZoomOptions } from "./zoom-paint.js" */
/**
 * @typedef {{query: number, key: number, queries: [number, number], keys: [number, number]}} Spot a place on the map:
 *   one query and key, and the block of tokens around them that one cell shows
 */

const SINGLE = 3; // pixels of a token from which single weights are drawn instead of blocks
const LARGEST = 22; // pixels of a token at the closest
const DRAG = 4; // pixels that a drag must move, to be no click
const STEP = 1.5; // of one zoom

/** 12 or 1.5. @param {number} value */
function shortest(value) {
  return value >= 10 ? value.toFixed(0) : value.toFixed(1);
}

/** The map, its margins and the part of the text that it shows. */
export class ZoomMap {
  /**
   * @param {{point: (spot: Spot) => void, leave: () => void, pick: (spot: Spot) => void, moved: () => void, label:
   *   string}} events
   */
  constructor(events) {
    this.events = events;
    /** @type {LongHead | null} */
    this.long = null;
    /** @type {ZoomOptions} */
    this.options = { size: 0, theme: "light", triangle: false, bar: "" };
    /** @type {import("./zoom-paint.js").ZoomPart} */
    this.part = { row: 0, col: 0, span: 1 };
    /** The grid as an image, for each number of cells drawn as one. @type {Map<number, OffscreenCanvas>} */
    this.images = new Map();
    this.canvas = /** @type {HTMLCanvasElement} */ (h("canvas"));
    this.entropy = /** @type {HTMLCanvasElement} */ (h("canvas.entropy"));
    this.received = /** @type {HTMLCanvasElement} */ (h("canvas.received"));
    this.outline = s("rect.outline", { visibility: "hidden" });
    this.rings = s("g.rings");
    this.over = s("svg.over", { "aria-hidden": true }, this.outline, this.rings);
    this.cell = h("span.map-cell", { role: "gridcell", tabindex: "0" });
    this.grid = mapGrid(this.cell, events.label);
    this.titles = [h("span.ribbon-title"), h("span.ribbon-title.below")];
    this.el = h("div.zoom-map", this.canvas, this.entropy, this.received, this.over, this.grid, ...this.titles);
    this.query = -1;
    this.key = -1;
    this.most = 1; // that a key receives
    this.#listen();
  }

  /** Pixels of a token. */
  get scale() {
    const { long, part, options } = this;
    return long ? options.size / (max(long.T, long.S) * part.span) : 1;
  }

  /** Are single weights drawn, or blocks? */
  get single() {
    return this.long !== null && (this.long.block === 1 || this.scale >= SINGLE);
  }

  /** How many cells of the grid are drawn as one, each way. */
  get factor() {
    const { long, part, options } = this;
    const cells = long ? max(long.mass.T, long.mass.S) * part.span : 1;
    let factor = 1;
    while (cells / factor > options.size * max(1, globalThis.devicePixelRatio || 1)) factor *= 2;
    return factor;
  }

  /** @param {LongHead} long @param {ZoomOptions} options */
  draw(long, options) {
    if (this.long !== long || this.options.theme !== options.theme) this.images.clear();
    if (this.long && (this.long.T !== long.T || this.long.S !== long.S)) this.part = { row: 0, col: 0, span: 1 };
    this.long = long;
    this.options = options;
    const { size } = options;
    styles(this.el, { width: size + RIBBON + 8, height: size + RIBBON + 24 });
    for (const one of [this.over, this.grid]) styles(one, { width: size, height: size });
    styles(this.entropy, { left: size + 8, top: "0" });
    styles(this.received, { left: "0", top: size + 8 });
    styles(this.titles[0], { left: size + 8, top: size + 4 });
    styles(this.titles[1], { left: "0", top: size + RIBBON + 8 });
    attributes(this.titles[0], { text: "entropy" });
    this.most = long.received.reduce((most, value) => (value > most ? value : most), 0);
    attributes(this.titles[1], {
      text: `received, at most ${shortest(this.most)} (log scale)`,
    });
    attributes(this.grid, { "aria-rowcount": long.T, "aria-colcount": long.S });
    this.#paint();
  }

  /**
   * Outline a query and ring its keys; -1 is none.
   * @param {number} query
   * @param {number} key the one pointed at
   * @param {{key: number, weight: number}[]} keys
   * @param {string} said what a screen reader says of the place
   */
  focus(query, key, keys, said) {
    this.query = query;
    this.key = key;
    const { long, options, part } = this;
    if (!long) return;
    const y = ((query / long.T - part.row) / part.span) * options.size;
    const x = (/** @type {number} */ at) => ((at / long.S - part.col) / part.span) * options.size;
    const height = max(3, this.scale);
    const last = options.triangle ? query + 1 + long.S - long.T : long.S;
    attributes(this.outline, {
      visibility: query >= 0 ? "visible" : "hidden",
      x: x(0) - 0.5,
      y: y - (height > this.scale ? 1 : 0),
      height,
      width: max(0, x(last) - x(0)) + 1,
    });
    const middle = y + this.scale / 2;
    fill(
      this.rings,
      ...(query < 0 ? [] : keys)
        .filter(({ weight }) => weight >= 0.01)
        .map(({ key, weight }) => s("circle", { cx: x(key + 0.5), cy: middle, r: 3 + 4 * sqrt(weight) })),
    );
    styles(this.cell, { left: x(max(0, key)), top: y, width: height, height: height });
    attributes(this.cell, { "aria-rowindex": max(0, query) + 1, "aria-colindex": max(0, key) + 1, "aria-label": said });
  }

  /**
   * Zoom in (by more than 1) or out, about a point of the map.
   * @param {number} by
   * @param {number} [x] 0 to 1
   * @param {number} [y]
   */
  zoom(by, x = 0.5, y = 0.5) {
    const { long, options, part } = this;
    if (!long) return false;
    const least = min(1, options.size / (max(long.T, long.S) * LARGEST));
    const span = min(1, max(least, part.span / by));
    if (span === part.span) return false;
    this.#show(part.row + y * (part.span - span), part.col + x * (part.span - span), span);
    return true;
  }

  /** Show the whole text. */
  whole() {
    this.#show(0, 0, 1);
  }

  /** Move so that a place is shown. @param {number} query @param {number} key */
  follow(query, key) {
    const { long, part } = this;
    if (!long) return;
    const into = (/** @type {number} */ at, /** @type {number} */ from) =>
      at < from ? at : at > from + part.span ? at - part.span : from;
    const [row, col] = [into((query + 0.5) / long.T, part.row), into((key + 0.5) / long.S, part.col)];
    if (row !== part.row || col !== part.col) this.#show(row, col, part.span);
  }

  /** @param {number} row @param {number} col @param {number} span */
  #show(row, col, span) {
    const inside = (/** @type {number} */ at) => min(1 - span, max(0, at));
    this.part = { row: inside(row), col: inside(col), span };
    this.#paint();
    this.events.moved();
  }

  /** @param {import("../data/page-data.js").Weights} weights */
  #image({ T, S, values }) {
    return pixelImage(S, T, values, (value) => (isMissing(value) ? null : weightColor(value, this.options.theme)));
  }

  #paint() {
    const { long, options, part } = this;
    if (!long) return;
    const { size } = options;
    const { row, col, span } = part;
    const context = sizedContext(this.canvas, size, size);
    context.clearRect(0, 0, size, size);
    if (this.single && long.block > 1) paintSingle(context, long, part, options, this.scale);
    else {
      const factor = this.factor;
      const [across, down] = [long.mass.S / factor, long.mass.T / factor];
      const image = this.images.get(factor) ?? this.#image(long.level(factor));
      this.images.set(factor, image);
      context.drawImage(image, col * across, row * down, span * across, span * down, 0, 0, size, size);
    }
    for (const [first, last] of options.broken ?? []) {
      const y = (/** @type {number} */ at) => ((at / long.T - row) / span) * size;
      paintBroken(context, y(first), y(last + 1) - y(first), size, options.theme);
    }
    const most = Math.log(max(2, long.S));
    paintRibbon(this.entropy, long.entropy, options, { from: row, span, most, down: true });
    const received = { from: col, span, most: Math.log1p(this.most) || 1, down: false };
    paintRibbon(this.received, long.received.map(Math.log1p), options, received);
    this.grid.style.touchAction = part.span < 1 ? "none" : "pan-y";
  }

  /**
   * The place under a point of the map.
   * @param {number} x 0 to 1
   * @param {number} y
   * @returns {Spot | null}
   */
  #spot(x, y) {
    const { long, part } = this;
    if (!long || x < 0 || y < 0 || x >= 1 || y >= 1) return null;
    const place = {
      query: floor((part.row + y * part.span) * long.T),
      key: floor((part.col + x * part.span) * long.S),
    };
    return this.#around(place.query, place.key);
  }

  /** A place, and the block around it that one cell shows. @param {number} query @param {number} key @returns {Spot} */
  #around(query, key) {
    const long = /** @type {LongHead} */ (this.long);
    if (this.single && this.factor === 1) return { query, key, queries: [query, query + 1], keys: [key, key + 1] };
    const { row, col } = long.cell(query, key);
    const edges = (/** @type {number} */ at, /** @type {number} */ size, /** @type {number} */ cells) => {
      const first = floor(at / this.factor) * this.factor;
      return /** @type {[number, number]} */ (
        [first, min(cells, first + this.factor)].map((cell) => floor((cell * size) / cells))
      );
    };
    const [queries, keys] = [edges(row, long.T, long.mass.T), edges(col, long.S, long.mass.S)];
    return { query: long.tellingQuery(queries, keys), key, queries, keys };
  }

  #listen() {
    const { grid, events } = this;
    /** @type {{x: number, y: number, row: number, col: number, moved: boolean} | null} */
    let drag = null;
    const place = (/** @type {MouseEvent} */ event) => {
      const box = grid.getBoundingClientRect();
      return { x: (event.clientX - box.left) / box.width, y: (event.clientY - box.top) / box.height };
    };
    grid.addEventListener("pointerdown", (event) => {
      drag = { x: event.clientX, y: event.clientY, row: this.part.row, col: this.part.col, moved: false };
    });
    grid.addEventListener("pointermove", (event) => {
      if (drag && event.buttons && this.part.span < 1) {
        const [dx, dy] = [event.clientX - drag.x, event.clientY - drag.y];
        if (!drag.moved && Math.hypot(dx, dy) < DRAG) return;
        if (!drag.moved) grid.setPointerCapture(event.pointerId);
        drag.moved = true;
        const { span } = this.part;
        this.#show(drag.row - (dy / this.options.size) * span, drag.col - (dx / this.options.size) * span, span);
        return;
      }
      const { x, y } = place(event);
      const spot = this.#spot(x, y);
      if (spot) events.point(spot);
    });
    grid.addEventListener("pointerleave", () => events.leave());
    grid.addEventListener("click", (event) => {
      const dragged = drag?.moved;
      drag = null;
      const { x, y } = place(event);
      const spot = dragged ? null : this.#spot(x, y);
      if (spot) events.pick(spot);
    });
    grid.addEventListener(
      "wheel",
      (event) => {
        const { x, y } = place(event);
        // nothing to zoom out of: the page scrolls
        if (!event.deltaY || (event.deltaY > 0 && this.part.span === 1)) return;
        event.preventDefault();
        this.zoom(STEP ** (-Math.sign(event.deltaY) * min(1, abs(event.deltaY) / 60)), x, y);
      },
      { passive: false },
    );
    this.cell.addEventListener("keydown", (event) => this.#key(event));
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const { long } = this;
    if (!long || !isPlain(event)) return;
    const [query, key] = [max(0, this.query), max(0, this.key)];
    const by = this.single && this.factor === 1 ? 1 : long.block * this.factor;
    const clamp = (/** @type {number} */ at, /** @type {number} */ size) => min(size - 1, max(0, at));
    const to = moveIn(event.key, query, key, long.S - 1, by);
    if (to) {
      const [q, k] = [clamp(to[0], long.T), clamp(to[1], long.S)];
      this.follow(q, k);
      this.events.point({ query: q, key: k, queries: [q, q + 1], keys: [k, k + 1] });
    } else if (event.key === "+" || event.key === "=") this.zoom(STEP);
    else if (event.key === "-") this.zoom(1 / STEP);
    else if (event.key === "0") this.whole();
    else if (event.key === "Enter" || event.key === " ") this.events.pick(this.#around(query, key));
    else return;
    finish(event);
  }
}
