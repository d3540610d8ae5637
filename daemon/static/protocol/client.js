/**
 * A client of the protocol captiond.v1. Its session outlives a connection that breaks.
 *
 * The client sends a replay buffer to the daemon as fast as the daemon takes it, until the buffer has
 * ended and the last final has arrived. The resume state decides where each connection begins.
 */

import {
  blocked,
  busy,
  failing,
  interrupted,
  Problem,
  refused,
  restarting,
  unauthorized,
  unreachable,
} from "./problems.js";
import { ResumeState } from "./resume-state.js";
import { authorization, subprotocols } from "./token.js";

/** @import { ReplayBuffer } from "./replay-buffer.js" */
/** @import { Message, SessionOptions } from "./resume-state.js" */

const PATH = "v1"; // relative to the page, so a proxy may move both
const FORBIDDEN = 403; // the service's own refusal, unlike others below 500
const TEMPORARY = [408, 429]; // statuses below 500 after which another attempt may succeed
const FRAME = 16_384; // the most samples in a frame
const MAX_BUFFERED = 1 << 20; // bytes in the browser's send queue, above which sending pauses
const POLL_MS = 50; // no event tells that the send queue has shrunk
const BACKOFF_S = [0.5, 1, 2, 4, 8]; // before each attempt; the last value repeats
const MAX_BACKOFF_S = 10; // whatever the service asks for: a user waits for captions
const STABLE_MS = 30_000; // a connection that lasted this long does not count as a failure
const MAX_FAILURES = 5;
const SILENCE_MS = 25_000; // of a daemon that owes an answer; then the connection counts as dead
const RESUME_MS = 8_000; // for the first message of a connection that resumes
const OWED_S = 2; // of unacknowledged sound, above which the daemon owes an answer

/**
 * @typedef {object} ClientCallbacks
 * @property {(message: Message, offset: number) => void} message arrived; offset: seconds to add to
 *   its times
 * @property {(offset: number, lost: number) => void} started a new session; offset: seconds to add to
 *   its times; lost: seconds of sound that no session gets
 * @property {() => void} resumed the session, after an interruption
 * @property {(problem: Problem) => void} waiting for the next attempt
 */

export class Client {
  #buffer;
  #state;
  #callbacks;
  #address;
  /** @type {WebSocket | null} */
  #socket = null;
  #ready = false; // the daemon takes sound
  #resumed = false; // the session is that of an earlier connection
  #stopped = false; // `stop` was sent
  #fatal = false; // the daemon ended the session by itself
  #finished = false; // everything has its final
  #aborted = false;
  /** @type {Problem | null} the daemon's reason to end the connection */
  #problem = null;
  #fatalMessage = ""; // of the newest fatal error
  #served = false; // a session has begun, on this connection or an earlier one
  #failures = 0;
  #attempts = 0; // since the daemon last acknowledged sound
  #frame = FRAME;
  #sendTimer = 0;
  #silenceTimer = 0; // runs while the daemon owes an answer
  #stopWaiting = () => {}; // for the connection to close
  #stopPause = () => {};

  /**
   * @param {ReplayBuffer} buffer
   * @param {SessionOptions} options
   * @param {ClientCallbacks} callbacks
   */
  constructor(buffer, options, callbacks) {
    this.#buffer = buffer;
    this.#state = new ResumeState(buffer, options);
    this.#callbacks = callbacks;
    this.#address = new URL(PATH, document.baseURI);
  }

  /**
   * Connect, as often as needed, until everything has its final or `abort` is called.
   * @throws {Problem} if the service does not serve this session
   */
  async run() {
    while (!this.#finished && !this.#aborted) {
      const problem = await this.#connect();
      if (this.#finished || this.#aborted) return;
      if (this.#failures >= MAX_FAILURES) throw failing(this.#fatalMessage);
      const backoff = BACKOFF_S[Math.min(this.#attempts++, BACKOFF_S.length - 1)];
      this.#callbacks.waiting(problem);
      await this.#pause(Math.min(Math.max(backoff, problem.retryAfter), MAX_BACKOFF_S));
    }
  }

  /** The buffer has more samples, or has ended. */
  advance() {
    clearTimeout(this.#sendTimer);
    const socket = this.#socket;
    if (!socket || !this.#ready) return;
    if (this.#state.overrun) {
      this.#state.endSession(); // the next session reports the loss
      this.#disconnect();
      return;
    }
    if (!this.#stopped) this.#send(socket);
    this.#watchSilence();
  }

  /** @param {string | null} language of what is said from now on; null: to be detected */
  changeLanguage(language) {
    this.#state.changeLanguage(language);
    this.advance();
  }

  /** @param {WebSocket} socket */
  #send(socket) {
    while (socket.bufferedAmount < MAX_BUFFERED) {
      const most = Math.min(this.#frame, this.#state.untilChange);
      if (most <= 0) {
        socket.send(JSON.stringify(this.#state.takeChange()));
        continue;
      }
      const samples = this.#buffer.read(this.#state.cursor, most);
      if (!samples.length) break;
      socket.send(/** @type {Int16Array<ArrayBuffer>} */ (samples));
      this.#state.cursor += samples.length;
    }
    if (this.#state.cursor < this.#buffer.length) {
      this.#sendTimer = setTimeout(() => this.advance(), POLL_MS);
    } else if (this.#buffer.ended) {
      this.#stopped = true;
      socket.send('{"type": "stop"}');
    }
  }

  /** Give up what has no final yet. */
  abort() {
    this.#aborted = true;
    this.#disconnect();
    this.#stopPause();
  }

  /** Do not wait for the close: its frame may queue behind much sound, or get no answer. */
  #disconnect() {
    const socket = this.#socket;
    if (!socket) return;
    socket.onopen = socket.onmessage = null;
    socket.close();
    this.#stopWaiting();
  }

  /**
   * A connection may die without a sign. A daemon that keeps the session for a resumption acknowledges
   * sound, or reports its lag, about once a second; another one may be silent for minutes.
   */
  #watchSilence() {
    if (this.#silenceTimer || !this.#state.session) return;
    if (!this.#stopped && this.#state.unacknowledged <= OWED_S) return;
    this.#silenceTimer = setTimeout(() => this.#disconnect(), SILENCE_MS);
  }

  #clearSilence() {
    clearTimeout(this.#silenceTimer);
    this.#silenceTimer = 0;
  }

  /**
   * One connection, until it has ended.
   * @returns {Promise<Problem>} the reason for another connection
   * @throws {Problem} if another one is useless
   */
  async #connect() {
    const address = new URL(this.#address);
    address.protocol = address.protocol.replace("http", "ws");
    if (this.#state.session) address.searchParams.set("resume", this.#state.session);
    const socket = new WebSocket(address, subprotocols());
    const began = performance.now();
    let opened = false;
    this.#socket = socket;
    this.#ready = this.#resumed = this.#stopped = this.#fatal = false;
    this.#problem = null;
    socket.onopen = () => {
      opened = true;
      this.#sendHello();
    };
    socket.onmessage = ({ data }) => this.#receive(JSON.parse(data));
    // This connection may be dead, too, and the daemon does not keep the session for long.
    if (this.#state.session) this.#silenceTimer = setTimeout(() => this.#disconnect(), RESUME_MS);
    /** @type {number} */
    const code = await new Promise((resolve) => {
      socket.onclose = (event) => resolve(event.code);
      this.#stopWaiting = () => resolve(0);
    });
    this.#socket = null;
    clearTimeout(this.#sendTimer);
    this.#clearSilence();
    if (this.#finished || this.#aborted) return interrupted();
    if (this.#problem) throw this.#problem;
    if (!opened) return (await serviceProblem(this.#address, this.#served)) ?? blocked();
    if (performance.now() - began > STABLE_MS) this.#failures = this.#attempts = 0;
    if (!this.#resumed) this.#failures += 1; // a session that resumes may break any number of times
    return code === 1001 ? restarting() : interrupted();
  }

  /** @param {Message} message */
  #receive(message) {
    this.#clearSilence();
    switch (message.type) {
      case "ready":
        this.#ready = this.#served = true;
        this.#frame = Math.min(FRAME, Math.floor(message.limits.frame_bytes / 2));
        this.#begin(message);
        break;
      case "heard":
        this.#attempts = 0;
        this.#state.update(message);
        break;
      case "final":
        this.#failures = this.#attempts = 0;
        this.#state.update(message);
        break;
      case "error":
        if (message.fatal) {
          this.#fatal = true;
          this.#fatalMessage = message.message;
          this.#state.endSession();
        }
        if (message.code === "bad_resume") {
          this.#state.endSession();
          this.#sendHello(); // the same connection serves a new session
          return;
        }
        // A new session would be refused, too, or would be ended for the same errors.
        if (message.code.startsWith("bad_") && (message.fatal || !this.#ready)) {
          this.#problem = refused(message.message);
          this.#socket?.close();
        }
        break;
      case "closed":
        this.#finished = this.#stopped && !this.#fatal; // else the daemon may not have read all sound
        this.#state.endSession();
        break;
    }
    this.#callbacks.message(message, this.#state.offset);
    this.advance();
  }

  #sendHello() {
    this.#socket?.send(JSON.stringify(this.#state.hello()));
  }

  /** @param {Message} ready */
  #begin(ready) {
    const { resumed, lost } = this.#state.begin(ready);
    this.#resumed = resumed;
    if (resumed) this.#callbacks.resumed();
    else this.#callbacks.started(this.#state.offset, lost);
  }

  /** @param {number} seconds at most: `abort` ends the pause */
  async #pause(seconds) {
    await new Promise((resolve) => {
      this.#stopPause = () => resolve(undefined);
      setTimeout(this.#stopPause, seconds * 1000);
    });
  }
}

/**
 * Ask over plain HTTP why the daemon takes no session: of a refused websocket a browser tells a page
 * nothing but its failure.
 * @param {URL} [address]
 * @param {boolean} [served] whether the service has served this page: then a strange answer is that of
 *   something in front of it, a balancer or a tunnel, while it is away
 * @returns {Promise<Problem | null>} null: the daemon takes sessions
 * @throws {Problem} if another attempt is useless
 */
export async function serviceProblem(address = new URL(PATH, document.baseURI), served = false) {
  let response, reason;
  try {
    response = await fetch(address, { cache: "no-store", headers: authorization() });
    reason = (await response.text()).trim();
  } catch {
    return unreachable();
  }
  const { status, headers } = response;
  if (status === 426) return null; // it asks for the websocket
  if (status === 401) throw unauthorized();
  if (!headers.get("Content-Type")?.startsWith("text/plain")) reason = ""; // a proxy's own page
  const final = status < 500 && !TEMPORARY.includes(status);
  if (final && (!served || status === FORBIDDEN)) {
    throw refused(reason || `It answers with status ${status}.`);
  }
  const problem = reason && !final ? busy(reason) : unreachable();
  problem.retryAfter = Number(headers.get("Retry-After")) || 0; // it may be a date
  return problem;
}
