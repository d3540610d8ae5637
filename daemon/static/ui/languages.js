/**
 * Whisper's languages, with their names in the user's language.
 */

const CODES = (
  "af am ar as az ba be bg bn bo br bs ca cs cy da de el en es et eu fa fi fo fr gl gu ha haw he hi hr ht hu hy id " +
  "is it ja jw ka kk km kn ko la lb ln lo lt lv mg mi mk ml mn mr ms mt my ne nl nn no oc pa pl ps pt ro ru sa sd " +
  "si sk sl sn so sq sr su sv sw ta te tg th tk tl tr tt uk ur uz vi yi yo yue zh"
).split(" ");

const STANDARD = /** @type {Record<string, string>} */ ({ jw: "jv" }); // Whisper's own codes

/** The user's languages. Some systems name locales that are no tags: en-US@posix, or C. */
const tags = navigator.languages.filter(wellFormed);
if (!tags.length) tags.push("en");

const names = new Intl.DisplayNames(tags, { type: "language" });

/** @param {string} code @returns {string} such as "German" */
export function nameOf(code) {
  return names.of(STANDARD[code] ?? code) ?? code;
}

/** Those of the user's languages that Whisper knows, the preferred one first. */
export function preferred() {
  const codes = tags.map((tag) => new Intl.Locale(tag).language);
  return [...new Set(codes)].filter((code) => CODES.includes(code));
}

/** @param {HTMLSelectElement} select gets an option for each; the empty value asks for detection */
export function fillLanguages(select) {
  const own = preferred();
  const rest = CODES.filter((code) => !own.includes(code));
  rest.sort((one, other) => nameOf(one).localeCompare(nameOf(other)));
  select.append(
    new Option("Detect the language", ""),
    group("Yours", own),
    group("All", rest),
  );
}

/** @param {string} tag */
function wellFormed(tag) {
  try {
    return Boolean(new Intl.Locale(tag));
  } catch {
    return false;
  }
}

/** @param {string} label @param {string[]} codes */
function group(label, codes) {
  const element = document.createElement("optgroup");
  element.label = label;
  element.append(...codes.map((code) => new Option(nameOf(code), code)));
  element.hidden = !codes.length;
  return element;
}
