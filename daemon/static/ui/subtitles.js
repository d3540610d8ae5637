/**
 * Captions as plain text, SRT and WebVTT. Cues follow the same rules as those of `captiond file`.
 *
 * Lines go in and text comes out; this module uses no document and no clock.
 */

/** @import { Line } from "./captions.js" */

const LINE_COLUMNS = 42; // the limit that subtitling guidelines give
const CUE_LINES = 2;
const READ_COLUMNS = 20; // a second: so much can be read
const LEAST_MS = 833; // shorter cues are missed
const PAUSE_MS = 1000; // a longer one divides cues
const FLICKER_MS = 250; // a shorter time between two cues is filled
const LINGER_MS = 500; // so long a cue may stay behind its utterance, lest it delays the next one
const SENTENCE_END = /[.!?…。！？]["')\]’”»]*$/u;
const WIDE = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\u3000-\u303f\uff01-\uff60]/u;
const ZERO_WIDTH = /[\p{Mn}\p{Me}\p{Cf}]/u;

/**
 * Text that a player shows from `start` to `end`, in milliseconds.
 * @typedef {{start: number, end: number, lines: string[]}} Cue
 */

/**
 * Text, and when it was said, in milliseconds.
 * @typedef {{text: string, start: number, end: number}} Timed
 */

/**
 * One word, when it was said, and the glue before it: a space, or nothing inside a word cut in two.
 * @typedef {{glue: string, word: string, start: number, end: number}} Piece
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
    const timed = (line.words ?? []).map((word) => ({
      text: word.text,
      start: Math.round(word.start * 1000),
      end: Math.round(word.end * 1000),
    }));
    for (const cue of cues(start, Math.round(line.end * 1000), line.text, timed)) {
      number += 1;
      reached = cue.end;
      const times = `${clock(cue.start, point)} --> ${clock(cue.end, point)}`;
      written += `${number}\n${times}\n${escape(cue.lines.join("\n"))}\n\n`;
    }
  }
  return written;
}

/**
 * Cues of `words`, spoken in [start, end), in milliseconds. With `timed`, the times of its words, a cue
 * begins with its first word, ends with its last or later where there is room to read it, and ends at a
 * pause. Without it the cues fill [start, end) and share the time in proportion to the width. Cues do
 * not overlap, and last at least a millisecond each. No words give no cue.
 * @param {number} start @param {number} end @param {string} words @param {Timed[]} timed
 * @returns {Cue[]}
 */
export function cues(start, end, words, timed = []) {
  const given = timed.length > 0 && letters(words) === letters(timed.map(({ text }) => text).join(""));
  const spoken = given ? timed : [{ text: words, start, end: Math.max(end, start) }];
  const portions = cut(pieces(words, spoken));
  const limit = Math.max(end + (given ? LINGER_MS : 0), start + portions.length);
  let begin = start;
  return portions.map((portion, index) => {
    const left = portions.length - index; // cues that follow, each of a millisecond at least
    begin = Math.min(Math.max(portion[0].start, begin), limit - left);
    const lines = balanced(portion);
    const room = left > 1 ? portions[index + 1][0].start : limit;
    const reading = Math.floor((lines.reduce((sum, line) => sum + columns(line), 0) * 1000) / READ_COLUMNS);
    const wanted = begin + Math.max(LEAST_MS, reading);
    let stop = Math.max(portion[portion.length - 1].end, Math.min(wanted, room));
    if (room > stop && room - stop < FLICKER_MS && left > 1) stop = room;
    const cue = { start: begin, end: Math.min(Math.max(stop, begin + 1), limit - left + 1), lines };
    begin = cue.end;
    return cue;
  });
}

/**
 * Cut into cues of at most two lines. Sentences share a cue where they fit and no pause divides them.
 * @param {Piece[]} all
 * @returns {Piece[][]}
 */
function cut(all) {
  /** @type {Piece[][]} */
  const groups = [];
  for (const sentence of sentences(all)) {
    const before = groups.at(-1);
    const near = before && sentence[0].start - before[before.length - 1].end < PAUSE_MS;
    if (near && fits([...before, ...sentence])) before.push(...sentence);
    else groups.push(sentence);
  }
  return groups.flatMap(shares);
}

/** @param {Piece[]} all @returns {Piece[][]} cut where sentences end, and at pauses */
function sentences(all) {
  /** @type {Piece[][]} */
  const found = [];
  let open = false;
  for (const piece of all) {
    const last = found.at(-1)?.at(-1);
    const paused = last && piece.start - last.end >= PAUSE_MS;
    if (open && !paused) found[found.length - 1].push(piece);
    else found.push([piece]);
    open = !SENTENCE_END.test(piece.word);
  }
  return found;
}

/** @param {Piece[]} group @returns {Piece[][]} as few cues as may be, of about equal width */
function shares(group) {
  const whole = columns(joined(group));
  const count = Math.ceil(whole / (CUE_LINES * LINE_COLUMNS));
  /** @type {Piece[][]} */
  const portions = [];
  let full = true;
  for (const piece of group) {
    if (full || !fits([...portions[portions.length - 1], piece])) portions.push([]);
    const taken = portions[portions.length - 1];
    taken.push(piece);
    full = columns(joined(taken)) * count >= whole;
  }
  return portions;
}

/** @param {Piece[]} group @returns {boolean} whether a cue has room, each line filled before the next */
function fits(group) {
  const lines = [""];
  for (const { glue, word } of group) {
    const last = lines[lines.length - 1];
    const longer = last ? last + glue + word : word;
    if (columns(longer) <= LINE_COLUMNS) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines.length <= CUE_LINES;
}

/** @param {Piece[]} group @returns {string[]} one line if it fits, else the two narrowest ones */
function balanced(group) {
  const one = joined(group);
  if (columns(one) <= LINE_COLUMNS) return [one];
  const pairs = group.slice(1).map((_, at) => [
    joined(group.slice(0, at + 1)),
    joined(group.slice(at + 1)),
  ]);
  const widest = pairs.map((pair) => Math.max(...pair.map(columns)));
  return pairs[widest.indexOf(Math.min(...widest))];
}

/** @param {Piece[]} group */
function joined(group) {
  return group.map(({ glue, word }) => glue + word).join("").trim();
}

/**
 * @param {string} words @param {Timed[]} spoken their times; letters share those of their word by width
 * @returns {Piece[]} a word wider than a line is cut into several
 */
function pieces(words, spoken) {
  /** @type {{start: number, end: number}[]} */
  const times = [];
  for (const { text, start, end } of spoken) {
    const widths = [...letters(text)].map(columns);
    const weights = widths.some(Boolean) ? widths : widths.map(() => 1);
    const whole = weights.reduce((sum, weight) => sum + weight, 0);
    let reached = 0;
    let edge = start;
    for (const weight of weights) {
      reached += weight;
      const next = start + Math.floor(((end - start) * reached) / whole);
      times.push({ start: edge, end: next });
      edge = next;
    }
  }
  let place = 0;
  return split(words).map(({ glue, word }) => {
    const { start } = times[place];
    place += [...word].length;
    return { glue, word, start, end: times[place - 1].end };
  });
}

/** @param {string} words @returns {{glue: string, word: string}[]} words, cut to the width of a line */
function split(words) {
  const found = [];
  for (let word of printable(words).split(/\s+/u).filter(Boolean)) {
    let glue = " ";
    while (columns(word) > LINE_COLUMNS) {
      const head = prefix(word);
      found.push({ glue, word: head });
      word = word.slice(head.length);
      glue = "";
    }
    found.push({ glue, word });
  }
  return found;
}

/** @param {string} words */
function letters(words) {
  return printable(words).replace(/\s+/gu, "");
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
