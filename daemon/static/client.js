/**
 * A client of the protocol captiond.v1 that outlives its connections.
 *
 * It plays a tape to the daemon, as fast as the daemon takes it, until the tape has ended and its
 * last final is here. How each connection goes on is the course's to say.
 */

import { Course } from "./course.js";
import { authorised, protocols } from "./token.js";
import {
  blocked,
  busy,
  failing,
  interrupted,
  Problem,
  refused,
  restarting,
  stranger,
  unreachable,
} from "./problems.js";

/** @import { Tape } from "./tape.js" */
/** @import { Message, Wishes } from "./course.js" */

const PATH = "v1"; // beside the page, so that a proxy may move both
const LATER = [408, 429]; // and 500 and above: statuses of a service that may take a session later
const FRAME = 16_384; // samples in a frame at most
const UNDER_WAY = 1 << 20; // bytes handed to the browser and not sent yet: above it, sending rests
const LOOK_AGAIN_MS = 50; // no event tells that bytes have left
const PAUSES_S = [0.5, 1, 2, 4, 8]; // before another attempt; the last one stays
const LONGEST_PAUSE_S = 10; // whatever the service asks for: somebody waits for captions
const STEADY_MS = 30_000; // a connection that lasted so long was no failure
const MOST_FAILURES = 5;
const SILENCE_MS = 25_000; // of a daemon that owes an answer, until the connection is taken for dead
const RETURN_MS = 8_000; // for the first message of a connection that resumes
const OWED_S = 2; // of sound that it has not said to have: above it, it owes an answer

/**
 * @typedef {object} Listener what becomes known, as it becomes known
 * @property {(message: Message, offset: number) => void} heard a message, and what to add to its times
 * @property {(offset: number, lost: number) => void} begun a session: what to add to its times, and
 *   seconds of sound that nobody will hear
 * @property {() => void} resumed the session, after an interruption
 * @property {(problem: Problem) => void} waiting until another attempt
 */

export class Client {
  #tape;
  #course;
  #listener;
  #address;
  /** @type {WebSocket | null} */
  #socket = null;
  #ready = false; // sound may flow
  #resumed = false; // the session is that of an earlier connection
  #stopped = false; // the session was told that its sound is over
  #fatal = false; // the daemon ended the session by itself
  #finished = false; // everything has its final
  #abandoned = false;
  /** @type {Problem | null} why the connection ends, where the daemon said so */
  #problem = null;
  #said = ""; // the newest fatal error in the daemon's words
  #failures = 0;
  #attempts = 0; // since the daemon last took anything in
  #frame = FRAME;
  #timer = 0;
  #silence = 0; // the timer of a daemon that owes an answer
  #left = () => {}; // the connection need not be waited for
  #wake = () => {};

  /**
   * @param {Tape} tape
   * @param {Wishes} wishes
   * @param {Listener} listener
   */
  constructor(tape, wishes, listener) {
    this.#tape = tape;
    this.#course = new Course(tape, wishes);
    this.#listener = listener;
    this.#address = new URL(PATH, document.baseURI);
  }

  /**
   * Until all of the tape is written down, or `abandon`.
   * @throws {Problem} if that cannot be
   */
  async run() {
    while (!this.#finished && !this.#abandoned) {
      const problem = await this.#connect();
      if (this.#finished || this.#abandoned) return;
      if (this.#failures >= MOST_FAILURES) throw failing(this.#said);
      const pause = PAUSES_S[Math.min(this.#attempts++, PAUSES_S.length - 1)];
      this.#listener.waiting(problem);
      await this.#pause(Math.min(Math.max(pause, problem.after), LONGEST_PAUSE_S));
    }
  }

  /** There is more on the tape, or its end. */
  advance() {
    clearTimeout(this.#timer);
    const socket = this.#socket;
    if (!socket || !this.#ready) return;
    if (this.#course.outrun) {
      this.#course.drop(); // a new session says what was lost
      this.#leave();
      return;
    }
    if (!this.#stopped) this.#send(socket);
    this.#watch();
  }

  /** @param {WebSocket} socket */
  #send(socket) {
    while (socket.bufferedAmount < UNDER_WAY) {
      const samples = this.#tape.read(this.#course.cursor, this.#frame);
      if (!samples.length) break;
      socket.send(/** @type {Int16Array<ArrayBuffer>} */ (samples));
      this.#course.cursor += samples.length;
    }
    if (this.#course.cursor < this.#tape.length) {
      this.#timer = setTimeout(() => this.advance(), LOOK_AGAIN_MS);
    } else if (this.#tape.ended) {
      this.#stopped = true;
      socket.send('{"type": "stop"}');
    }
  }

  /** Give up what has no final yet. */
  abandon() {
    this.#abandoned = true;
    this.#leave();
    this.#wake();
  }

  /** End the connection at once: a close frame may queue behind much sound, or never get an answer. */
  #leave() {
    const socket = this.#socket;
    if (!socket) return;
    socket.onopen = socket.onmessage = null;
    socket.close();
    this.#left();
  }

  /**
   * A connection may die without a sign. A daemon that keeps the session for a resumption says about
   * once a second what it has heard, or how late it is; any other may have nothing to say for minutes.
   */
  #watch() {
    if (this.#silence || !this.#course.session) return;
    if (!this.#stopped && this.#course.unconfirmed <= OWED_S) return;
    this.#silence = setTimeout(() => this.#leave(), SILENCE_MS);
  }

  #noSilence() {
    clearTimeout(this.#silence);
    this.#silence = 0;
  }

  /**
   * One connection, until it has ended.
   * @returns {Promise<Problem>} why there should be another one
   * @throws {Problem} if there should be none
   */
  async #connect() {
    const address = new URL(this.#address);
    address.protocol = address.protocol.replace("http", "ws");
    if (this.#course.session) address.searchParams.set("resume", this.#course.session);
    const socket = new WebSocket(address, protocols());
    const began = performance.now();
    let opened = false;
    this.#socket = socket;
    this.#ready = this.#resumed = this.#stopped = this.#fatal = false;
    this.#problem = null;
    socket.onopen = () => {
      opened = true;
      this.#greet();
    };
    socket.onmessage = ({ data }) => this.#receive(JSON.parse(data));
    // The way back may lead nowhere, and the session does not wait for long.
    if (this.#course.session) this.#silence = setTimeout(() => this.#leave(), RETURN_MS);
    /** @type {number} */
    const code = await new Promise((resolve) => {
      socket.onclose = (event) => resolve(event.code);
      this.#left = () => resolve(0);
    });
    this.#socket = null;
    clearTimeout(this.#timer);
    this.#noSilence();
    if (this.#finished || this.#abandoned) return interrupted();
    if (this.#problem) throw this.#problem;
    if (!opened) return (await obstacle(this.#address)) ?? blocked();
    if (performance.now() - began > STEADY_MS) this.#failures = this.#attempts = 0;
    if (!this.#resumed) this.#failures += 1; // one that came back may be lost as often as it likes
    return code === 1001 ? restarting() : interrupted();
  }

  /** @param {Message} message */
  #receive(message) {
    this.#noSilence();
    switch (message.type) {
      case "ready":
        this.#ready = true;
        this.#frame = Math.min(FRAME, Math.floor(message.limits.frame_bytes / 2));
        this.#begin(message);
        break;
      case "heard":
        this.#attempts = 0;
        this.#course.heard(message);
        break;
      case "final":
        this.#failures = this.#attempts = 0;
        this.#course.heard(message);
        break;
      case "error":
        if (message.fatal) {
          this.#fatal = true;
          this.#said = message.message;
          this.#course.drop();
        }
        if (message.code === "bad_resume") {
          this.#course.drop();
          this.#greet(); // the same connection serves a new session
          return;
        }
        // No session comes of a start that is refused; one ended for its errors would be again.
        if (message.code.startsWith("bad_") && (message.fatal || !this.#ready)) {
          this.#problem = refused(message.message);
          this.#socket?.close();
        }
        break;
      case "closed":
        this.#finished = this.#stopped && !this.#fatal; // or `stop` was still under way, with sound before it
        this.#course.drop();
        break;
    }
    this.#listener.heard(message, this.#course.offset);
    this.advance();
  }

  #greet() {
    this.#socket?.send(JSON.stringify(this.#course.hello()));
  }

  /** @param {Message} ready */
  #begin(ready) {
    const { resumed, lost } = this.#course.begin(ready);
    this.#resumed = resumed;
    if (resumed) this.#listener.resumed();
    else this.#listener.begun(this.#course.offset, lost);
  }

  /** @param {number} seconds or until `abandon` */
  async #pause(seconds) {
    await new Promise((resolve) => {
      this.#wake = () => resolve(undefined);
      setTimeout(this.#wake, seconds * 1000);
    });
  }
}

/**
 * What keeps the daemon from taking a session now; a browser hears of a refused websocket only that
 * it failed, so the same address is asked in plain HTTP.
 * @param {URL} [address]
 * @returns {Promise<Problem | null>} null: nothing does
 * @throws {Problem} if asking again will not help
 */
export async function obstacle(address = new URL(PATH, document.baseURI)) {
  let response, reason;
  try {
    response = await fetch(address, { cache: "no-store", headers: authorised() });
    reason = (await response.text()).trim();
  } catch {
    return unreachable();
  }
  const { status, headers } = response;
  if (status === 426) return null; // it waits for the websocket
  if (status === 401) throw stranger();
  if (!headers.get("Content-Type")?.startsWith("text/plain")) reason = ""; // a proxy's own page
  if (status < 500 && !LATER.includes(status)) {
    throw refused(reason || `It answers with status ${status}.`);
  }
  const problem = reason ? busy(reason) : unreachable();
  problem.after = Number(headers.get("Retry-After")) || 0; // it may be a date
  return problem;
}
