// The weights of a head: each row is one number longer than the row before. All are in one array, as an object for each
// row would be many to keep: 48 for every token.

export class Rows {
  constructor() {
    this.length = 0;
    this.floats = new Float32Array(64);
  }

  /** The next row. @param {Float32Array} from @param {number} start where it begins there */
  add(from, start) {
    const at = offset(this.length);
    this.length += 1;
    const end = offset(this.length);
    if (end > this.floats.length) {
      const larger = new Float32Array(Math.max(end, 2 * this.floats.length));
      larger.set(this.floats);
      this.floats = larger;
    }
    for (let key = 0; at + key < end; key++) this.floats[at + key] = from[start + key];
  }

  /** All numbers, one row after another, for somebody else to keep. */
  numbers() {
    return this.floats.slice(0, offset(this.length));
  }

  /** @param {number} i @returns {Float32Array} */
  row(i) {
    return this.floats.subarray(offset(i), offset(i + 1));
  }

  /** @returns {Float32Array[]} */
  all() {
    return Array.from({ length: this.length }, (_, i) => this.row(i));
  }
}

/** @param {number} row */
function offset(row) {
  return (row * (row + 1)) / 2;
}
