/**
 * A tape: what was heard, by position, kept until it is settled.
 *
 * A lost connection loses no word because of it: what has no final yet is played again. Positions
 * count samples from the beginning of the tape and never change.
 */

const CHUNK = 1 << 16; // samples: the most that one read gives

export class Tape {
  /** @type {{first: number, samples: Int16Array}[]} oldest first, without gaps */
  #chunks = [];
  #capacity;

  /**
   * @param {number} rate samples in a second
   * @param {number} [capacity] samples kept at most; beyond it the oldest go
   */
  constructor(rate, capacity = Infinity) {
    this.rate = rate;
    this.#capacity = capacity;
    /** Where the tape ends so far. */
    this.length = 0;
    /** Whether nothing will follow. */
    this.ended = false;
  }

  /** The first position that is still kept. */
  get start() {
    return this.#chunks.length ? this.#chunks[0].first : this.length;
  }

  /** @param {Int16Array} samples what was heard next; the tape keeps it as it is */
  append(samples) {
    if (!samples.length) return;
    this.#chunks.push({ first: this.length, samples });
    this.length += samples.length;
    while (this.length - this.start > this.#capacity && this.#chunks.length > 1) {
      this.#chunks.shift();
    }
  }

  /**
   * What follows `position`, as far as it lies together; empty at the end.
   * @param {number} position not before `start`
   * @param {number} [most] samples
   * @returns {Int16Array}
   */
  read(position, most = CHUNK) {
    const chunk = this.#chunks.findLast(({ first }) => first <= position);
    if (!chunk) return new Int16Array(0);
    const from = position - chunk.first;
    return chunk.samples.subarray(from, from + most);
  }

  /** @param {number} position what lies wholly before it is needed no more */
  forget(position) {
    while (this.#chunks.length) {
      const { first, samples } = this.#chunks[0];
      if (first + samples.length > position) break;
      this.#chunks.shift();
    }
  }
}
