// OpenAI's own client for node against a daemon: base URL, key and recording in; what it makes of them as JSON.
import fs from "node:fs";
import OpenAI from "openai";

const [url, key, path] = process.argv.slice(2);
const client = new OpenAI({ baseURL: url, apiKey: key, maxRetries: 0 });
const ask = (options) =>
  client.audio.transcriptions.create({ file: fs.createReadStream(path), model: "whisper-1", ...options });

const found = { json: await ask({}), text: await ask({ response_format: "text" }), events: [], models: [] };
found.verbose_json = await ask({
  response_format: "verbose_json",
  timestamp_granularities: ["word", "segment"],
});
for await (const event of await ask({ stream: true })) found.events.push(event);
for await (const model of client.models.list()) found.models.push(model.id);
try {
  await ask({ model: "no-such" });
} catch (error) {
  found.error = [error.status, error.code];
}
console.log(JSON.stringify(found));
