/**
 * The recorder, on the browser's audio thread: sound in, blocks of 16-bit samples out.
 *
 * Each block goes to the page as {samples, peak}; asked to "finish", it sends what is left of the
 * last block and then {ended: true}. It plays nothing.
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
