// The second head of a comparison: its weights, loaded when they are needed.

import { Names } from "../words/names.js";

/** @import { App } from "../shell/app.js" */
/** @typedef {{number: number, layer: number, head: number}} Chosen a head of a report */

/** Weights of a head, and what they are of. */
export class ComparedHead {
  constructor() {
    this.key = "";
    /** @type {import("../data/page-data.js").Weights | null} */
    this.weights = null;
    this.names = new Names(null, 0, false);
    this.error = "";
  }

  /**
   * Load a head, unless it is here.
   * @param {App} app
   * @param {Chosen} chosen
   * @param {() => void} loaded called when it is here, or an error is
   */
  load(app, { number, layer, head }, loaded) {
    const { words } = app.store.state;
    const key = `${number}.${layer}.${head}.${words}`;
    if (this.key === key) return;
    const report = app.reports.page.reports[number];
    const info = report.layers[layer];
    const { rows, cols } = Names.of(report, info, words);
    Object.assign(this, { key, weights: null, names: rows, error: "" });
    const loading = info.grid
      ? app.longs.get(number, layer, head).then(({ mass }) => mass)
      : app.reports.weights(number, layer, head);
    loading.then(
      (exact) => {
        if (this.key !== key) return;
        const merges = words && !info.grid && rows.known && cols.known;
        this.weights = merges ? exact.merged(rows.unit, cols.unit) : exact;
        loaded();
      },
      (error) => {
        if (this.key !== key) return;
        this.error = error.message;
        loaded();
      },
    );
  }
}
