// Memory: all numbers of a model in one array of float32, so that a WebAssembly kernel and plain JavaScript share them.
//
// A tensor is the offset of its first number. `floats` is made anew when the memory grows, so nobody may keep it.

const PAGE = 65536 / 4; // floats in a page of WebAssembly memory
const ALIGNED = 4; // a vector of SIMD is four floats

export class Memory {
  /** @param {WebAssembly.Memory | null} wasm where the numbers are; null: in an ordinary buffer */
  constructor(wasm = null) {
    this.wasm = wasm;
    this.floats = new Float32Array(wasm ? wasm.buffer : new ArrayBuffer(0));
    this.used = wasm ? this.floats.length : 0; // what a module has in its memory is below
  }

  /** So many numbers will be taken soon: the memory grows once. @param {number} count */
  reserve(count) {
    if (this.used + count > this.floats.length) this.#grow(this.used + count);
  }

  /** Room for so many numbers, all 0. @param {number} count @returns {number} the offset of the first */
  take(count) {
    const offset = this.used;
    this.used += Math.ceil(count / ALIGNED) * ALIGNED;
    if (this.used > this.floats.length) this.#grow(this.used);
    return offset;
  }

  /** @param {number} count */
  #grow(count) {
    const pages = Math.ceil((count - this.floats.length) / PAGE);
    if (this.wasm) {
      this.wasm.grow(pages);
      this.floats = new Float32Array(this.wasm.buffer);
    } else {
      const larger = new Float32Array(this.floats.length + pages * PAGE);
      larger.set(this.floats);
      this.floats = larger;
    }
  }
}
