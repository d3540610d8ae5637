/**
 * The captions so far: lines that are final, and lines that are being spoken.
 *
 * Pure: messages in, lines out; no document, no socket, no clock. Times are seconds.
 */

/** @import { Message } from "./course.js" */

/**
 * @typedef {object} Line
 * @property {number} start
 * @property {number} end
 * @property {string} text
 * @property {string} language a code; empty while it is not known
 */

/**
 * @typedef {object} Spoken a line that is being spoken: the words settled and those that may change
 * @property {number} start
 * @property {string} settled
 * @property {string} tentative
 */

export class Captions {
  /** @type {Map<number, Spoken>} by utterance, in order */
  #spoken = new Map();
  #session = 0; // seconds: where the running session's time begins
  #next = 0; // the first utterance of the session without a final
  #most;

  /** @param {number} [most] lines kept; beyond it the oldest go */
  constructor(most = Infinity) {
    this.#most = most;
    /** @type {Line[]} final, in order; those without a word are left out */
    this.lines = [];
  }

  /** Everything that is being spoken: the next line may begin before the last one is final. */
  get spoken() {
    return [...this.#spoken.values()];
  }

  /** @param {number} offset seconds at which the session that begins has its zero */
  begin(offset) {
    this.#session = offset;
    this.#spoken.clear(); // the new session hears it again
    this.#next = 0;
  }

  /** Nothing more will come. */
  end() {
    this.#spoken.clear();
  }

  /**
   * @param {Message} message
   * @returns {Line | null} the line that this message made final
   */
  heard(message) {
    switch (message.type) {
      case "speech":
        if (message.event === "start") this.#begun(message);
        break;
      case "partial":
        this.#speak(message.utterance, message.start, message.text, message.stable);
        break;
      case "final":
        this.#spoken.delete(message.utterance);
        this.#next = message.utterance + 1;
        return this.#settle(message);
    }
    return null;
  }

  /** @param {Message} message a `speech`, which may come again when a session is resumed */
  #begun({ utterance, at }) {
    if (utterance >= this.#next && !this.#spoken.has(utterance)) this.#speak(utterance, at, "", 0);
  }

  /** @param {number} utterance @param {number} start @param {string} text @param {number} stable */
  #speak(utterance, start, text, stable) {
    const characters = [...text]; // the daemon counts code points
    const rest = characters.slice(stable).join("");
    const tentative = rest.trimStart();
    this.#spoken.set(utterance, {
      start: this.#session + start,
      settled: text.slice(0, text.length - tentative.length),
      tentative,
    });
  }

  /** @param {Message} message a final */
  #settle(message) {
    const text = message.text.trim();
    if (!text) return null;
    const line = {
      start: this.#session + message.start,
      end: this.#session + message.end,
      text,
      language: message.language,
    };
    this.lines.push(line);
    if (this.lines.length > this.#most) this.lines.shift();
    return line;
  }
}
