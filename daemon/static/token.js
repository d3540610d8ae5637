/**
 * The token of a service that asks for one: it stands in the page's address, behind #token=, where no
 * server and no log sees it.
 */

const SUBPROTOCOL = "captiond.v1";

/** Null, too, for what could be none, and what a websocket would not let pass. */
function token() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  return given && /^[\w.~-]+$/.test(given) ? given : null;
}

/** What a websocket offers: browsers cannot send a header of their own with it. */
export function protocols() {
  return token() ? [SUBPROTOCOL, `captiond.token.${token()}`] : [SUBPROTOCOL];
}

/** The headers of a plain request. @returns {Record<string, string>} */
export function authorised() {
  return token() ? { Authorization: `Bearer ${token()}` } : {};
}
