/**
 * The overlay: the microphone's captions over a transparent page, for OBS and similar programs.
 *
 * Nobody operates it: it starts and recovers by itself, and removes captions when nobody speaks.
 */

import { Microphone } from "../audio/microphone.js";
import { Client } from "../protocol/client.js";
import { Problem } from "../protocol/problems.js";
import { Captions } from "./captions.js";
import { element, paragraph, part, words } from "./dom.js";
import { preferred } from "./languages.js";
import { parseOptions } from "./overlay-options.js";

/** @import { Message } from "../protocol/resume-state.js" */
/** @import { Line } from "./captions.js" */

const SHOWN_MS = 6_000; // of the last caption
const MAX_CAPTIONS = 8; // in the document: as many as there may be lines
const RETRY_MS = 10_000;
const OBS = "OBS itself has to be started with --enable-media-stream.";

const log = element("log");
const live = element("live");
const captions = new Captions(0); // the overlay shows no earlier lines
let clearTimer = 0;
let lastProblem = "";

/** @param {{message: string, advice?: string} | null} problem */
function showProblem(problem) {
  const text = problem ? `${problem.message} ${problem.advice ?? ""}`.trim() : "";
  if (text === lastProblem) return; // else screen readers read it again
  lastProblem = text;
  document.body.classList.toggle("with-problem", Boolean(text));
  element("problem").replaceChildren(...(text ? [paragraph(part("words", text))] : []));
}

/** @param {Line | null} line that has become final, if any */
function show(line) {
  if (line) log.append(paragraph(words([part("stable", line.text)], line.language)));
  while (log.childElementCount > MAX_CAPTIONS) log.firstElementChild?.remove();
  const partials = captions.partials
    .filter(({ stable, tentative }) => stable || tentative)
    .map(({ stable, tentative }) =>
      paragraph(words([part("stable", stable), part("tentative", tentative)])),
    );
  live.replaceChildren(...partials);
  clearTimeout(clearTimer);
  if (!partials.length) clearTimer = setTimeout(() => log.replaceChildren(), SHOWN_MS);
}

/** @param {Message} message */
function receive(message) {
  if (["speech", "partial", "final"].includes(message.type)) show(captions.receive(message));
}

/** @param {string | null} language until the microphone or the service fails */
async function caption(language) {
  const microphone = await Microphone.open("").catch((problem) => {
    throw new Problem(problem.message, `${problem.advice} ${OBS}`);
  });
  const client = new Client(
    microphone.buffer,
    { language, temperature: 0 },
    {
      started: (offset) => {
        captions.startSession(offset);
        showProblem(null);
        show(null);
      },
      resumed: () => showProblem(null),
      message: receive,
      waiting: showProblem,
    },
  );
  const ended = new Promise((_, reject) => {
    document.onpointerup = () => microphone.activate();
    microphone
      .record({
        running: () => document.body.classList.remove("suspended"),
        suspended: () => document.body.classList.add("suspended"),
        data: () => client.advance(),
        ended: reject,
      })
      .catch(reject);
  });
  try {
    await Promise.race([ended, client.run()]);
  } finally {
    client.abort();
    await microphone.close();
  }
}

async function begin() {
  const { size, lines, align, language } = parseOptions(
    new URLSearchParams(location.search),
    preferred()[0] ?? "",
  );
  const { style } = document.documentElement;
  style.setProperty("--size", `${size}px`);
  style.setProperty("--lines", String(lines));
  style.setProperty("--align", align);
  for (;;) {
    await caption(language).catch(showProblem);
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

begin().catch(showProblem);
