/**
 * The microphone, recorded onto a tape.
 */

import { stayAwake } from "./awake.js";
import { insecureProblem, microphoneGone, microphoneProblem, unreachable } from "./problems.js";
import { Tape } from "./tape.js";

/** @import { Problem } from "./problems.js" */

const RECORDER = new URL("microphone-worklet.js", import.meta.url);
const FINISH_MS = 500; // for the last block, of an audio thread that may have stopped
const KEPT_S = 300; // of tape, for interruptions; half a minute of it is needed without any

/**
 * @typedef {object} Ears
 * @property {() => void} [awake] sound is coming in
 * @property {() => void} [asleep] none is: the browser wants a click or a key first, or a call came
 * @property {() => void} more there is more on the tape
 * @property {(peak: number) => void} [level] of a twenty-fifth of a second, from 0 to 1
 * @property {(problem: Problem) => void} gone the microphone went away
 */

export class Microphone {
  #context;
  #stream;
  /** @type {AudioWorkletNode | null} */
  #recorder = null;
  #letSleep = () => {};
  /** @type {Promise<void> | null} */
  #closed = null;

  /** @param {AudioContext} context @param {MediaStream} stream */
  constructor(context, stream) {
    this.#context = context;
    this.#stream = stream;
    this.tape = new Tape(context.sampleRate, KEPT_S * context.sampleRate);
  }

  /**
   * @param {string} device its id; empty for the one that the browser prefers
   * @returns {Promise<Microphone>} silent until `record`
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
          // All made for telephones. The first two cut away speech that is far off or comes from a
          // loudspeaker; the last lifts noise sixfold before the first word, and then clips that.
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

  /** @param {Ears} ears @throws {Problem} if the recorder itself cannot be fetched */
  async record(ears) {
    const context = this.#context;
    await context.audioWorklet.addModule(RECORDER).catch(() => {
      throw unreachable();
    });
    if (this.#closed) return; // in the meantime
    const recorder = new AudioWorkletNode(context, "recorder", {
      channelCount: 1,
      channelCountMode: "explicit", // more channels are mixed down
    });
    recorder.port.onmessage = ({ data }) => {
      if (data.ended) {
        this.tape.ended = true;
      } else {
        this.tape.append(data.samples);
        ears.level?.(data.peak);
      }
      ears.more();
    };
    this.#recorder = recorder;
    this.#letSleep = stayAwake();
    this.#stream.getAudioTracks()[0].onended = () => ears.gone(microphoneGone());
    context.createMediaStreamSource(this.#stream).connect(recorder).connect(context.destination);
    const look = () => {
      if (context.state === "closed") return;
      if (context.state === "running") {
        ears.awake?.();
      } else {
        ears.asleep?.();
        this.wake();
      }
    };
    context.onstatechange = look;
    look();
  }

  /** Begin to hear, or go on: browsers may want a click or a key first. */
  wake() {
    this.#context.resume().catch(() => {}); // not during a call, say: its end is another change of state
  }

  /** Stop at once; what was recorded stays on the tape, to its last sample. */
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
    this.tape.ended = true;
    this.#letSleep();
    for (const track of this.#stream.getTracks()) track.stop();
    await this.#context.close();
  }
}

/** @returns {Promise<MediaDeviceInfo[]>} nameless, or none at all, before one was ever allowed */
export async function microphones() {
  const every = (await navigator.mediaDevices?.enumerateDevices()) ?? [];
  return every.filter(({ kind, label }) => kind === "audioinput" && label);
}
