/**
 * What can go wrong, in words for users: a title says what happened, advice says what to do.
 *
 * Here are the problems of the service and of the connection to it.
 */

export class Problem extends Error {
  /** @param {string} title one sentence @param {string} advice what to do */
  constructor(title, advice) {
    super(title);
    this.advice = advice;
    /** Seconds before which another attempt is useless. */
    this.retryAfter = 0;
  }
}

export function unreachable() {
  return new Problem(
    "The captioning service does not answer.",
    "See that captiond runs, and that the network leads to it.",
  );
}

/** @param {string} reason the service's own words */
export function busy(reason) {
  const [cause] = reason.split(": try again"); // the page does that for the user
  return new Problem(
    `The service takes no session just now: ${cause}.`,
    "It is asked again by itself; what you say in the meantime is kept.",
  );
}

/** @param {string} reason the service's own words */
export function refused(reason) {
  return new Problem("The service refuses this session.", reason);
}

/** The service asks for a token and does not know the page's. */
export function unauthorized() {
  return new Problem(
    "The service wants a token, and knows none of this page's.",
    "Add #token= and your token to the address of this page, and load it anew.",
  );
}

/** The service answers plain requests, but no websocket opens. */
export function blocked() {
  return new Problem(
    "The service is there, but no connection to it comes about.",
    `A proxy between may not pass websockets on, or the service may not allow ${location.origin}.`,
  );
}

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

/** @param {number} seconds of sound that no session got */
export function soundLost(seconds) {
  return new Problem(
    `The interruption was too long: ${Math.ceil(seconds)} s of what was said went unheard.`,
    "Repeat it, if you can.",
  );
}
