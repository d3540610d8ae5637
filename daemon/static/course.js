/**
 * How one tape runs through as many sessions as it takes: where each begins, what is settled.
 *
 * No socket here. A session's own times begin at zero; `offset` turns them into times of the tape.
 */

/** @import { Tape } from "./tape.js" */

/**
 * What a client may ask for; docs/protocol.md has the rest.
 * @typedef {{language: string | null, temperature: number}} Wishes
 */

/**
 * A message of the daemon: its fields are those of its `type`.
 * @typedef {{type: string, [field: string]: any}} Message
 */

export class Course {
  #tape;
  #wishes;
  #base = 0; // where on the tape the session's own time begins
  #settled = 0; // up to here everything has its final

  /** @param {Tape} tape @param {Wishes} wishes */
  constructor(tape, wishes) {
    this.#tape = tape;
    this.#wishes = wishes;
    /** The next position to send. */
    this.cursor = 0;
  }

  /** Seconds to add to a time of the running session. */
  get offset() {
    return this.#base / this.#tape.rate;
  }

  /** The first message of a connection. */
  hello() {
    return { type: "start", encoding: "s16le", rate: this.#tape.rate, ...this.#wishes };
  }

  /**
   * A session has begun: choose where it goes on. It hears again what has no final yet, so that
   * neither is a word lost nor written twice.
   * @returns {number} seconds that nobody will hear: the tape was too short for the interruption
   */
  begin() {
    const lost = Math.max(0, this.#tape.start - Math.max(this.cursor, this.#settled));
    this.#base = this.cursor = Math.max(this.#settled, this.#tape.start);
    return lost / this.#tape.rate;
  }

  /** @param {Message} message of the running session */
  heard(message) {
    if (message.type !== "final") return;
    this.#settled = this.#base + Math.round(message.end * this.#tape.rate);
    this.#tape.forget(this.#settled);
  }
}
