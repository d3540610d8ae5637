/**
 * What the overlay's address asks for. Pure: a query in, options out.
 */

import { Problem } from "./problems.js";

/**
 * @typedef {object} Options
 * @property {number} size of the letters, in pixels
 * @property {number} lines shown at most
 * @property {string} align "left", "center" or "right"
 * @property {string | null} language a code; null: detected
 */

const SIZES = [12, 200];
const LINES = [1, 8];
const ALIGNMENTS = ["left", "center", "right"];
const KNOWN = ["size", "lines", "align", "language"];

/**
 * @param {URLSearchParams} query
 * @param {string} language where the address names none
 * @returns {Options}
 * @throws {Problem} that says what is accepted
 */
export function options(query, language) {
  for (const name of query.keys()) {
    if (!KNOWN.includes(name)) throw wrong(name, `is unknown; known are ${KNOWN.join(", ")}`);
  }
  const align = query.get("align") ?? "center";
  if (!ALIGNMENTS.includes(align)) throw wrong("align", `is one of ${ALIGNMENTS.join(", ")}`);
  const wanted = query.get("language") ?? (language || "auto");
  return {
    size: number(query, "size", 48, SIZES),
    lines: number(query, "lines", 2, LINES),
    align,
    language: wanted === "auto" ? null : wanted,
  };
}

/** @param {URLSearchParams} query @param {string} name @param {number} usual @param {number[]} bounds */
function number(query, name, usual, [least, most]) {
  const value = Number(query.get(name) ?? usual);
  if (Number.isInteger(value) && value >= least && value <= most) return value;
  throw wrong(name, `is a whole number from ${least} to ${most}`);
}

/** @param {string} name @param {string} rule */
function wrong(name, rule) {
  return new Problem(`The address is wrong: ${name} ${rule}.`, "");
}
