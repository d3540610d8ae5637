/**
 * Captions for other programs: copied to the clipboard, or downloaded as a file.
 */

import { Problem } from "../protocol/problems.js";
import { srt, text, vtt } from "./subtitles.js";

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
  link.download = `captions-${timestamp(new Date())}.${format}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000); // the browser may still be writing to a slow disk
}

/**
 * @param {Line[]} lines
 * @throws {Problem} if the browser does not let the page copy
 */
export async function copy(lines) {
  // A page that came without encryption has the older interface only.
  const copied = navigator.clipboard
    ? await navigator.clipboard.writeText(text(lines)).then(
        () => true,
        () => false,
      )
    : copySelection(text(lines));
  if (!copied) {
    throw new Problem(
      "Your browser does not let this page copy.",
      "Download the captions instead, as TXT, SRT or VTT.",
    );
  }
}

/** @param {string} words @returns {boolean} whether the browser copied them */
function copySelection(words) {
  const area = document.createElement("textarea");
  area.value = words;
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  return copied;
}

/** @param {Date} now @returns {string} local time, such as 2026-11-30-1405 */
function timestamp(now) {
  const local = new Date(now.getTime() - now.getTimezoneOffset() * 60_000).toISOString();
  return `${local.slice(0, 10)}-${local.slice(11, 16).replace(":", "")}`;
}
