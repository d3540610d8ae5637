/**
 * The overlay at work: the microphone's captions over a transparent page, for OBS and its like.
 *
 * Nobody watches over it: it starts by itself, tries again by itself, and takes captions away when
 * nothing more is said.
 */

import { Captions } from "./captions.js";
import { Client } from "./client.js";
import { element, paragraph, part, words } from "./dom.js";
import { preferred } from "./languages.js";
import { Microphone } from "./microphone.js";
import { options } from "./options.js";
import { Problem } from "./problems.js";

/** @import { Line } from "./captions.js" */
/** @import { Message } from "./course.js" */

const SHOWN_MS = 6_000; // a caption after which nothing is said
const KEPT = 8; // captions: as many as there may be lines
const TRY_AGAIN_MS = 10_000;
const OBS = "OBS itself has to be started with --enable-media-stream.";

const log = element("log");
const live = element("live");
const captions = new Captions(0); // nobody reads back
let timer = 0;
let wrong = ""; // what `say` said

/** @param {{message: string, advice?: string} | null} problem */
function say(problem) {
  const text = problem ? `${problem.message} ${problem.advice ?? ""}`.trim() : "";
  if (text === wrong) return; // or it would be read out again
  wrong = text;
  document.body.classList.toggle("troubled", Boolean(text));
  element("say").replaceChildren(...(text ? [paragraph(part("words", text))] : []));
}

/** @param {Line | null} line that has become final, if one has */
function show(line) {
  if (line) log.append(paragraph(words([part("settled", line.text)], line.language)));
  while (log.childElementCount > KEPT) log.firstElementChild?.remove();
  const spoken = captions.spoken
    .filter(({ settled, tentative }) => settled || tentative)
    .map(({ settled, tentative }) =>
      paragraph(words([part("settled", settled), part("tentative", tentative)])),
    );
  live.replaceChildren(...spoken);
  clearTimeout(timer);
  if (!spoken.length) timer = setTimeout(() => log.replaceChildren(), SHOWN_MS);
}

/** @param {Message} message */
function heard(message) {
  if (["speech", "partial", "final"].includes(message.type)) show(captions.heard(message));
}

/** @param {string | null} language until the microphone or the service is gone */
async function caption(language) {
  const microphone = await Microphone.open("").catch((problem) => {
    throw new Problem(problem.message, `${problem.advice} ${OBS}`);
  });
  const client = new Client(
    microphone.tape,
    { language, temperature: 0 },
    {
      begun: (offset) => {
        captions.begin(offset);
        say(null);
        show(null);
      },
      resumed: () => say(null),
      heard,
      waiting: say,
    },
  );
  const gone = new Promise((_, reject) => {
    document.onpointerup = () => microphone.wake();
    microphone
      .record({
        awake: () => document.body.classList.remove("waits"),
        asleep: () => document.body.classList.add("waits"),
        more: () => client.advance(),
        gone: reject,
      })
      .catch(reject);
  });
  try {
    await Promise.race([gone, client.run()]);
  } finally {
    client.abandon();
    await microphone.close();
  }
}

async function begin() {
  const { size, lines, align, language } = options(
    new URLSearchParams(location.search),
    preferred()[0] ?? "",
  );
  const { style } = document.documentElement;
  style.setProperty("--size", `${size}px`);
  style.setProperty("--lines", String(lines));
  style.setProperty("--align", align);
  for (;;) {
    await caption(language).catch(say);
    await new Promise((resolve) => setTimeout(resolve, TRY_AGAIN_MS));
  }
}

begin().catch(say);
