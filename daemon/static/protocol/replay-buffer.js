/**
 * A replay buffer: samples by position, kept until they have their final.
 *
 * After a lost connection the client sends again what has no final yet, so no word is lost. Positions
 * count samples from the beginning of the recording and never change.
 */

const READ_SAMPLES = 1 << 16; // the most that one read returns

export class ReplayBuffer {
  /** @type {{first: number, samples: Int16Array}[]} oldest first, without gaps */
  #chunks = [];
  #capacity;

  /**
   * @param {number} rate samples in a second
   * @param {number} [capacity] the most samples to keep; beyond it the oldest are dropped
   */
  constructor(rate, capacity = Infinity) {
    this.rate = rate;
    this.#capacity = capacity;
    /** The position after the newest sample. */
    this.length = 0;
    /** Whether no sample will follow. */
    this.ended = false;
  }

  /** The position of the oldest sample that is kept. */
  get start() {
    return this.#chunks.length ? this.#chunks[0].first : this.length;
  }

  /** @param {Int16Array} samples the next ones; the buffer keeps the array itself */
  append(samples) {
    if (!samples.length) return;
    this.#chunks.push({ first: this.length, samples });
    this.length += samples.length;
    while (this.length - this.start > this.#capacity && this.#chunks.length > 1) {
      this.#chunks.shift();
    }
  }

  /**
   * Samples from `position` to the end of their chunk; empty at the end of the buffer.
   * @param {number} position not before `start`
   * @param {number} [most] samples
   * @returns {Int16Array}
   */
  read(position, most = READ_SAMPLES) {
    const chunk = this.#chunks.findLast(({ first }) => first <= position);
    if (!chunk) return new Int16Array(0);
    const from = position - chunk.first;
    return chunk.samples.subarray(from, from + most);
  }

  /** @param {number} position chunks that end before it are dropped */
  discard(position) {
    while (this.#chunks.length) {
      const { first, samples } = this.#chunks[0];
      if (first + samples.length > position) break;
      this.#chunks.shift();
    }
  }
}
