/**
 * The page at work: what its controls do.
 */

import { Captions } from "./captions.js";
import { obstacle } from "./client.js";
import { element } from "./dom.js";
import { copy, download } from "./keep.js";
import { offer, preferred } from "./languages.js";
import { Microphone, microphones } from "./microphone.js";
import { fault, Problem } from "./problems.js";
import { readFile } from "./recording.js";
import { Run } from "./run.js";
import { View } from "./view.js";

/** @import { Tape } from "./tape.js" */

const ASK_AGAIN_MS = 3_000; // whether the service is ready

const view = new View();
let captions = new Captions();
/** @type {Run | null} */
let run = null;
let busy = false; // from the first press to the last caption
let elapsed = 0; // seconds of all runs so far: each begins where the last one ended
let kept = 0; // lines that were copied or downloaded

const file = /** @type {HTMLInputElement} */ (element("file"));
const language = /** @type {HTMLSelectElement} */ (element("language"));
const device = /** @type {HTMLSelectElement} */ (element("microphone"));
const temperature = /** @type {HTMLInputElement} */ (element("temperature"));

/** @param {() => Promise<[Tape, Microphone?]>} open @param {string} waiting status until then */
async function begin(open, waiting) {
  if (busy) return;
  busy = true;
  view.notice(null);
  view.status(waiting);
  try {
    const [tape, microphone] = await open();
    const wishes = { language: language.value || null, temperature: Number(temperature.value) };
    run = new Run(tape, wishes, { view, captions, origin: elapsed });
    view.controls({ running: true, listening: Boolean(microphone), label: "Stop" });
    await run.finish(microphone).finally(() => {
      elapsed += tape.length / tape.rate;
    });
  } catch (error) {
    view.notice(error instanceof Problem ? error : fault(error));
    if (!(error instanceof Problem)) throw error; // the console shall have it, too
  } finally {
    run = null;
    busy = false;
    rest();
  }
}

function listen() {
  return begin(async () => {
    let microphone;
    try {
      microphone = await Microphone.open(device.value);
    } finally {
      await offerMicrophones(microphone?.device ?? device.value); // the chosen one may be gone
    }
    return [microphone.tape, microphone];
  }, "Waiting for the microphone");
}

/** @param {File} chosen its captions replace those before, so that their times are the file's */
async function caption(chosen) {
  if (busy || !(await mayDrop())) return;
  clear();
  await begin(async () => [await readFile(chosen)], `Reading ${chosen.name}`);
}

function rest() {
  view.controls({ running: false, listening: false, label: "Start listening" });
  view.status("Ready");
}

function clear() {
  captions = new Captions();
  elapsed = kept = 0;
  view.clear();
}

/** Whether the captions may go: there are none that would be lost, or the user says so. */
async function mayDrop() {
  if (kept === captions.lines.length) return true;
  const dialog = /** @type {HTMLDialogElement} */ (element("replace"));
  dialog.returnValue = "";
  dialog.showModal();
  await new Promise((resolve) => (dialog.onclose = resolve));
  return dialog.returnValue === "drop";
}

/** @param {string} [current] the id of the one that is chosen; where it is gone, the usual one is */
async function offerMicrophones(current = "") {
  const every = await microphones();
  const usual = device.options[0];
  device.replaceChildren(usual, ...every.map(({ label, deviceId }) => new Option(label, deviceId)));
  device.value = current;
  if (device.selectedIndex < 0) usual.selected = true;
}

/** Whether the service is ready; asked first, because its other answers look like faults in the console. */
async function healthy() {
  const answer = await fetch("readyz", { cache: "no-store" }).catch(() => null);
  return Boolean(answer?.ok);
}

/** Say that the service is not ready, until it is. */
async function waitForService() {
  if (await healthy()) return;
  do {
    const problem = await obstacle().catch((error) => error);
    if (busy) return;
    view.notice(problem, { mild: true });
    await new Promise((resolve) => setTimeout(resolve, ASK_AGAIN_MS));
  } while (!(await healthy()));
  if (!busy) view.notice(null);
}

element("listen").onclick = ({ detail }) => {
  if (detail > 1) return; // of a double click: by now the button says something else
  if (run) run.stop();
  else listen();
};
for (const kind of ["pointerup", "keydown"]) addEventListener(kind, () => run?.wake());
element("open").onclick = () => file.click();
element("clear").onclick = async () => {
  if (!(await mayDrop())) return;
  clear();
  rest();
};
element("copy").onclick = async () => {
  const { length } = captions.lines; // more may come meanwhile
  try {
    await copy(captions.lines);
  } catch (error) {
    view.notice(null); // asked for anew, it is said anew
    view.notice(/** @type {Problem} */ (error));
    return;
  }
  kept = length;
  view.mention("Copied");
};
for (const button of document.querySelectorAll("[data-format]")) {
  button.addEventListener("click", () => {
    download(captions.lines, /** @type {HTMLElement} */ (button).dataset.format ?? "");
    kept = captions.lines.length;
  });
}
element("settings-toggle").onclick = ({ currentTarget }) => {
  const toggle = /** @type {HTMLElement} */ (currentTarget);
  toggle.ariaExpanded = String(toggle.ariaExpanded !== "true");
};
file.onchange = () => {
  const [chosen] = file.files ?? [];
  file.value = ""; // or the same file could not be chosen again
  if (chosen) caption(chosen);
};
temperature.oninput = () => {
  element("temperature-shown").textContent = temperature.value;
};
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => {
  event.preventDefault();
  const [dropped] = event.dataTransfer?.files ?? [];
  if (dropped) caption(dropped);
});
addEventListener("beforeunload", (event) => {
  if (busy || kept < captions.lines.length) event.preventDefault();
});

offer(language);
language.value = preferred()[0] ?? "";
await offerMicrophones();
navigator.mediaDevices?.addEventListener("devicechange", () => offerMicrophones(device.value));
rest();
await waitForService();
