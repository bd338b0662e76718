// The guided start: six short stops on the page itself, for who has never seen it. It can be skipped, and is not shown
// again. Where a lesson of the course says the same, it says it in these words.

import { attributes, fill, h } from "../draw/dom.js";

/** @import { LivePage } from "../shell/live-page.js" */
/**
 * text: COPIES and FEEDS stand for heads of this model; go: what the stop shows; isAbove: it is about the bar at the
 * top; copies: it needs a model with a head that copies; do: what a button of it does; done: what is said after that.
 * @typedef {(page: LivePage) => void} Act
 * @typedef {{title: string, text: string, go: Act, isAbove?: boolean, copies?: boolean, do?: [string, Act],
 *   done?: string}} Stop
 */

const SEEN = "regard.tour";
const [COPIES, BEFORE] = [0.4, 0.5]; // weights from which one head copies, and an earlier one looks at what is before
const NARROW = 860; // pixels of a window

/** The head that copies, by the statistic; the first head where none does. @param {LivePage} page */
function copying(page) {
  const { layers } = page.app?.report ?? { layers: [] };
  const all = layers.flatMap(({ heads }, layer) =>
    heads.map(({ means }, head) => ({ layer, head, copies: means.induction ?? -1, before: means.previous ?? -1 })),
  );
  const best = all.reduce((most, one) => (one.copies > most.copies ? one : most), all[0]);
  const earlier = all.filter(({ layer }) => layer < best.layer);
  const feeds = earlier.reduce((most, one) => (one.before > most.before ? one : most), earlier[0] ?? best);
  const found = { copies: best.copies, before: feeds === best ? -1 : feeds.before };
  return { best, feeds: `${feeds.layer}.${feeds.head}`, found };
}

/** @param {LivePage} page @param {Partial<import("../shell/state.js").State>} state */
function show(page, state) {
  page.app?.store.set({ pinned: false, focus: -1, text: -1, step: "", ...state });
}

/** @param {LivePage} page @param {string} view */
function showCopying(page, view) {
  const { layer, head } = copying(page).best;
  show(page, { view, layer, head });
}

/** The text that is said twice. @param {LivePage} page */
const home = (page) => page.settings.examples[0][1];

/** To the text that is said twice, if another one is shown. @param {LivePage} page */
async function atHome(page) {
  const text = home(page);
  if (page.place.text !== text || page.place.cuts.length) await page.see({ text, cuts: [] }, "push");
}

/** @type {Stop[]} */
export const STOPS = [
  {
    title: "A row is a word",
    text:
      "Every word looks at the words before it. Each row of the map is one word that looks, each column one that is " +
      "looked at: dark is much. The weights of one word add up to 1. Point at any word.",
    go: async (page) => {
      await atHome(page);
      showCopying(page, "head");
    },
  },
  {
    title: "A head is one way of looking",
    text:
      "Every head has its own queries, keys and values. Head 4.3 is layer 4, head 3, both counted from 0. " +
      "A role is what a head does on a text.",
    go: async (page) => {
      await atHome(page);
      showCopying(page, "heads");
    },
  },
  {
    title: "The sentence is said twice",
    copies: true,
    text:
      "Head COPIES has noticed. In the second half each word looks at what came after it the first time: the dark " +
      "diagonal. So it can say what comes next. That is called induction.",
    go: async (page) => {
      await atHome(page);
      showCopying(page, "head");
    },
  },
  {
    title: "Cut it",
    copies: true,
    text:
      "How can a word find what came after it? Head FEEDS, earlier, has told every token what stands before it. " +
      "Switch FEEDS off, and see COPIES lose its way.",
    go: async (page) => {
      await atHome(page);
      showCopying(page, "head");
    },
    do: ["cut it", (page) => page.cut([copying(page).feeds])],
    done:
      "FEEDS is off. What COPIES did with it (○) and does without it (●) are side by side: the diagonal fades, " +
      "and with it what the model writes next.",
  },
  {
    title: "Your own words",
    text:
      "All heads are on. Type in the field at the top, and each reads along. Or take a word of what comes next, or " +
      "let the model write on.",
    go: async (page) => {
      if (page.place.cuts.length) await page.cut([]);
      page.box.focus();
      page.box.select();
    },
    isAbove: true,
  },
  {
    title: "The steps, with numbers",
    text:
      "From x to out: every tensor of a layer, and one number followed from top to bottom. " +
      "That is all that attention computes.",
    go: (page) => showCopying(page, "steps"),
  },
];

/** The card, and the button that begins again. */
export class Tour {
  /** @param {LivePage} page */
  constructor(page) {
    this.page = page;
    this.at = 0;
    this.stops = STOPS;
    this.heads = { COPIES: "", FEEDS: "" }; // of this model
    this.before = page.place; // what was shown when it began
    this.title = h("h2");
    this.text = h("p");
    this.act = h("button.act");
    this.act.addEventListener("click", () => this.#act());
    this.back = h("button", { onclick: () => this.go(this.at - 1) }, "back");
    this.next = h("button.act", { onclick: () => this.go(this.at + 1) });
    this.skip = h("button", { onclick: () => this.end() }, "skip");
    this.el = h(
      "section.tour",
      { "aria-label": "guided start" },
      h("div", this.title, this.text),
      h("p.turns", this.next, this.act, this.back, this.skip),
    );
    this.el.hidden = true;
    this.again = h("button.again", { onclick: () => this.go(0) }, "guided start");
    this.el.addEventListener("keydown", (event) => event.key === "Escape" && this.end());
  }

  /** On the first visit, where the address asks for nothing. */
  begin() {
    const isAsked = location.hash.length > 1 || location.search.length > 1;
    if (!isAsked && !wasSeen() && this.page.app) this.go(0);
  }

  /** @param {number} at */
  async go(at) {
    if (at === 0) {
      if (this.el.hidden) this.before = this.page.place;
      await atHome(this.page);
      const { copies, before } = copying(this.page).found;
      const isFound = copies >= COPIES && before >= BEFORE;
      this.stops = STOPS.filter((one) => isFound || !one.copies);
      const { best, feeds } = copying(this.page);
      this.heads = { COPIES: `${best.layer}.${best.head}`, FEEDS: feeds };
    }
    const { stops } = this;
    const stop = stops[at];
    if (!stop) return this.end();
    this.at = at;
    fill(this.title, h("span.num", `${at + 1} of ${stops.length} `), stop.title);
    this.#say(stop.text);
    attributes(this.act, { text: stop.do?.[0] ?? "", hidden: !stop.do });
    attributes(this.next, { text: at + 1 < stops.length ? "next" : "done" });
    this.back.hidden = at === 0;
    this.el.hidden = false;
    remember();
    await stop.go(this.page);
    // on a phone, what is spoken of is below
    const { page } = this;
    const to = stop.isAbove ? page.bar : page.root;
    if (innerWidth < NARROW) to.scrollIntoView({ block: "start" });
  }

  #act() {
    const { do: act, done } = this.stops[this.at];
    act?.[1](this.page);
    if (done) this.#say(done);
    this.act.hidden = true;
  }

  /** @param {string} text */
  #say(text) {
    const { COPIES: copies, FEEDS: feeds } = this.heads;
    attributes(this.text, { text: text.replaceAll("COPIES", copies).replaceAll("FEEDS", feeds) });
  }

  /** Back to the text that was shown before, unless somebody has typed another one since. */
  end() {
    this.el.hidden = true;
    const { page, before } = this;
    if (page.place.text === home(page) && before.text !== home(page)) page.see(before, "push");
  }
}

/** Storage may be forbidden, above all for a file: then the tour is only shown where nothing else is asked for. */
function wasSeen() {
  try {
    return localStorage.getItem(SEEN) !== null;
  } catch {
    return false;
  }
}

function remember() {
  try {
    localStorage.setItem(SEEN, "1");
  } catch {
    // shown once more at the next visit
  }
}
