// Deepgram's own client for node: a transcription for each job, its text printed, one a line.
// node deepgram_files.mjs PORT KEY JOBS     (a JSON file: [{"audio": path of a WAV file, "options": {…}}, …])
import fs from "node:fs";
import { DeepgramClient } from "@deepgram/sdk";

const [port, apiKey, jobs] = process.argv.slice(2);
const url = `http://127.0.0.1:${port}`;
const environment = { base: url, production: url, agent: url, agentRest: url };
const client = new DeepgramClient({ apiKey, environment, maxRetries: 0 });
for (const [job, { audio, options }] of JSON.parse(fs.readFileSync(jobs)).entries()) {
  const about = { job, type: "text" };
  try {
    const file = fs.createReadStream(audio);
    const answer = await client.listen.v1.media.transcribeFile(file, { model: "nova-3", ...options });
    about.text = answer.results.channels[0].alternatives[0].transcript;
  } catch (error) {
    Object.assign(about, { type: "exception", error: `${error.statusCode} ${error}` });
  }
  console.log(JSON.stringify(about));
}
