/**
 * What can go wrong with a microphone or an audio file, in words for users.
 */

import { Problem } from "../protocol/problems.js";

/**
 * The microphone did not open.
 * @param {unknown} error what `getUserMedia` threw
 * @returns {Problem}
 */
export function microphoneProblem(error) {
  const name = error instanceof Error ? error.name : "";
  switch (name) {
    case "NotAllowedError":
      return new Problem(
        "The microphone is not allowed here.",
        "Allow it beside the address of this page, or in the settings of your system, and start again.",
      );
    case "NotFoundError":
      return new Problem(
        "There is no microphone.",
        "Connect one and start again, or open a file instead.",
      );
    case "OverconstrainedError":
      return new Problem(
        "The chosen microphone is gone.",
        "Connect it again, or choose another one.",
      );
    case "NotReadableError":
    case "AbortError":
      return new Problem(
        "The microphone does not open.",
        "Another program may be holding it: close that one and start again.",
      );
    default:
      return new Problem("The microphone does not open.", `The browser says: ${error}`);
  }
}

/** Browsers give a page no microphone if it came without encryption. */
export function insecureProblem() {
  return new Problem(
    "This page may not use the microphone, because it did not come over HTTPS.",
    "Put HTTPS in front of the daemon, or open the page on its own machine, at localhost. " +
      "Files can be captioned here, too.",
  );
}

export function microphoneGone() {
  return new Problem(
    "The microphone is gone.",
    "What was said until then is written down. Connect it again and start.",
  );
}

/** @param {string} name of a file in which the browser finds no audio that it can decode */
export function formatProblem(name) {
  return new Problem(
    `Your browser finds no sound it knows in ${name}.`,
    "Try MP3, WAV, FLAC, Ogg or MP4; or use the command captiond file, which knows more.",
  );
}

/** @param {string} name of a file that the browser cannot read */
export function unreadableProblem(name) {
  return new Problem(
    `Your browser cannot read ${name}.`,
    "It may be a folder, or have been moved or changed since you chose it: choose it again.",
  );
}

/** @param {string} name of a file that does not fit into the browser's memory */
export function sizeProblem(name) {
  return new Problem(
    `${name} is too large for the browser to read.`,
    "Cut it into parts, or use the command captiond file, which takes any length.",
  );
}
