/**
 * What can go wrong, in words for people: a title that says what, advice that says what to do.
 */

export class Problem extends Error {
  /** @param {string} title one sentence @param {string} advice what to do */
  constructor(title, advice) {
    super(title);
    this.advice = advice;
    /** Seconds before which another attempt is in vain. */
    this.after = 0;
  }
}

/**
 * Why a microphone did not open.
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

/** Why there is no microphone at all: browsers keep it from pages that came without encryption. */
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

/** @param {string} name of a file that holds no sound the browser knows */
export function fileProblem(name) {
  return new Problem(
    `Your browser finds no sound it knows in ${name}.`,
    "Try MP3, WAV, FLAC, Ogg or MP4; or use the command captiond file, which knows more.",
  );
}

/** @param {string} name of a file that the browser cannot get at */
export function unreadableProblem(name) {
  return new Problem(
    `Your browser cannot read ${name}.`,
    "It may be a folder, or have been moved or changed since you chose it: choose it again.",
  );
}

/** @param {string} name of a file that is too large to be taken in at once */
export function sizeProblem(name) {
  return new Problem(
    `${name} is too large for the browser to read.`,
    "Cut it into parts, or use the command captiond file, which takes any length.",
  );
}

/** Captions that do not get onto the clipboard. */
export function copyProblem() {
  return new Problem(
    "Your browser does not let this page copy.",
    "Download the captions instead, as TXT, SRT or VTT.",
  );
}

export function unreachable() {
  return new Problem(
    "The captioning service does not answer.",
    "See that captiond runs, and that the network leads to it.",
  );
}

/** @param {string} reason the service's own words */
export function busy(reason) {
  const [cause] = reason.split(": try again"); // that is done for the user
  return new Problem(
    `The service takes no session just now: ${cause}.`,
    "It is asked again by itself; what you say in the meantime is kept.",
  );
}

/** @param {string} reason the service's own words */
export function refused(reason) {
  return new Problem("The service refuses this session.", reason);
}

/** A service that wants a token, and got none that it knows. */
export function stranger() {
  return new Problem(
    "The service wants a token, and knows none of this page's.",
    "Add #token= and your token to the address of this page, and load it anew.",
  );
}

/** A service that answers, but no websocket comes about. */
export function blocked() {
  return new Problem(
    "The service is there, but no connection to it comes about.",
    `A proxy between may not pass websockets on, or the service may not allow ${location.origin}.`,
  );
}

/** A connection that broke off. */
export function interrupted() {
  return new Problem(
    "The connection broke off.",
    "It is mended by itself; what you say in the meantime is kept and written down.",
  );
}

export function restarting() {
  return new Problem(
    "The service is stopping or starts anew.",
    "It is mended by itself; what you say in the meantime is kept and written down.",
  );
}

/** @param {string} reason the service's own words; may be empty */
export function failing(reason) {
  return new Problem(
    "The service fails again and again.",
    reason ? `It says: ${reason}.` : "The daemon's log says what is wrong.",
  );
}

/** @param {unknown} error that nobody has thought of */
export function fault(error) {
  return new Problem("This page has a fault of its own.", `Load it anew. The browser says: ${error}`);
}

/** @param {number} seconds of sound that went unheard */
export function lost(seconds) {
  return new Problem(
    `The interruption was too long: ${Math.ceil(seconds)} s of what was said went unheard.`,
    "Repeat it, if you can.",
  );
}
