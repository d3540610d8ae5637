/**
 * How one tape runs through as many connections as it takes: where each begins, what is settled.
 *
 * No socket here. A session that outlives its connection is resumed; where it is gone, a new one
 * hears again what has no final yet. A session's own times begin at zero; `offset` turns them into
 * times of the tape.
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

const SAMPLE_BYTES = 2;

export class Course {
  #tape;
  #wishes;
  #base = 0; // where on the tape the session's own time begins
  #settled = 0; // up to here everything has its final
  #confirmed = 0; // up to here the daemon has said to have the sound
  #finals = 0; // of this session
  /** @type {{session: string, key: string} | null} what a resumption must bring */
  #pass = null;

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

  /** The session that may be resumed; null where a new one has to begin. */
  get session() {
    return this.#pass && this.#pass.session;
  }

  /** Seconds of sound that were sent, and that the daemon has not said to have. */
  get unconfirmed() {
    return (this.cursor - this.#confirmed) / this.#tape.rate;
  }

  /** Whether the tape has let go of what is to be sent next. */
  get outrun() {
    return this.cursor < this.#tape.start;
  }

  /** The first message of a connection. */
  hello() {
    if (this.#pass) {
      const heard = Math.max(0, this.#tape.start - this.#base) * SAMPLE_BYTES;
      return { type: "resume", ...this.#pass, finals: this.#finals, heard };
    }
    const { rate } = this.#tape;
    return { type: "start", encoding: "s16le", rate, resumable: true, ...this.#wishes };
  }

  /** The session is over, or is gone: the next one is new. */
  drop() {
    this.#pass = null;
  }

  /**
   * The session is there: choose where to go on.
   * @param {Message} ready the answer to `hello`
   * @returns {{resumed: boolean, lost: number}} lost: seconds of sound that nobody will hear, for the
   *   interruption was longer than the tape
   */
  begin(ready) {
    if (this.#pass) {
      this.cursor = this.#confirmed = this.#base + ready.heard / SAMPLE_BYTES;
      return { resumed: true, lost: 0 };
    }
    const lost = Math.max(0, this.#tape.start - this.#settled);
    this.#base = this.cursor = this.#confirmed = Math.max(this.#settled, this.#tape.start);
    this.#finals = 0;
    this.#pass = ready.key && { session: ready.session, key: ready.key };
    return { resumed: false, lost: lost / this.#tape.rate };
  }

  /** @param {Message} message of the running session */
  heard(message) {
    if (message.type === "heard") this.#confirmed = this.#base + message.bytes / SAMPLE_BYTES;
    if (message.type !== "final") return;
    this.#finals += 1;
    this.#settled = this.#base + Math.round(message.end * this.#tape.rate);
    this.#tape.forget(this.#settled);
  }
}
