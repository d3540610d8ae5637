/**
 * A file, decoded by the browser onto a tape.
 */

import { fileProblem, sizeProblem, unreadableProblem } from "./problems.js";
import { Tape } from "./tape.js";

const RATE = 16_000; // what the recogniser hears: more would only be sent in vain
const PIECE = RATE; // samples put on the tape at once
const LARGE = 2 ** 30; // bytes: browsers refuse such files without saying that it is for their size

/**
 * @param {File} file
 * @returns {Promise<Tape>} the whole of it
 * @throws {import("./problems.js").Problem} if it cannot be read
 */
export async function readFile(file) {
  let bytes, sound;
  try {
    bytes = await file.arrayBuffer();
  } catch (error) {
    throw tooLarge(file, error) ? sizeProblem(file.name) : unreadableProblem(file.name);
  }
  try {
    sound = await new OfflineAudioContext(1, 1, RATE).decodeAudioData(bytes);
  } catch (error) {
    throw tooLarge(file, error) ? sizeProblem(file.name) : fileProblem(file.name);
  }
  const tape = new Tape(RATE);
  for (let first = 0; first < sound.length; first += PIECE) tape.append(mixed(sound, first));
  tape.ended = true;
  return tape;
}

/** @param {File} file @param {unknown} error why it was not taken in; RangeError: for want of memory */
function tooLarge(file, error) {
  return file.size >= LARGE || (error instanceof Error && error.name === "RangeError");
}

/** @param {AudioBuffer} sound @param {number} first @returns {Int16Array} its channels as one */
function mixed(sound, first) {
  const samples = new Int16Array(Math.min(PIECE, sound.length - first));
  const channels = Array.from({ length: sound.numberOfChannels }, (_, channel) =>
    sound.getChannelData(channel),
  );
  for (let index = 0; index < samples.length; index++) {
    let sum = 0;
    for (const channel of channels) sum += channel[first + index];
    const mean = Math.max(-1, Math.min(1, sum / channels.length));
    samples[index] = Math.round(mean * 32767);
  }
  return samples;
}
