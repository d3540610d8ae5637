/**
 * Captions as plain text, SRT and WebVTT. Cues follow the same rules as those of `captiond file`.
 *
 * Lines go in and text comes out; this module uses no document and no clock.
 */

/** @import { Line } from "./captions.js" */

const LINE_COLUMNS = 42; // the limit that subtitling guidelines give
const CUE_LINES = 2;
const SENTENCE_END = /[.!?…。！？]["')\]’”»]*$/u;
const WIDE = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\u3000-\u303f\uff01-\uff60]/u;
const ZERO_WIDTH = /[\p{Mn}\p{Me}\p{Cf}]/u;

/**
 * Text that a player shows from `start` to `end`, in milliseconds.
 * @typedef {{start: number, end: number, lines: string[]}} Cue
 */

/**
 * One word and the glue before it: a space, or nothing inside a word that was cut in two.
 * @typedef {{glue: string, word: string}} Piece
 */

/** @param {Line[]} lines @returns {string} one line of text each */
export function text(lines) {
  return lines.map((line) => `${printable(line.text)}\n`).join("");
}

/** @param {Line[]} lines @returns {string} SubRip */
export function srt(lines) {
  return blocks(lines, ",", (words) => words);
}

/** @param {Line[]} lines @returns {string} WebVTT */
export function vtt(lines) {
  const marks = /** @type {Record<string, string>} */ ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" });
  return `WEBVTT\n\n${blocks(lines, ".", (words) => words.replace(/[&<>]/g, (mark) => marks[mark]))}`;
}

/**
 * @param {Line[]} lines
 * @param {string} point between seconds and milliseconds
 * @param {(words: string) => string} escape
 */
function blocks(lines, point, escape) {
  let reached = 0;
  let number = 0;
  let written = "";
  for (const line of lines) {
    const start = Math.max(Math.round(line.start * 1000), reached);
    for (const cue of cues(start, Math.round(line.end * 1000), line.text)) {
      number += 1;
      reached = cue.end;
      const times = `${clock(cue.start, point)} --> ${clock(cue.end, point)}`;
      written += `${number}\n${times}\n${escape(cue.lines.join("\n"))}\n\n`;
    }
  }
  return written;
}

/**
 * Cues that fill [start, end), in milliseconds. Each cue gets time in proportion to its width, and at
 * least a millisecond, so the last cue may end after `end`. Cues do not overlap. No words give no cue.
 * @param {number} start @param {number} end @param {string} words
 * @returns {Cue[]}
 */
export function cues(start, end, words) {
  const portions = cut(words);
  const weights = portions.map((lines) => columns(lines.join("")) || 1); // zero-width characters alone have none
  const whole = weights.reduce((sum, weight) => sum + weight, 0);
  const last = Math.max(end, start + portions.length);
  let begin = start;
  let taken = 0; // weight of the cues so far
  return portions.map((lines, index) => {
    taken += weights[index];
    const shared = start + Math.floor(((last - start) * taken) / whole);
    const latest = last - (portions.length - index - 1); // a millisecond for each cue that follows
    const cue = { start: begin, end: Math.min(Math.max(shared, begin + 1), latest), lines };
    begin = cue.end;
    return cue;
  });
}

/**
 * Cut into cues of at most two lines and about equal width. A cue of two lines ends with its sentence.
 * @param {string} words
 * @returns {string[][]}
 */
function cut(words) {
  const pieces = split(words);
  const whole = columns(joined(pieces));
  const count = Math.ceil(whole / (CUE_LINES * LINE_COLUMNS));
  /** @type {string[][]} */
  const portions = [];
  /** @type {Piece[]} */
  let taken = [];
  /** @type {string[]} */
  let lines = []; // `taken`, laid out greedily: tells whether another piece fits
  const close = () => {
    if (taken.length) portions.push(balanced(taken));
    taken = [];
    lines = [];
  };
  for (const piece of pieces) {
    const longer = (lines.at(-1) ?? "") + piece.glue + piece.word;
    if (lines.length && columns(longer) <= LINE_COLUMNS) {
      lines[lines.length - 1] = longer;
    } else {
      if (lines.length === CUE_LINES) close();
      lines.push(piece.word);
    }
    taken.push(piece);
    const width = columns(lines.join(""));
    if (width * count >= whole || (lines.length === CUE_LINES && SENTENCE_END.test(piece.word))) {
      close();
    }
  }
  close();
  return portions;
}

/** @param {Piece[]} pieces @returns {string[]} one line if it fits, else the two narrowest ones */
function balanced(pieces) {
  const one = joined(pieces);
  if (columns(one) <= LINE_COLUMNS) return [one];
  const pairs = pieces.slice(1).map((_, at) => [
    joined(pieces.slice(0, at + 1)),
    joined(pieces.slice(at + 1)),
  ]);
  const widest = pairs.map((pair) => Math.max(...pair.map(columns)));
  return pairs[widest.indexOf(Math.min(...widest))];
}

/** @param {Piece[]} pieces */
function joined(pieces) {
  return pieces.map(({ glue, word }) => glue + word).join("").trim();
}

/** @param {string} words @returns {Piece[]} a word wider than a line is cut into several */
function split(words) {
  /** @type {Piece[]} */
  const pieces = [];
  for (let word of printable(words).split(/\s+/u).filter(Boolean)) {
    let glue = " ";
    while (columns(word) > LINE_COLUMNS) {
      const head = prefix(word);
      pieces.push({ glue, word: head });
      word = word.slice(head.length);
      glue = "";
    }
    pieces.push({ glue, word });
  }
  return pieces;
}

/** @param {string} word @returns {string} its longest prefix that fits a line */
function prefix(word) {
  let head = "";
  let width = 0;
  for (const character of word) {
    width += columns(character);
    if (width > LINE_COLUMNS) break;
    head += character;
  }
  return head;
}

/** @param {string} words @returns {number} two for a wide character, none for a zero-width one */
function columns(words) {
  let width = 0;
  for (const character of words) {
    if (!ZERO_WIDTH.test(character)) width += WIDE.test(character) ? 2 : 1;
  }
  return width;
}

/** @param {string} words @returns {string} with spaces for control characters and line breaks */
function printable(words) {
  return words.replace(/[\p{Cc}\p{Zl}\p{Zp}]/gu, " ");
}

/** @param {number} ms @param {string} point */
function clock(ms, point) {
  const two = (/** @type {number} */ value) => String(value).padStart(2, "0");
  const seconds = Math.floor(ms / 1000);
  const parts = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
  return `${parts.map(two).join(":")}${point}${String(ms % 1000).padStart(3, "0")}`;
}
