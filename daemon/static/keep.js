/**
 * Captions to take along: onto the clipboard, or as a file.
 */

import { srt, text, vtt } from "./export.js";
import { copyProblem } from "./problems.js";

/** @import { Line } from "./captions.js" */

const FORMATS = /** @type {Record<string, {write: (lines: Line[]) => string, type: string}>} */ ({
  txt: { write: text, type: "text/plain" },
  srt: { write: srt, type: "application/x-subrip" },
  vtt: { write: vtt, type: "text/vtt" },
});

/** @param {Line[]} lines @param {string} format "txt", "srt" or "vtt" */
export function download(lines, format) {
  const { write, type } = FORMATS[format];
  const address = URL.createObjectURL(new Blob([write(lines)], { type: `${type};charset=utf-8` }));
  const link = document.createElement("a");
  link.href = address;
  link.download = `captions-${stamp(new Date())}.${format}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000); // a slow disk may still be reading
}

/**
 * @param {Line[]} lines
 * @throws {import("./problems.js").Problem} if the browser does not let them be copied
 */
export async function copy(lines) {
  // Pages without encryption have the older way only.
  const copied = navigator.clipboard
    ? await navigator.clipboard.writeText(text(lines)).then(
        () => true,
        () => false,
      )
    : selected(text(lines));
  if (!copied) throw copyProblem();
}

/** @param {string} words @returns {boolean} whether they were copied */
function selected(words) {
  const area = document.createElement("textarea");
  area.value = words;
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  return copied;
}

/** @param {Date} now @returns {string} local time, such as 2026-11-30-1405 */
function stamp(now) {
  const local = new Date(now.getTime() - now.getTimezoneOffset() * 60_000).toISOString();
  return `${local.slice(0, 10)}-${local.slice(11, 16).replace(":", "")}`;
}
