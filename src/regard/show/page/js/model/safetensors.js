// safetensors: named tensors in one file: the length of a header, the header in JSON, and all numbers after it.

/** @typedef {{dtype: string, shape: number[], data_offsets: [number, number]}} Entry */

/**
 * How the numbers of each dtype become float32.
 * @type {Record<string, (bytes: Uint8Array, into: Float32Array) => void>}
 */
const READERS = {
  F32: (bytes, into) => into.set(new Float32Array(bytes.buffer, bytes.byteOffset, into.length)),
  F16: (bytes, into) => {
    const [codes, table] = [new Uint16Array(bytes.buffer, bytes.byteOffset, into.length), halves()];
    for (let i = 0; i < codes.length; i++) into[i] = table[codes[i]];
  },
  BF16: (bytes, into) => {
    const codes = new Uint16Array(bytes.buffer, bytes.byteOffset, into.length);
    const bits = new Uint32Array(into.buffer, into.byteOffset, into.length);
    for (let i = 0; i < codes.length; i++) bits[i] = codes[i] << 16;
  },
};
const BYTES = /** @type {Record<string, number>} */ ({ F32: 4, F16: 2, BF16: 2 });

/**
 * The tensors of a file. What is damaged is refused: a model of other numbers than its own would look as well.
 * @param {Uint8Array} file
 * @returns {Map<string, {shape: number[], count: number, read: (into: Float32Array) => void}>}
 */
export function readSafetensors(file) {
  const view = new DataView(file.buffer, file.byteOffset, file.byteLength);
  const length = file.byteLength < 8 ? Number.NaN : Number(view.getBigUint64(0, true));
  if (!(8 + length <= file.byteLength)) throw new Error("The model in this page is damaged: its header is cut off.");
  /** @type {Record<string, Entry>} */
  const header = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(file.subarray(8, 8 + length)));
  const tensors = new Map();
  for (const [name, entry] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    const { dtype, shape, data_offsets: [start, end] } = entry; // biome-ignore format: one line
    const count = shape.reduce((product, size) => product * size, 1);
    const first = 8 + length + start;
    if (!READERS[dtype] || end - start !== count * BYTES[dtype] || !(first + end - start <= file.byteLength))
      throw new Error(`The model in this page is damaged: ${name} is not what its header says.`);
    // A copy where it must be: a view of wider numbers starts at a multiple of their size.
    const cut = (file.byteOffset + first) % BYTES[dtype] ? "slice" : "subarray";
    const read = (/** @type {Float32Array} */ into) => READERS[dtype](file[cut](first, first + end - start), into);
    tensors.set(name, { shape, count, read });
  }
  return tensors;
}

/** @type {Float32Array | null} */
let halfTable = null;

/** The value of every float16, by its bits. @returns {Float32Array} */
function halves() {
  return (halfTable ??= Float32Array.from({ length: 65536 }, (_, bits) => {
    const [sign, exponent, fraction] = [bits & 0x8000 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
    if (exponent === 31) return fraction ? Number.NaN : sign * Number.POSITIVE_INFINITY;
    return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024));
  }));
}
