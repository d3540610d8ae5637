/**
 * Keeps the screen on while the page listens: a phone that sleeps hears nothing.
 */

/** @returns {() => void} lets it sleep again */
export function stayAwake() {
  /** @type {WakeLockSentinel | null} */
  let lock = null;
  let over = false;
  const ask = async () => {
    if (document.hidden || !navigator.wakeLock) return;
    try {
      lock = await navigator.wakeLock.request("screen"); // gone whenever the page is hidden
    } catch {
      return; // the system's own choice, with a low battery say
    }
    if (over) lock.release();
  };
  document.addEventListener("visibilitychange", ask);
  ask();
  return () => {
    over = true;
    document.removeEventListener("visibilitychange", ask);
    lock?.release();
  };
}
