/**
 * Keeps the screen on while the page listens: a phone that sleeps records nothing.
 */

/** @returns {() => void} releases the lock */
export function holdWakeLock() {
  /** @type {WakeLockSentinel | null} */
  let lock = null;
  let released = false;
  const request = async () => {
    if (document.hidden || !navigator.wakeLock) return;
    try {
      lock = await navigator.wakeLock.request("screen"); // the browser drops it when it hides the page
    } catch {
      return; // the system may refuse, for example with a low battery
    }
    if (released) lock.release();
  };
  document.addEventListener("visibilitychange", request);
  request();
  return () => {
    released = true;
    document.removeEventListener("visibilitychange", request);
    lock?.release();
  };
}
