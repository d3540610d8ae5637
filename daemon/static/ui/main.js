/**
 * The page: what its controls do.
 */

import { decodeFile } from "../audio/audio-file.js";
import { Microphone, microphones } from "../audio/microphone.js";
import { serviceProblem } from "../protocol/client.js";
import { Problem } from "../protocol/problems.js";
import { Captions } from "./captions.js";
import { Controller } from "./controller.js";
import { element } from "./dom.js";
import { copy, download } from "./download.js";
import { fillLanguages, preferred } from "./languages.js";
import { View } from "./view.js";

/** @import { ReplayBuffer } from "../protocol/replay-buffer.js" */

const READY_POLL_MS = 3_000;

const view = new View();
let captions = new Captions();
/** @type {Controller | null} */
let controller = null;
let busy = false; // from the first press to the last caption
let elapsed = 0; // seconds of all recordings so far: each begins where the last one ended
let saved = 0; // lines that were copied or downloaded

const file = /** @type {HTMLInputElement} */ (element("file"));
const language = /** @type {HTMLSelectElement} */ (element("language"));
const device = /** @type {HTMLSelectElement} */ (element("microphone"));
const temperature = /** @type {HTMLInputElement} */ (element("temperature"));

/** @param {() => Promise<[ReplayBuffer, Microphone?]>} open @param {string} waiting status meanwhile */
async function begin(open, waiting) {
  if (busy) return;
  busy = true;
  view.notice(null);
  view.status(waiting);
  try {
    const [buffer, microphone] = await open();
    const options = {
      language: language.value || null,
      temperature: Number(temperature.value),
      words: true, // subtitles follow them
    };
    controller = new Controller(buffer, options, { view, captions, origin: elapsed });
    view.controls({ running: true, listening: Boolean(microphone), label: "Stop" });
    await controller.run(microphone).finally(() => {
      elapsed += buffer.length / buffer.rate;
    });
  } catch (error) {
    if (error instanceof Problem) {
      view.notice(error);
    } else {
      const advice = `Load it anew. The browser says: ${error}`;
      view.notice(new Problem("This page has a fault of its own.", advice));
      throw error; // for the console
    }
  } finally {
    controller = null;
    busy = false;
    showReady();
  }
}

function listen() {
  return begin(async () => {
    let microphone;
    try {
      microphone = await Microphone.open(device.value);
    } finally {
      await fillMicrophones(microphone?.device ?? device.value); // the chosen one may be gone
    }
    return [microphone.buffer, microphone];
  }, "Waiting for the microphone");
}

/** @param {File} chosen its captions replace earlier ones, so that their times are the file's */
async function captionFile(chosen) {
  if (busy || !(await mayClear())) return;
  clear();
  await begin(async () => [await decodeFile(chosen)], `Reading ${chosen.name}`);
}

function showReady() {
  view.controls({ running: false, listening: false, label: "Start listening" });
  view.status("Ready");
}

function clear() {
  captions = new Captions();
  elapsed = saved = 0;
  view.clear();
}

/** Whether the captions may be removed: all are saved, or the user agrees. */
async function mayClear() {
  if (saved === captions.lines.length) return true;
  const dialog = /** @type {HTMLDialogElement} */ (element("replace"));
  dialog.returnValue = "";
  dialog.showModal();
  await new Promise((resolve) => (dialog.onclose = resolve));
  return dialog.returnValue === "drop";
}

/** @param {string} [current] the id of the chosen one; if it is gone, the default is chosen */
async function fillMicrophones(current = "") {
  const every = await microphones();
  const standard = device.options[0];
  device.replaceChildren(standard, ...every.map(({ label, deviceId }) => new Option(label, deviceId)));
  device.value = current;
  if (device.selectedIndex < 0) standard.selected = true;
}

/** Whether the service is ready. This probe comes first: browsers log the other one's answer as an error. */
async function ready() {
  const answer = await fetch("readyz", { cache: "no-store" }).catch(() => null);
  return Boolean(answer?.ok);
}

/** Show why the service is not ready, until it is. */
async function waitForService() {
  if (await ready()) return;
  do {
    const problem = await serviceProblem().catch((error) => error);
    if (busy) return;
    view.notice(problem, { mild: true });
    await new Promise((resolve) => setTimeout(resolve, READY_POLL_MS));
  } while (!(await ready()));
  if (!busy) view.notice(null);
}

element("listen").onclick = ({ detail }) => {
  if (detail > 1) return; // the second press of a double click: the button's label has changed
  if (controller) controller.stop();
  else listen();
};
for (const kind of ["pointerup", "keydown"]) addEventListener(kind, () => controller?.activate());
element("open").onclick = () => file.click();
element("clear").onclick = async () => {
  if (!(await mayClear())) return;
  clear();
  showReady();
};
element("copy").onclick = async () => {
  const { length } = captions.lines; // more may arrive meanwhile
  try {
    await copy(captions.lines);
  } catch (error) {
    view.notice(null); // else the same problem is not announced again
    view.notice(/** @type {Problem} */ (error));
    return;
  }
  saved = length;
  view.flash("Copied");
};
for (const button of document.querySelectorAll("[data-format]")) {
  button.addEventListener("click", () => {
    download(captions.lines, /** @type {HTMLElement} */ (button).dataset.format ?? "");
    saved = captions.lines.length;
  });
}
element("settings-toggle").onclick = ({ currentTarget }) => {
  const toggle = /** @type {HTMLElement} */ (currentTarget);
  toggle.ariaExpanded = String(toggle.ariaExpanded !== "true");
};
file.onchange = () => {
  const [chosen] = file.files ?? [];
  file.value = ""; // else the user could not choose the same file again
  if (chosen) captionFile(chosen);
};
language.onchange = () => controller?.changeLanguage(language.value || null);
temperature.oninput = () => {
  element("temperature-shown").textContent = temperature.value;
};
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => {
  event.preventDefault();
  const [dropped] = event.dataTransfer?.files ?? [];
  if (dropped) captionFile(dropped);
});
addEventListener("beforeunload", (event) => {
  if (busy || saved < captions.lines.length) event.preventDefault();
});

fillLanguages(language);
language.value = preferred()[0] ?? "";
await fillMicrophones();
navigator.mediaDevices?.addEventListener("devicechange", () => fillMicrophones(device.value));
showReady();
await waitForService();
