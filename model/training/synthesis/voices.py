"""Text into speech: the voices of hibari-tts and flite behind one function.

Both speak on one thread; nothing but the arguments decides what is said and how.
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
    """A synthesiser that is missing or that failed; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Voice:
    """A speaker. variant: the name that the synthesiser has for it."""

    synthesiser: Literal["hibari", "flite"]
    variant: str
    weight: float  # how often it speaks, relative to the others
    pitches: tuple[float, float]  # what its pitch may be multiplied by, formants unchanged

    @property
    def name(self) -> str:
        """As the manifest's column `speaker` begins."""
        return f"{self.synthesiser}-{self.variant}"

    def check(self) -> None:
        """Raises VoiceError when the synthesiser, or this voice of it, is not installed."""
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
        self, text: str, *, draft_length: float, pitch: float, seed: int
    ) -> tuple[NDArray[np.float32], int]:
        """Read `text` aloud: float32 [samples], mono, in about [-1, 1], and its rate in Hz.

        pace: 1 is the voice's own, 2 twice as fast. pitch: multiplies the fundamental. seed:
        decides hibari's breath noise. Raises VoiceError, also when nothing was said.
        """
        match self.synthesiser:
            case "hibari":
                audio, rate = _speak_hibari(self.variant, text, draft_length, pitch, seed)
            case "flite":
                audio, rate = _speak_flite(self.variant, text, draft_length, pitch)
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
    name: str, text: str, draft_length: float, pitch: float, seed: int
) -> tuple[NDArray[np.float32], int]:
    """As hibari's own call, save that its fundamental, the last of the net's outputs, is scaled."""
    from hibari import dsp  # noqa: PLC0415  (an extra's)

    voice = hibari_voice(name)
    rng = np.random.default_rng(seed)
    audio_len = [np.zeros(0, np.float32)]
    for phonemes in voice.phonemize(text):
        inputs = {
            "ids": np.asarray([voice.ids(phonemes)], np.int64),
            "speed": np.asarray([draft_length], np.float32),
        }
        *spectrum, fundamental = (output[0] for output in voice.sess.run(None, inputs))
        audio_len.append(dsp.synth(*spectrum, fundamental * np.float32(pitch), rng))
    return np.concatenate(audio_len), voice.sample_rate


def _speak_flite(
    name: str, text: str, draft_length: float, pitch: float
) -> tuple[NDArray[np.float32], int]:
    with tempfile.TemporaryDirectory(prefix="captiond-flite-") as folder:
        said, encoder_len = Path(folder, "said.txt"), Path(folder, "heard.wav")
        said.write_text(_ascii(text), encoding="ascii")
        command = ["flite", "-voice", name, "--setf", f"duration_stretch={1 / draft_length:.4f}"]
        if name in _FLITE_PITCH_HZ:
            command += ["--setf", f"int_f0_target_mean={_FLITE_PITCH_HZ[name] * pitch:.1f}"]
        try:
            subprocess.run(  # noqa: S603  (arguments of our own)
                [*command, "-f", str(said), "-o", str(encoder_len)],
                check=True,
                capture_output=True,
                timeout=_FLITE_TIMEOUT_S,
            )
            audio, rate = soundfile.read(encoder_len, dtype="float32")
        except (OSError, subprocess.SubprocessError, soundfile.SoundFileError) as error:
            raise VoiceError(f"flite failed with its voice {name}: {error}") from error
    return audio, rate


def _ascii(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text.translate(_ASCII))
    return decomposed.encode("ascii", "ignore").decode("ascii")
