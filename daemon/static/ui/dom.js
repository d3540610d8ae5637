/**
 * Finds and makes elements.
 */

/** @template {HTMLElement} [E=HTMLElement] @param {string} id @returns {E} */
export function element(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`no element ${id}`);
  return /** @type {E} */ (found);
}

/** @param {string} name its class @param {string} text */
export function part(name, text) {
  const span = document.createElement("span");
  span.className = name;
  span.textContent = text;
  return span;
}

/**
 * The words of a caption; `dir` follows their script.
 * @param {HTMLElement[]} parts
 * @param {string} [language] a code
 */
export function words(parts, language = "") {
  const span = part("words", "");
  span.dir = "auto";
  span.lang = language;
  span.append(...parts.filter((one) => one.textContent));
  return span;
}

/** @param {...(Node | string)} children */
export function paragraph(...children) {
  const made = document.createElement("p");
  made.append(...children);
  return made;
}
