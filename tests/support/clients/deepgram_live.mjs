// Deepgram's own client for node: a stream for each job, every message that it got printed, one a line.
// node deepgram_live.mjs PORT KEY JOBS     (a JSON file: [{"audio": path, "options": {…}}, …])
import fs from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { DeepgramClient } from "@deepgram/sdk";

const FRAME = 16_000; // bytes
const [port, apiKey, jobs] = process.argv.slice(2);
const url = `ws://127.0.0.1:${port}`;
const environment = { base: url, production: url, agent: url, agentRest: url };
const client = new DeepgramClient({ apiKey, environment });

async function transcribe(job, { audio, options, pause_at: pauseAt = 0, flush, keep_alive: alive = 0 }) {
  const data = fs.readFileSync(audio);
  const show = (about) => console.log(JSON.stringify({ job, ...about }));
  const connection = await client.listen.v1.connect({ ...options, reconnectAttempts: 0 });
  const failed = new Promise((_, reject) => connection.on("error", reject));
  const closed = new Promise((resolve) => connection.on("close", resolve));
  connection.on("message", show);
  connection.connect();
  await Promise.race([connection.waitForOpen(), failed]);
  const send = (first, last) => {
    for (let at = first; at < last; at += FRAME) connection.sendMedia(data.subarray(at, Math.min(at + FRAME, last)));
  };
  send(0, pauseAt);
  for (let count = 0; count < alive; count += 1) {
    await sleep(500);
    connection.sendKeepAlive({ type: "KeepAlive" });
  }
  if (flush) connection.sendFinalize({ type: "Finalize" });
  send(pauseAt, data.length);
  connection.sendFinalize({ type: "Finalize" });
  connection.sendCloseStream({ type: "CloseStream" });
  await closed;
}

for (const [job, work] of JSON.parse(fs.readFileSync(jobs)).entries()) {
  try {
    await transcribe(job, work);
  } catch (error) {
    console.log(JSON.stringify({ job, type: "exception", error: `${error.message ?? error}` }));
  }
}
process.exit(0);
