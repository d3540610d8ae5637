// OpenAI's own client for node: a transcription for each job, its text printed, one a line.
// node openai_files.mjs PORT KEY JOBS     (a JSON file: [{"audio": path of a WAV file, "options": {…}}, …])
import fs from "node:fs";
import OpenAI, { toFile } from "openai";

const [port, apiKey, jobs] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `http://127.0.0.1:${port}/v1`, apiKey, maxRetries: 0 });
for (const [job, { audio, options }] of JSON.parse(fs.readFileSync(jobs)).entries()) {
  const about = { job, type: "text" };
  try {
    const file = await toFile(fs.createReadStream(audio), "speech.wav");
    about.text = (await client.audio.transcriptions.create({ file, model: "whisper-1", ...options })).text;
  } catch (error) {
    Object.assign(about, { type: "exception", error: `${error.status} ${error}` });
  }
  console.log(JSON.stringify(about));
}
