/**
 * The recorder, on the browser's audio thread: it turns sound into blocks of 16-bit samples.
 *
 * It posts each block to the page as {samples, peak}. Upon "finish" it posts the rest of the last
 * block, then {ended: true}. It plays nothing.
 */

const BLOCK_S = 0.04;

class Recorder extends AudioWorkletProcessor {
  #block = new Int16Array(Math.round(sampleRate * BLOCK_S));
  #filled = 0;
  #peak = 0;
  #finished = false;

  constructor() {
    super();
    this.port.onmessage = () => {
      this.#send();
      this.#finished = true;
      this.port.postMessage({ ended: true });
    };
  }

  /** @param {Float32Array[][]} inputs */
  process(inputs) {
    for (const value of inputs[0][0] ?? []) {
      const clipped = Math.max(-1, Math.min(1, value));
      this.#peak = Math.max(this.#peak, Math.abs(clipped));
      this.#block[this.#filled++] = Math.round(clipped * 32767);
      if (this.#filled === this.#block.length) this.#send();
    }
    return !this.#finished;
  }

  #send() {
    const samples = this.#block.slice(0, this.#filled);
    this.port.postMessage({ samples, peak: this.#peak }, [samples.buffer]);
    this.#filled = this.#peak = 0;
  }
}

registerProcessor("recorder", Recorder);
