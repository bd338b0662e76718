// What was decoded last, so that it is not decoded again.

/**
 * Promises by key, the last used kept; one that fails is forgotten.
 * @template T
 */
export class PromiseCache {
  /** @param {number} most how many are kept */
  constructor(most) {
    this.most = most;
    /** @type {Map<string, Promise<T>>} */
    this.kept = new Map();
  }

  /** @param {string} key @param {() => Promise<T>} make @returns {Promise<T>} */
  get(key, make) {
    const { kept } = this;
    let promise = kept.get(key);
    if (!promise) {
      promise = make();
      promise.catch(() => kept.delete(key));
    }
    kept.delete(key); // the last used comes last
    kept.set(key, promise);
    for (const old of kept.keys()) if (kept.size > this.most) kept.delete(old);
    return promise;
  }
}
