/**
 * One run: a tape on its way into captions, and what the page says meanwhile.
 */

import { Client } from "./client.js";
import { lost, Problem } from "./problems.js";

/** @import { Captions } from "./captions.js" */
/** @import { Message, Wishes } from "./course.js" */
/** @import { Microphone } from "./microphone.js" */
/** @import { Tape } from "./tape.js" */
/** @import { View } from "./view.js" */

const TWICE_MS = 1_000; // a press so soon after the first one is no second wish
const LOOK_MS = 1_000; // no event tells of what does not come
const SILENT_MS = 5_000; // of a microphone, before the page wonders
const SILENT_PEAK = 0.001; // -60 dBFS
const BEHIND_S = 2; // of a `lag` message: below it the service has caught up

export class Run {
  #tape;
  #view;
  #captions;
  #origin;
  #client;
  /** @type {Microphone | null} */
  #microphone = null;
  /** @type {"connecting" | "going" | "waiting"} */
  #state = "connecting";
  #stopping = 0; // since when, by the clock; 0: not yet
  #asleep = false; // the browser gives no sound
  #reached = 0; // seconds of the tape that have their captions
  #lag = 0; // seconds
  #loud = Date.now(); // when a sound was last heard

  /**
   * @param {Tape} tape
   * @param {Wishes} wishes
   * @param {{view: View, captions: Captions, origin: number}} place where captions go; origin: the
   *   time, in seconds, that the beginning of the tape has there
   */
  constructor(tape, wishes, { view, captions, origin }) {
    this.#tape = tape;
    this.#view = view;
    this.#captions = captions;
    this.#origin = origin;
    this.#client = new Client(tape, wishes, {
      begun: (offset, unheard) => this.#begun(offset, unheard),
      resumed: () => this.#resumed(),
      heard: (message, offset) => this.#heard(message, offset),
      waiting: (problem) => this.#wait(problem),
    });
  }

  /** Let the microphone hear again, where the browser wants a click or a key first. */
  wake() {
    this.#microphone?.wake();
  }

  /**
   * Until the last caption, or until `stop` was asked for twice.
   * @param {Microphone} [microphone] that records the tape
   * @throws {Problem} if the service cannot do it
   */
  async finish(microphone) {
    this.#microphone = microphone ?? null;
    this.#describe();
    const look = setInterval(() => this.#describe(), LOOK_MS);
    try {
      await microphone?.record({
        awake: () => this.#sleep(false),
        asleep: () => this.#sleep(true),
        more: () => this.#client.advance(),
        level: (peak) => this.#level(peak),
        gone: (problem) => {
          this.#view.notice(problem);
          this.stop();
        },
      });
      await this.#client.run();
    } finally {
      clearInterval(look);
      await microphone?.close();
      this.#captions.end();
      this.#view.speak([]);
    }
  }

  /**
   * End of the sound. What a microphone has recorded is still written down, unless this is asked
   * for again; the rest of a file is not.
   */
  stop() {
    const now = Date.now();
    if (now - this.#stopping < TWICE_MS) return;
    if (this.#stopping || !this.#microphone) {
      this.#client.abandon();
      return;
    }
    this.#stopping = now;
    this.#view.controls({ running: true, listening: false, label: "Drop the rest" });
    this.#describe();
    this.#microphone.close().then(() => this.#client.advance());
  }

  /** @param {number} offset @param {number} unheard seconds of both */
  #begun(offset, unheard) {
    this.#captions.begin(this.#origin + offset);
    this.#resumed();
    if (unheard) this.#view.notice(lost(unheard));
  }

  #resumed() {
    if (this.#state === "waiting") this.#view.notice(null);
    this.#state = "going";
    this.#lag = 0;
    this.#describe();
  }

  /** @param {Problem} problem */
  #wait(problem) {
    this.#view.notice(problem, { mild: true });
    this.#state = "waiting";
    this.#describe();
  }

  /** @param {Message} message @param {number} offset seconds */
  #heard(message, offset) {
    const line = this.#captions.heard(message);
    if (line) this.#view.add(line);
    if (message.type === "final") this.#reached = offset + message.end;
    if (message.type === "lag") this.#lag = message.seconds;
    if (message.type === "error" && message.code === "decode_failed") {
      this.#view.notice(new Problem("One sentence could not be written down.", message.message));
    }
    this.#view.speak(this.#captions.spoken);
    this.#describe();
  }

  /** @param {number} peak from 0 to 1 */
  #level(peak) {
    this.#view.level(peak);
    if (peak > SILENT_PEAK) this.#loud = Date.now();
  }

  /** @param {boolean} asleep */
  #sleep(asleep) {
    this.#asleep = asleep;
    this.#describe();
  }

  #describe() {
    this.#view.status(...this.#words());
  }

  /** @returns {[text: string, figure?: string]} */
  #words() {
    if (this.#state === "waiting") return ["Waiting for the service"];
    if (this.#stopping) return ["Writing down the rest"];
    if (this.#state === "connecting") return ["Connecting"];
    if (this.#asleep) return ["The browser has paused the sound: click anywhere"];
    if (this.#lag >= BEHIND_S) return ["Behind", `by ${Math.round(this.#lag)} s`];
    if (!this.#microphone) {
      const share = (this.#reached * this.#tape.rate) / (this.#tape.length || 1);
      return ["Reading", `${Math.floor(100 * share)} %`];
    }
    return [Date.now() - this.#loud > SILENT_MS ? "Listening, but no sound comes in" : "Listening"];
  }
}
