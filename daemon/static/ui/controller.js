/**
 * The controller of one recording: it runs the client, and shows its captions and its status.
 */

import { Client } from "../protocol/client.js";
import { Problem, soundLost } from "../protocol/problems.js";

/** @import { Microphone } from "../audio/microphone.js" */
/** @import { ReplayBuffer } from "../protocol/replay-buffer.js" */
/** @import { Message, SessionOptions } from "../protocol/resume-state.js" */
/** @import { Captions } from "./captions.js" */
/** @import { View } from "./view.js" */

const DOUBLE_MS = 1_000; // a second press within this time belongs to the first one
const UPDATE_MS = 1_000; // no event tells that no sound comes in
const SILENT_MS = 5_000; // of a microphone, after which the status says so
const SILENT_PEAK = 0.001; // -60 dBFS
const BEHIND_S = 2; // of a `lag` message; with less the service keeps up

export class Controller {
  #buffer;
  #view;
  #captions;
  #origin;
  #client;
  /** @type {Microphone | null} */
  #microphone = null;
  /** @type {"connecting" | "open" | "waiting"} */
  #connection = "connecting";
  #stoppedAt = 0; // milliseconds since 1970; 0: not stopped
  #suspended = false; // the browser gives no sound
  #captioned = 0; // seconds of the buffer that have their finals
  #lag = 0; // seconds
  #lastSound = Date.now(); // when the microphone last gave more than silence

  /**
   * @param {ReplayBuffer} buffer
   * @param {SessionOptions} options
   * @param {{view: View, captions: Captions, origin: number}} target origin: the caption time, in
   *   seconds, at which the buffer begins
   */
  constructor(buffer, options, { view, captions, origin }) {
    this.#buffer = buffer;
    this.#view = view;
    this.#captions = captions;
    this.#origin = origin;
    this.#client = new Client(buffer, options, {
      started: (offset, lost) => this.#onStarted(offset, lost),
      resumed: () => this.#onOpen(),
      message: (message, offset) => this.#onMessage(message, offset),
      waiting: (problem) => this.#onWaiting(problem),
    });
  }

  /** @param {string | null} language of what is said from now on; null: to be detected */
  changeLanguage(language) {
    this.#client.changeLanguage(language);
  }

  /** The user has clicked or pressed a key: the browser may now allow the microphone's sound. */
  activate() {
    this.#microphone?.activate();
  }

  /**
   * Run until the last caption, or until the second `stop`.
   * @param {Microphone} [microphone] records into the buffer
   * @throws {Problem} if the service does not serve this session
   */
  async run(microphone) {
    this.#microphone = microphone ?? null;
    this.#showStatus();
    const update = setInterval(() => this.#showStatus(), UPDATE_MS);
    try {
      await microphone?.record({
        running: () => this.#setSuspended(false),
        suspended: () => this.#setSuspended(true),
        data: () => this.#client.advance(),
        level: (peak) => this.#onLevel(peak),
        ended: (problem) => {
          this.#view.notice(problem);
          this.stop();
        },
      });
      await this.#client.run();
    } finally {
      clearInterval(update);
      await microphone?.close();
      this.#captions.end();
      this.#view.showPartials([]);
    }
  }

  /**
   * End the recording. A microphone's sound still gets its captions, unless `stop` is called again;
   * the rest of a file is dropped at once.
   */
  stop() {
    const now = Date.now();
    if (now - this.#stoppedAt < DOUBLE_MS) return;
    if (this.#stoppedAt || !this.#microphone) {
      this.#client.abort();
      return;
    }
    this.#stoppedAt = now;
    this.#view.controls({ running: true, listening: false, label: "Drop the rest" });
    this.#showStatus();
    this.#microphone.close().then(() => this.#client.advance());
  }

  /** @param {number} offset @param {number} lost both in seconds */
  #onStarted(offset, lost) {
    this.#captions.startSession(this.#origin + offset);
    this.#onOpen();
    if (lost) this.#view.notice(soundLost(lost));
  }

  #onOpen() {
    if (this.#connection === "waiting") this.#view.notice(null);
    this.#connection = "open";
    this.#lag = 0;
    this.#showStatus();
  }

  /** @param {Problem} problem */
  #onWaiting(problem) {
    this.#view.notice(problem, { mild: true });
    this.#connection = "waiting";
    this.#showStatus();
  }

  /** @param {Message} message @param {number} offset seconds */
  #onMessage(message, offset) {
    const line = this.#captions.receive(message);
    if (line) this.#view.addLine(line);
    if (message.type === "final") this.#captioned = offset + message.end;
    if (message.type === "lag") this.#lag = message.seconds;
    if (message.type === "error" && message.code === "decode_failed") {
      this.#view.notice(new Problem("One sentence could not be written down.", message.message));
    }
    if (message.type === "error" && message.code === "bad_request") {
      this.#view.notice(new Problem("The language stays as it was.", message.message));
    }
    this.#view.showPartials(this.#captions.partials);
    this.#showStatus();
  }

  /** @param {number} peak from 0 to 1 */
  #onLevel(peak) {
    this.#view.level(peak);
    if (peak > SILENT_PEAK) this.#lastSound = Date.now();
  }

  /** @param {boolean} suspended */
  #setSuspended(suspended) {
    this.#suspended = suspended;
    this.#showStatus();
  }

  #showStatus() {
    this.#view.status(...this.#status());
  }

  /** @returns {[text: string, figure?: string]} */
  #status() {
    if (this.#connection === "waiting") return ["Waiting for the service"];
    if (this.#stoppedAt) return ["Writing down the rest"];
    if (this.#connection === "connecting") return ["Connecting"];
    if (this.#suspended) return ["The browser has paused the sound: click anywhere"];
    if (this.#lag >= BEHIND_S) return ["Behind", `by ${Math.round(this.#lag)} s`];
    if (!this.#microphone) {
      const share = (this.#captioned * this.#buffer.rate) / (this.#buffer.length || 1);
      return ["Reading", `${Math.floor(100 * share)} %`];
    }
    const silent = Date.now() - this.#lastSound > SILENT_MS;
    return [silent ? "Listening, but no sound comes in" : "Listening"];
  }
}
