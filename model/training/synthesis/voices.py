"""Speech synthesis: the voices of hibari-tts and flite behind one function, on one thread each.

Speech is a function of the arguments.
"""

import subprocess
import tempfile
import unicodedata
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, assert_never

import numpy as np
import soundfile
from numpy.typing import NDArray

_FLITE_TIMEOUT_S = 120
# flite reads plain ASCII: a dash is a pause, an accent is dropped.
_ASCII = str.maketrans({"—": ", ", "£": "pounds ", "Œ": "Oe", "œ": "oe", "æ": "ae", "Æ": "Ae"})


class VoiceError(Exception):
    """A missing or failed synthesiser; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Voice:
    """A speaker. variant: its name in the synthesiser."""

    synthesiser: Literal["hibari", "flite"]
    variant: str
    weight: float  # how often it speaks, relative to the others
    pitches: tuple[float, float]  # bounds of factors on its pitch, formants unchanged

    @property
    def name(self) -> str:
        """The prefix of the manifest's column `speaker`."""
        return f"{self.synthesiser}-{self.variant}"

    def check(self) -> None:
        """Raise VoiceError when the synthesiser, or this voice of it, is not installed."""
        match self.synthesiser:
            case "hibari":
                hibari_voice(self.variant)
            case "flite":
                if self.variant not in flite_voices():
                    raise VoiceError(
                        f"flite has no voice {self.variant}: install your system's full flite, "
                        "or leave that voice out"
                    )
            case unknown:
                assert_never(unknown)

    def speak(
        self, text: str, *, tempo: float, pitch: float, seed: int
    ) -> tuple[NDArray[np.float32], int]:
        """Read `text` aloud: float32 [samples], mono, in about [-1, 1], and its rate in Hz.

        tempo: 1 is the voice's own, 2 twice as fast. pitch: factor on the fundamental. seed: of hibari's
        breath noise. Raises VoiceError, also for silence.
        """
        match self.synthesiser:
            case "hibari":
                audio, rate = _speak_hibari(self.variant, text, tempo, pitch, seed)
            case "flite":
                audio, rate = _speak_flite(self.variant, text, tempo, pitch)
            case unknown:
                assert_never(unknown)
        if not audio.any():
            raise VoiceError(f"{self.name} said nothing for {text!r}: leave that out of the texts")
        return audio, rate


VOICES = (
    Voice("hibari", "heart", 0.80, (0.6, 1.15)),
    Voice("flite", "awb", 0.05, (0.75, 1.1)),
    Voice("flite", "kal16", 0.04, (0.9, 1.5)),
    Voice("flite", "rms", 0.06, (1.0, 1.0)),  # its pitch cannot be set
    Voice("flite", "slt", 0.05, (0.7, 1.15)),
)
_FLITE_PITCH_HZ = {"awb": 127, "kal16": 90, "slt": 170}  # as measured


@cache
def hibari_voice(name: str) -> Any:
    """One of hibari's voices, loaded. Raises VoiceError."""
    try:
        from hibari import Hibari  # noqa: PLC0415  (an extra's)
    except ImportError:
        raise VoiceError(
            "hibari-tts is not installed: pip install 'captiond[training]', then run again"
        ) from None
    return Hibari(name, threads=1)


@cache
def flite_voices() -> frozenset[str]:
    """The names that the installed flite knows. Raises VoiceError."""
    try:
        listed = subprocess.run(
            ["flite", "-lv"],  # noqa: S607  (wherever the system keeps it)
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        raise VoiceError("flite is not installed: apt install flite (on Debian)") from None
    return frozenset(listed.stdout.partition(":")[2].split())


def _speak_hibari(
    name: str, text: str, tempo: float, pitch: float, seed: int
) -> tuple[NDArray[np.float32], int]:
    """Hibari's own synthesis with a scaled fundamental, the last of the network's outputs."""
    from hibari import dsp  # noqa: PLC0415  (an extra's)

    voice = hibari_voice(name)
    rng = np.random.default_rng(seed)
    pieces = [np.zeros(0, np.float32)]
    for phonemes in voice.phonemize(text):
        inputs = {
            "ids": np.asarray([voice.ids(phonemes)], np.int64),
            "speed": np.asarray([tempo], np.float32),
        }
        *spectrum, fundamental = (output[0] for output in voice.sess.run(None, inputs))
        pieces.append(dsp.synth(*spectrum, fundamental * np.float32(pitch), rng))
    return np.concatenate(pieces), voice.sample_rate


def _speak_flite(
    name: str, text: str, tempo: float, pitch: float
) -> tuple[NDArray[np.float32], int]:
    with tempfile.TemporaryDirectory(prefix="captiond-flite-") as folder:
        text_file, speech_file = Path(folder, "text.txt"), Path(folder, "speech.wav")
        text_file.write_text(_ascii(text), encoding="ascii")
        command = ["flite", "-voice", name, "--setf", f"duration_stretch={1 / tempo:.4f}"]
        if name in _FLITE_PITCH_HZ:
            command += ["--setf", f"int_f0_target_mean={_FLITE_PITCH_HZ[name] * pitch:.1f}"]
        try:
            subprocess.run(  # noqa: S603  (arguments of our own)
                [*command, "-f", str(text_file), "-o", str(speech_file)],
                check=True,
                capture_output=True,
                timeout=_FLITE_TIMEOUT_S,
            )
            audio, rate = soundfile.read(speech_file, dtype="float32")
        except (OSError, subprocess.SubprocessError, soundfile.SoundFileError) as error:
            raise VoiceError(f"flite failed with its voice {name}: {error}") from error
    return audio, rate


def _ascii(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text.translate(_ASCII))
    return decomposed.encode("ascii", "ignore").decode("ascii")
