/**
 * The resume state of one recording: where each connection begins, and what has its final.
 *
 * This module opens no socket. A connection that breaks is followed by another one, which resumes the
 * session. If the session is gone, a new session gets all sound that has no final yet. A session's
 * times begin at zero; `offset` turns them into times of the recording.
 */

/** @import { ReplayBuffer } from "./replay-buffer.js" */

/**
 * What a client may ask for; docs/protocol.md lists the rest.
 * @typedef {{language: string | null, temperature: number, words?: boolean}} SessionOptions
 */

/**
 * A message of the daemon; its `type` decides which fields it has.
 * @typedef {{type: string, [field: string]: any}} Message
 */

const SAMPLE_BYTES = 2;

export class ResumeState {
  #buffer;
  #options;
  #base = 0; // position at which the session's time begins
  #finalised = 0; // position up to which everything has its final
  #acknowledged = 0; // position up to which the daemon has the sound
  #finals = 0; // of this session
  /**
   * The languages, each from a position on. They are part of what is sent: where the connection breaks,
   * those that came behind what the daemon has heard are sent again.
   * @type {{position: number, language: string | null}[]}
   */
  #languages;
  #sent = 1; // how many of them the session has
  /** @type {{session: string, key: string} | null} the identity that a resumption must show */
  #identity = null;

  /** @param {ReplayBuffer} buffer @param {SessionOptions} options */
  constructor(buffer, options) {
    this.#buffer = buffer;
    this.#options = options;
    this.#languages = [{ position: 0, language: options.language }];
    /** The next position to send. */
    this.cursor = 0;
  }

  /** Seconds to add to a time of the running session. */
  get offset() {
    return this.#base / this.#buffer.rate;
  }

  /** The session that may be resumed; null if a new one must begin. */
  get session() {
    return this.#identity && this.#identity.session;
  }

  /** Seconds of sound that were sent and that the daemon has not acknowledged. */
  get unacknowledged() {
    return (this.cursor - this.#acknowledged) / this.#buffer.rate;
  }

  /** Whether the buffer has dropped samples that were not sent. */
  get overrun() {
    return this.cursor < this.#buffer.start;
  }

  /** @param {string | null} language of what comes behind the newest sample; null: to be detected */
  changeLanguage(language) {
    this.#languages.push({ position: this.#buffer.length, language });
  }

  /** How many samples may be sent before the next change of language. */
  get untilChange() {
    const change = this.#languages[this.#sent];
    return change ? change.position - this.cursor : Infinity;
  }

  /** The message for the change of language that is due; it counts as sent. */
  takeChange() {
    const { language } = this.#languages[this.#sent++];
    return { type: "configure", language };
  }

  /** The first message of a connection: `resume` or `start`. */
  hello() {
    if (this.#identity) {
      const heard = Math.max(0, this.#buffer.start - this.#base) * SAMPLE_BYTES;
      return { type: "resume", ...this.#identity, finals: this.#finals, heard };
    }
    const { rate } = this.#buffer;
    const { language } = this.#languages[this.#changesBefore(this.#next + 1) - 1];
    return { type: "start", encoding: "s16le", rate, resumable: true, ...this.#options, language };
  }

  /** The position at which a new session would begin. */
  get #next() {
    return Math.max(this.#finalised, this.#buffer.start);
  }

  /** @param {number} position @returns {number} how many languages begin before it, one at least */
  #changesBefore(position) {
    return Math.max(1, this.#languages.filter((one) => one.position < position).length);
  }

  /** The session has ended or is gone: the next one is new. */
  endSession() {
    this.#identity = null;
  }

  /**
   * The daemon has answered `hello`: choose the next position to send.
   * @param {Message} ready the answer
   * @returns {{resumed: boolean, lost: number}} lost: seconds of sound that no session gets, because
   *   the interruption was longer than the buffer
   */
  begin(ready) {
    if (this.#identity) {
      this.cursor = this.#acknowledged = this.#base + ready.heard / SAMPLE_BYTES;
      this.#sent = this.#changesBefore(this.cursor); // one at the very place may have been lost
      return { resumed: true, lost: 0 };
    }
    const lost = Math.max(0, this.#buffer.start - this.#finalised);
    this.#base = this.cursor = this.#acknowledged = this.#next;
    this.#sent = this.#changesBefore(this.#base + 1);
    this.#finals = 0;
    this.#identity = ready.key && { session: ready.session, key: ready.key };
    return { resumed: false, lost: lost / this.#buffer.rate };
  }

  /** @param {Message} message of the running session */
  update(message) {
    if (message.type === "heard") this.#acknowledged = this.#base + message.bytes / SAMPLE_BYTES;
    if (message.type !== "final") return;
    this.#finals += 1;
    this.#finalised = this.#base + Math.round(message.end * this.#buffer.rate);
    this.#buffer.discard(this.#finalised);
  }
}
