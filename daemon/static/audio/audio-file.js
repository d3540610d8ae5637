/**
 * An audio file: the browser decodes it into a replay buffer.
 */

import { ReplayBuffer } from "../protocol/replay-buffer.js";
import { formatProblem, sizeProblem, unreadableProblem } from "./audio-problems.js";

const RATE = 16_000; // Whisper's rate: a higher one would only cost bandwidth
const CHUNK = RATE; // samples appended at once
const LARGE = 2 ** 30; // bytes: browsers refuse larger files without naming the size as the reason

/**
 * @param {File} file
 * @returns {Promise<ReplayBuffer>} all of the file, mono
 * @throws {import("../protocol/problems.js").Problem} if the browser cannot read or decode it
 */
export async function decodeFile(file) {
  let bytes, audio;
  try {
    bytes = await file.arrayBuffer();
  } catch (error) {
    throw tooLarge(file, error) ? sizeProblem(file.name) : unreadableProblem(file.name);
  }
  try {
    audio = await new OfflineAudioContext(1, 1, RATE).decodeAudioData(bytes);
  } catch (error) {
    throw tooLarge(file, error) ? sizeProblem(file.name) : formatProblem(file.name);
  }
  const buffer = new ReplayBuffer(RATE);
  for (let first = 0; first < audio.length; first += CHUNK) buffer.append(downmix(audio, first));
  buffer.ended = true;
  return buffer;
}

/** @param {File} file @param {unknown} error a RangeError tells that memory was too small */
function tooLarge(file, error) {
  return file.size >= LARGE || (error instanceof Error && error.name === "RangeError");
}

/** @param {AudioBuffer} audio @param {number} first @returns {Int16Array} the mean of all channels */
function downmix(audio, first) {
  const samples = new Int16Array(Math.min(CHUNK, audio.length - first));
  const channels = Array.from({ length: audio.numberOfChannels }, (_, channel) =>
    audio.getChannelData(channel),
  );
  for (let index = 0; index < samples.length; index++) {
    let sum = 0;
    for (const channel of channels) sum += channel[first + index];
    const mean = Math.max(-1, Math.min(1, sum / channels.length));
    samples[index] = Math.round(mean * 32767);
  }
  return samples;
}
