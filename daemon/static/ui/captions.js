/**
 * The captions so far: final lines, and lines that are still being spoken.
 *
 * Messages go in and lines come out; this module uses no document, socket or clock. Times are seconds.
 */

/** @import { Message } from "../protocol/resume-state.js" */

/**
 * @typedef {object} Line
 * @property {number} start
 * @property {number} end
 * @property {string} text
 * @property {string} language a code; empty if unknown
 * @property {{text: string, start: number, end: number}[]} [words] when they were said, if the daemon tells
 */

/**
 * @typedef {object} PartialLine words of an utterance without a final
 * @property {number} start
 * @property {string} stable the words that the daemon calls stable
 * @property {string} tentative the words that may still change
 */

export class Captions {
  /** @type {Map<number, PartialLine>} by utterance, in order */
  #partials = new Map();
  #offset = 0; // seconds: where the running session's time begins
  #next = 0; // the first utterance of the session without a final
  #most;

  /** @param {number} [most] lines to keep; beyond it the oldest are dropped */
  constructor(most = Infinity) {
    this.#most = most;
    /** @type {Line[]} final, in order; lines without a word are left out */
    this.lines = [];
  }

  /** All lines without a final: an utterance may begin before the final of the last one arrives. */
  get partials() {
    return [...this.#partials.values()];
  }

  /** @param {number} offset seconds to add to the times of the session that begins */
  startSession(offset) {
    this.#offset = offset;
    this.#partials.clear(); // the new session gets their sound again
    this.#next = 0;
  }

  /** No message will follow. */
  end() {
    this.#partials.clear();
  }

  /**
   * @param {Message} message
   * @returns {Line | null} the line that this message made final
   */
  receive(message) {
    switch (message.type) {
      case "speech":
        if (message.event === "start") this.#startUtterance(message);
        break;
      case "partial":
        this.#setPartial(message.utterance, message.start, message.text, message.stable);
        break;
      case "final":
        this.#partials.delete(message.utterance);
        this.#next = message.utterance + 1;
        return this.#addLine(message);
    }
    return null;
  }

  /** @param {Message} message a `speech`, which a resumed session may repeat */
  #startUtterance({ utterance, at }) {
    if (utterance < this.#next || this.#partials.has(utterance)) return;
    this.#setPartial(utterance, at, "", 0);
  }

  /** @param {number} utterance @param {number} start @param {string} text @param {number} stable */
  #setPartial(utterance, start, text, stable) {
    const characters = [...text]; // the daemon counts code points
    const tentative = characters.slice(stable).join("").trimStart();
    this.#partials.set(utterance, {
      start: this.#offset + start,
      stable: text.slice(0, text.length - tentative.length),
      tentative,
    });
  }

  /** @param {Message} message a final */
  #addLine(message) {
    const text = message.text.trim();
    if (!text) return null;
    /** @type {Line} */
    const line = {
      start: this.#offset + message.start,
      end: this.#offset + message.end,
      text,
      language: message.language,
    };
    if (message.words) {
      line.words = message.words.map((/** @type {{text: string, start: number, end: number}} */ word) => ({
        text: word.text,
        start: this.#offset + word.start,
        end: this.#offset + word.end,
      }));
    }
    this.lines.push(line);
    if (this.lines.length > this.#most) this.lines.shift();
    return line;
  }
}
