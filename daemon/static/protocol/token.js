/**
 * The token of a service that asks for one. It stands in the page's address behind #token=, so no
 * server and no log sees it.
 */

const SUBPROTOCOL = "captiond.v1";

/** Null, too, if the address holds text that a websocket would refuse. */
function token() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  return given && /^[\w.~-]+$/.test(given) ? given : null;
}

/** What a websocket offers: browsers let a page add no header to its request. */
export function subprotocols() {
  return token() ? [SUBPROTOCOL, `captiond.token.${token()}`] : [SUBPROTOCOL];
}

/** The headers of a plain request. @returns {Record<string, string>} */
export function authorization() {
  return token() ? { Authorization: `Bearer ${token()}` } : {};
}
