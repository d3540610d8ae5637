/**
 * The options in the overlay's address. A query goes in and options come out.
 */

import { Problem } from "../protocol/problems.js";

/**
 * @typedef {object} OverlayOptions
 * @property {number} size of the font, in pixels
 * @property {number} lines the most to show
 * @property {string} align "left", "center" or "right"
 * @property {string | null} language a code; null asks for detection
 */

const SIZES = [12, 200];
const LINES = [1, 8];
const ALIGNMENTS = ["left", "center", "right"];
const KNOWN = ["size", "lines", "align", "language"];

/**
 * @param {URLSearchParams} query
 * @param {string} language a code, used if the address names none
 * @returns {OverlayOptions}
 * @throws {Problem} which names the accepted values
 */
export function parseOptions(query, language) {
  for (const name of query.keys()) {
    if (!KNOWN.includes(name)) throw invalid(name, `is unknown; known are ${KNOWN.join(", ")}`);
  }
  const align = query.get("align") ?? "center";
  if (!ALIGNMENTS.includes(align)) throw invalid("align", `is one of ${ALIGNMENTS.join(", ")}`);
  const wanted = query.get("language") ?? (language || "auto");
  return {
    size: number(query, "size", 48, SIZES),
    lines: number(query, "lines", 2, LINES),
    align,
    language: wanted === "auto" ? null : wanted,
  };
}

/** @param {URLSearchParams} query @param {string} name @param {number} standard @param {number[]} bounds */
function number(query, name, standard, [least, most]) {
  const value = Number(query.get(name) ?? standard);
  if (Number.isInteger(value) && value >= least && value <= most) return value;
  throw invalid(name, `is a whole number from ${least} to ${most}`);
}

/** @param {string} name @param {string} rule */
function invalid(name, rule) {
  return new Problem(`The address is wrong: ${name} ${rule}.`, "");
}
