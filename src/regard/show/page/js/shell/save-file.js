// Export: what a view shows as one SVG file with selectable text, or as a PNG of it.

import { max, min, round } from "../data/math.js";
import { Drawing } from "./dom-to-svg.js";

const MARGIN = 24;
const DENSITY = 2; // pixels of the PNG for one of the page

/**
 * These elements as an SVG.
 * @param {Element[]} elements @param {{background: string, title: string}} options @returns {string}
 */
export function svgOf(elements, { background, title }) {
  const boxes = elements.filter((one) => one.getClientRects().length).map((one) => one.getBoundingClientRect());
  const [left, top] = [min(...boxes.map((box) => box.left)), min(...boxes.map((box) => box.top))];
  const [right, bottom] = [max(...boxes.map((box) => box.right)), max(...boxes.map((box) => box.bottom))];
  const page = {
    x: left - MARGIN,
    y: top - MARGIN,
    width: right - left + 2 * MARGIN,
    height: bottom - top + 2 * MARGIN,
  };
  const drawing = new Drawing(page);
  for (const one of elements) drawing.add(one, page);
  return new XMLSerializer().serializeToString(drawing.finish(background, title));
}

/** An SVG as a PNG. @param {string} svg @returns {Promise<Blob>} */
export async function pngOf(svg) {
  const url = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = url;
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = round(image.naturalWidth * DENSITY);
    canvas.height = round(image.naturalHeight * DENSITY);
    canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((resolve, reject) =>
      canvas.toBlob(
        (blob) => (blob ? resolve(blob) : reject(new Error("The picture is too large for a PNG; save it as SVG."))),
        "image/png",
      ),
    );
  } finally {
    URL.revokeObjectURL(url);
  }
}

/** Hand a file to the person. @param {Blob} blob @param {string} name */
export function download(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = document.createElement("a");
  Object.assign(link, { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** The name of a file: "tiny-head-4.3.svg". @param {string[]} parts @param {string} kind @returns {string} */
export function fileName(parts, kind) {
  const clean = parts
    .map((part) =>
      part
        .replace(/[^\p{L}\p{N}.]+/gu, "-")
        .replace(/^[-.]+|[-.]+$/g, "")
        .slice(0, 60),
    )
    .filter(Boolean);
  return `${clean.join("-") || "regard"}.${kind}`;
}

/**
 * The weights of the word in focus as a table, and the name of the file. Of a long text, those that the page holds.
 * @param {import("./app.js").App} app @returns {[Blob, string]}
 */
export function rowFile({ weights, long, rows, cols, shown, report, store }) {
  const { side, unit } = shown;
  if (unit < 0) throw new Error("Choose a word first: its weights are the table.");
  const others = side === "query" ? cols : rows;
  const line = weights
    ? [...weights.line(side, unit)].map((weight, at) => ({ at, weight }))
    : side === "query"
      ? (long?.top(unit) ?? []).map(({ key, weight }) => ({ at: key, weight }))
      : (long?.lookers(unit) ?? []).map(({ query, weight }) => ({ at: query, weight }));
  const lines = line
    .filter(({ weight }) => !Number.isNaN(weight))
    .map(({ at, weight }) => `${others.first[at]},${quoted(others.names[at])},${weight.toFixed(6)}`);
  const text = ["position,token,weight", ...lines].join("\r\n");
  const { layer, head } = store.state;
  const word = (side === "query" ? rows : cols).label(unit);
  const name = fileName([report.title, `${layer}.${head}`, side === "query" ? "looks" : "receives", word], "csv");
  return [new Blob([`${text}\r\n`], { type: "text/csv" }), name];
}

/** A field of a table. @param {string} text */
function quoted(text) {
  return `"${text.replaceAll('"', '""')}"`;
}

/** Copy the address of what is shown; of a file its name, because its folder is nobody else's. Says what is copied. */
export async function copyLink() {
  const { href, protocol, pathname, hash } = location;
  const isFile = protocol === "file:";
  const link = isFile ? `${decodeURIComponent(pathname.split("/").pop() ?? "")}${hash}` : href;
  try {
    await navigator.clipboard.writeText(link);
    return isFile ? `Copied: ${link}. Send the file with it.` : `Copied: ${link}`;
  } catch {
    return `This browser does not let a page copy. The link: ${link}`;
  }
}
