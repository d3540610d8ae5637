/**
 * The elements of the page. This module uses no sound and no socket, and decides nothing.
 */

import { element, paragraph, part, words } from "./dom.js";

/** @import { Problem } from "../protocol/problems.js" */
/** @import { Line, PartialLine } from "./captions.js" */

const FLOOR_DB = -60; // of the level meter
const FOLLOW_PX = 120; // distance from the end of the page within which it follows the captions
const FLASH_MS = 2_000;

export class View {
  #log = element("log");
  #live = element("live");
  #status = element("status");
  #figure = element("figure");
  #meter = element("meter");
  #notice = element("notice");
  #latest = element("latest");
  #follows = true; // scrolls to the newest caption
  #lastStatus = ["", ""]; // shown or not
  #flashTimer = 0; // runs while `flash` hides the status
  #lastNotice = ""; // shown or dismissed

  constructor() {
    element("dismiss").onclick = () => this.#dismiss();
    this.#latest.onclick = () => this.#scrollToEnd();
    addEventListener("scroll", () => this.#onScroll(), { passive: true });
    addEventListener("resize", () => this.#follows && this.#scrollToEnd());
  }

  /** @param {string} text @param {string} [figure] changes often: screen readers do not read it */
  status(text, figure = "") {
    this.#lastStatus = [text, figure];
    if (!this.#flashTimer) this.#showStatus();
  }

  /** @param {string} text replaces the status for a moment */
  flash(text) {
    clearTimeout(this.#flashTimer);
    this.#status.textContent = text;
    this.#figure.textContent = "";
    this.#flashTimer = setTimeout(() => {
      this.#flashTimer = 0;
      this.#showStatus();
    }, FLASH_MS);
  }

  /**
   * Show a problem, or with null none. A problem that is shown or was dismissed is not announced
   * again, until another one is.
   * @param {Problem | null} problem
   * @param {{mild?: boolean}} [style] mild: the page recovers by itself
   */
  notice(problem, { mild = false } = {}) {
    this.#notice.classList.toggle("mild", mild);
    const text = problem ? `${problem.message} ${problem.advice}` : "";
    if (text === this.#lastNotice) return;
    this.#lastNotice = text;
    this.#notice.hidden = !problem;
    element("notice-title").textContent = problem?.message ?? "";
    element("notice-advice").textContent = problem?.advice ?? "";
  }

  /**
   * Set the controls.
   * @param {{running: boolean, listening: boolean, label: string}} state
   */
  controls({ running, listening, label }) {
    document.body.classList.toggle("running", running);
    document.body.classList.toggle("listening", listening);
    element("listen-label").textContent = label;
    element("open").toggleAttribute("disabled", running);
    element("clear").toggleAttribute("disabled", running);
    for (const id of ["microphone", "temperature"]) element(id).toggleAttribute("disabled", running);
    element("language").toggleAttribute("disabled", running && !listening); // the sound is all there
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

  /** @param {Line} line screen readers read it */
  addLine(line) {
    const text = words([part("stable", line.text)], line.language);
    this.#log.append(caption(line.start, text));
    this.#afterChange();
  }

  /** @param {PartialLine[]} partials replace the earlier ones; screen readers do not read them */
  showPartials(partials) {
    const shown = partials.map(({ start, stable, tentative }) =>
      caption(start, words([part("stable", stable), part("tentative", tentative)])),
    );
    this.#live.replaceChildren(...shown);
    this.#afterChange();
  }

  /** Remove all captions. */
  clear() {
    this.#log.replaceChildren();
    this.#live.replaceChildren();
    this.#afterChange();
  }

  #showStatus() {
    const [text, figure] = this.#lastStatus;
    if (this.#status.textContent !== text) this.#status.textContent = text; // else it is read again
    this.#figure.textContent = figure;
  }

  #dismiss() {
    this.#notice.hidden = true;
    element("listen").focus(); // else nothing has the focus
  }

  #afterChange() {
    this.#log.classList.toggle("newest", !this.#live.childElementCount);
    element("download").hidden = !this.#log.childElementCount;
    if (this.#follows) this.#scrollToEnd();
  }

  #scrollToEnd() {
    scrollTo(0, document.documentElement.scrollHeight);
  }

  #onScroll() {
    const below = document.documentElement.scrollHeight - innerHeight - scrollY;
    this.#follows = below < FOLLOW_PX;
    this.#latest.hidden = this.#follows;
  }
}

/** @param {number} start seconds @param {HTMLElement} text */
function caption(start, text) {
  const row = paragraph(part("time", clock(start)), " ", text);
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
