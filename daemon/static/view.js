/**
 * What stands on the page: elements and nothing else. No sound, no socket, no decision.
 */

import { element, paragraph, part, words } from "./dom.js";

/** @import { Line, Spoken } from "./captions.js" */
/** @import { Problem } from "./problems.js" */

const FLOOR_DB = -60; // of the level meter
const AT_THE_END = 120; // pixels from the end of the page at which it follows the captions
const PASSING_MS = 2_000; // of a word in passing

export class View {
  #log = element("log");
  #live = element("live");
  #status = element("status");
  #figure = element("figure");
  #meter = element("meter");
  #notice = element("notice");
  #latest = element("latest");
  #follows = true; // the newest caption stays in sight
  #said = ["", ""]; // the status, shown or not
  #passing = 0; // the timer of a word in its place
  #wrong = ""; // the newest notice, dismissed or not

  constructor() {
    element("dismiss").onclick = () => this.#dismiss();
    this.#latest.onclick = () => this.#toTheEnd();
    addEventListener("scroll", () => this.#look(), { passive: true });
    addEventListener("resize", () => this.#follows && this.#toTheEnd());
  }

  /** @param {string} text @param {string} [figure] changes often: it is not read out */
  status(text, figure = "") {
    this.#said = [text, figure];
    if (!this.#passing) this.#show();
  }

  /** @param {string} text stands in the place of the status for a moment */
  mention(text) {
    clearTimeout(this.#passing);
    this.#status.textContent = text;
    this.#figure.textContent = "";
    this.#passing = setTimeout(() => {
      this.#passing = 0;
      this.#show();
    }, PASSING_MS);
  }

  /**
   * Say what is wrong, or with null nothing. What is said already is not said again, nor what was
   * dismissed, until it differs.
   * @param {Problem | null} problem
   * @param {{mild?: boolean}} [how] mild: it mends itself
   */
  notice(problem, { mild = false } = {}) {
    this.#notice.classList.toggle("mild", mild);
    const wrong = problem ? `${problem.message} ${problem.advice}` : "";
    if (wrong === this.#wrong) return;
    this.#wrong = wrong;
    this.#notice.hidden = !problem;
    element("notice-title").textContent = problem?.message ?? "";
    element("notice-advice").textContent = problem?.advice ?? "";
  }

  /**
   * What the controls offer.
   * @param {{running: boolean, listening: boolean, label: string}} state
   */
  controls({ running, listening, label }) {
    document.body.classList.toggle("running", running);
    document.body.classList.toggle("listening", listening);
    element("listen-label").textContent = label;
    element("open").toggleAttribute("disabled", running);
    element("clear").toggleAttribute("disabled", running);
    element("settings").toggleAttribute("disabled", running);
    element("welcome").hidden = running || this.#log.childElementCount > 0;
    if (!listening) this.level(0);
  }

  /** @param {number} peak from 0 to 1 */
  level(peak) {
    const db = Math.max(FLOOR_DB, 20 * Math.log10(peak));
    this.#meter.style.setProperty("--level", String(1 - db / FLOOR_DB));
    this.#meter.setAttribute("aria-valuenow", String(Math.round(db)));
    this.#meter.setAttribute("aria-valuetext", db > FLOOR_DB ? `${Math.round(db)} decibels` : "no sound");
  }

  /** @param {Line} line is final: it is read out by screen readers */
  add(line) {
    const said = words([part("settled", line.text)], line.language);
    this.#log.append(caption(line.start, said));
    this.#settle();
  }

  /** @param {Spoken[]} spoken replaces all that was being spoken; it is not read out */
  speak(spoken) {
    const shown = spoken.map(({ start, settled, tentative }) =>
      caption(start, words([part("settled", settled), part("tentative", tentative)])),
    );
    this.#live.replaceChildren(...shown);
    this.#settle();
  }

  /** Take all captions away. */
  clear() {
    this.#log.replaceChildren();
    this.#live.replaceChildren();
    this.#settle();
  }

  #show() {
    const [text, figure] = this.#said;
    if (this.#status.textContent !== text) this.#status.textContent = text; // or it would be read out again
    this.#figure.textContent = figure;
  }

  #dismiss() {
    this.#notice.hidden = true;
    element("listen").focus(); // the focus would be nowhere
  }

  #settle() {
    this.#log.classList.toggle("newest", !this.#live.childElementCount);
    element("keep").hidden = !this.#log.childElementCount;
    if (this.#follows) this.#toTheEnd();
  }

  #toTheEnd() {
    scrollTo(0, document.documentElement.scrollHeight);
  }

  #look() {
    const below = document.documentElement.scrollHeight - innerHeight - scrollY;
    this.#follows = below < AT_THE_END;
    this.#latest.hidden = this.#follows;
  }
}

/** @param {number} start seconds @param {HTMLElement} said */
function caption(start, said) {
  const row = paragraph(part("time", clock(start)), " ", said);
  row.className = "caption";
  return row;
}

/** @param {number} seconds */
function clock(seconds) {
  const whole = Math.floor(seconds);
  const two = (/** @type {number} */ value) => String(value).padStart(2, "0");
  const hours = Math.floor(whole / 3600);
  const minutes = Math.floor(whole / 60) % 60;
  return hours ? `${hours}:${two(minutes)}:${two(whole % 60)}` : `${minutes}:${two(whole % 60)}`;
}
