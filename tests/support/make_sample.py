"""Makes the demo's sample, clients/sample.flac and clients/sample.txt: a dialogue of two voices.

Never imported by captiond or its tests. Run by hand from the repository's root, with the package
soxr and the programs flite and hibari (package hibari-tts) installed:

    python tests/support/make_sample.py

The sample is synthesised from our own text; text and sound are licensed Apache-2.0, as captiond is.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

RATE = 16_000  # Hz
LEVEL_DBFS = -23.0  # RMS of the voiced parts of every utterance
NOISE_DBFS = -66.0  # a quiet room: true digital silence is nothing a microphone ever delivers
FADE_S = 0.01
LEAD_S = 0.8  # silence before the first word and after the last
PAUSES_S = (0.8, 1.0, 0.75, 1.1, 0.9, 0.7, 1.0, 0.85)  # after each utterance but the last

Samples = NDArray[np.float64]


def spoken(command: Sequence[str]) -> Samples:
    """What a speech program writes: samples [n] at 16 kHz. It gets the output's path as last word.

    Raises RuntimeError where the program is not installed.
    """
    program = shutil.which(command[0])
    if program is None:
        raise RuntimeError(f"the program {command[0]} is not installed")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "speech.wav"
        subprocess.run([program, *command[1:], path], check=True, stdout=subprocess.DEVNULL)
        samples, rate = soundfile.read(path)
    return np.asarray(soxr.resample(samples, rate, RATE), np.float64)


def guest(text: str) -> Samples:
    """The neural voice; the seed makes it repeatable."""
    return spoken(["hibari", "--seed", "1", text, "-o"])


def host(text: str) -> Samples:
    """One of flite's built-in voices."""
    return spoken(["flite", "-voice", "rms", "-t", text, "-o"])


DIALOGUE = (
    (guest, "Good morning, what does this program do?"),
    (host, "It listens while you speak, and shows captions as you go."),
    (guest, "Does it wait until I have finished?"),
    (host, "No. The first words appear early, and they are corrected as you go on."),
    (guest, "And when I pause?"),
    (host, "Then the sentence is complete, and the final text is written down."),
    (guest, "Who does the listening?"),
    (host, "A speech model called Whisper, on your own computer."),
    (guest, "Thank you, that is all I wanted to know."),
)


def levelled(samples: Samples) -> Samples:
    """Trim the silence at both ends, set the level, fade in and out."""
    window = RATE // 100
    power = np.convolve(samples**2, np.full(window, 1 / window), mode="same")
    voiced = np.flatnonzero(power > power.max() * 1e-4)
    margin = RATE // 20  # the quiet beginnings and ends of words
    speech: Samples = samples[max(voiced[0] - margin, 0) : voiced[-1] + margin]
    speech = speech * (10 ** (LEVEL_DBFS / 20) / np.sqrt(power[voiced].mean()))
    fade = np.linspace(0, 1, round(FADE_S * RATE))
    speech[: fade.size] *= fade
    speech[-fade.size :] *= fade[::-1]
    return speech


def dialogue() -> Samples:
    """All utterances with their pauses, over a quiet noise bed: samples [n] at 16 kHz."""
    parts = [np.zeros(round(LEAD_S * RATE))]
    for (speak, text), pause in zip(DIALOGUE, (*PAUSES_S, LEAD_S), strict=True):
        parts += [levelled(speak(text)), np.zeros(round(pause * RATE))]
    speech = np.concatenate(parts)
    noise = np.random.default_rng(0).normal(size=speech.size)
    return speech + noise * 10 ** (NOISE_DBFS / 20)


def main() -> None:
    """Write both files."""
    folder = Path(__file__).parent.parents[2] / "clients"
    soundfile.write(folder / "sample.flac", dialogue(), RATE, subtype="PCM_16")
    lines = "".join(f"{text}\n" for _, text in DIALOGUE)
    (folder / "sample.txt").write_text(lines, encoding="utf-8")


if __name__ == "__main__":
    main()
