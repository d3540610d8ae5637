/**
 * The microphone, recorded into a replay buffer.
 */

import { unreachable } from "../protocol/problems.js";
import { ReplayBuffer } from "../protocol/replay-buffer.js";
import { insecureProblem, microphoneGone, microphoneProblem } from "./audio-problems.js";
import { holdWakeLock } from "./wake-lock.js";

/** @import { Problem } from "../protocol/problems.js" */

const WORKLET = new URL("microphone-worklet.js", import.meta.url);
const FINISH_MS = 500; // the longest wait for the last block: the audio thread may have stopped
const BUFFER_S = 300; // for interruptions; half a minute is needed without any

/**
 * @typedef {object} MicrophoneCallbacks
 * @property {() => void} [running] sound comes in
 * @property {() => void} [suspended] no sound comes in: the browser waits for a click or a key, or a
 *   phone call has begun
 * @property {() => void} data the buffer has more samples, or has ended
 * @property {(peak: number) => void} [level] of the newest block, from 0 to 1
 * @property {(problem: Problem) => void} ended the microphone went away
 */

export class Microphone {
  #context;
  #stream;
  /** @type {AudioWorkletNode | null} */
  #recorder = null;
  #releaseWakeLock = () => {};
  /** @type {Promise<void> | null} */
  #closed = null;

  /** @param {AudioContext} context @param {MediaStream} stream */
  constructor(context, stream) {
    this.#context = context;
    this.#stream = stream;
    this.buffer = new ReplayBuffer(context.sampleRate, BUFFER_S * context.sampleRate);
  }

  /**
   * @param {string} device its id; empty for the browser's default
   * @returns {Promise<Microphone>} records nothing before `record`
   * @throws {Problem} if it does not open
   */
  static async open(device) {
    if (!window.isSecureContext || !navigator.mediaDevices) throw insecureProblem();
    let stream;
    try {
      stream = await navigator.mediaDevices.getUserMedia({
        audio: {
          deviceId: device ? { exact: device } : undefined,
          channelCount: 1,
          // All three are made for telephony. The first two remove speech that is far away or comes
          // from a loudspeaker; the last amplifies noise sixfold before the first word, then clips it.
          echoCancellation: false,
          noiseSuppression: false,
          autoGainControl: false,
        },
      });
    } catch (error) {
      throw microphoneProblem(error);
    }
    try {
      return new Microphone(new AudioContext(), stream);
    } catch (error) {
      for (const track of stream.getTracks()) track.stop();
      throw microphoneProblem(error);
    }
  }

  /** Its id. */
  get device() {
    return this.#stream.getAudioTracks()[0].getSettings().deviceId ?? "";
  }

  /** @param {MicrophoneCallbacks} callbacks @throws {Problem} if the worklet does not load */
  async record(callbacks) {
    const context = this.#context;
    await context.audioWorklet.addModule(WORKLET).catch(() => {
      throw unreachable();
    });
    if (this.#closed) return; // in the meantime
    const recorder = new AudioWorkletNode(context, "recorder", {
      channelCount: 1,
      channelCountMode: "explicit", // more channels are mixed down
    });
    recorder.port.onmessage = ({ data }) => {
      if (data.ended) {
        this.buffer.ended = true;
      } else {
        this.buffer.append(data.samples);
        callbacks.level?.(data.peak);
      }
      callbacks.data();
    };
    this.#recorder = recorder;
    this.#releaseWakeLock = holdWakeLock();
    this.#stream.getAudioTracks()[0].onended = () => callbacks.ended(microphoneGone());
    context.createMediaStreamSource(this.#stream).connect(recorder).connect(context.destination);
    const onState = () => {
      if (context.state === "closed") return;
      if (context.state === "running") {
        callbacks.running?.();
      } else {
        callbacks.suspended?.();
        this.activate();
      }
    };
    context.onstatechange = onState;
    onState();
  }

  /** Start the sound, or start it again: browsers may ask for a click or a key first. */
  activate() {
    this.#context.resume().catch(() => {}); // fails during a phone call, whose end changes the state
  }

  /** Stop at once. The buffer keeps what was recorded, to the last sample. */
  close() {
    return (this.#closed ??= this.#close());
  }

  async #close() {
    const port = this.#recorder?.port;
    if (port && this.#context.state === "running") {
      await new Promise((resolve) => {
        port.addEventListener("message", ({ data }) => data.ended && resolve(undefined));
        port.postMessage("finish");
        setTimeout(resolve, FINISH_MS);
      });
    }
    this.buffer.ended = true;
    this.#releaseWakeLock();
    for (const track of this.#stream.getTracks()) track.stop();
    this.#context.close(); // not awaited: on a busy machine it takes long, and nothing depends on it
  }
}

/** @returns {Promise<MediaDeviceInfo[]>} empty before the user has allowed a microphone once */
export async function microphones() {
  const every = (await navigator.mediaDevices?.enumerateDevices()) ?? [];
  return every.filter(({ kind, label }) => kind === "audioinput" && label);
}
