"""What goes into the engine and what comes out: requests, their outputs, failures."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from model.engine.fallback import compression_ratio, is_repetitive, is_silence
from model.whisper.alignment import WordTiming
from model.whisper.mel import SAMPLE_RATE

HINT_BELOW = 0.5  # probability from which a detected language replaces the hint


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One utterance to recognise.

    audio: float32 [samples], 16 kHz mono in [-1, 1]; at least two samples, at most 30 s.
    language: a code; several to choose from; None to detect among all.
    prompt: text that came before; the last 223 tokens of it count, as in Whisper.
    temperature: 0 is greedy; above 0 samples from the target's distribution, reproducibly by seed.
    fitted_window: encode the audio and 5 s of silence instead of Whisper's full 30 s.
    draft_tokens: those of an earlier hypothesis of the same utterance. A wrong one costs passes and
        changes no text.
    prefix: words that the transcript begins with, whatever the target would say; the client was
        promised them. Its first 223 tokens count.
    language_hint: the language to take where no language is likelier than `hint_below`.
    stop_on_repetition: cut a transcript that ends in a loop (model/engine/fallback.py); all other
        texts are those of plain decoding.
    fallback_temperatures: those to try one after another while the transcript fails by Whisper's
        thresholds; for greedy requests.
    words: whether the output has the times of words.
    speech: spans of the audio that hold speech, in samples, ascending. The text accounts for them
        (model/engine/coverage.py); without any it is plain decoding of the audio, whatever it leaves out.
    max_new_tokens: most tokens that the target may add, the end of transcript included; None is
        Whisper's limit, half the context.
    """

    audio: NDArray[np.float32]
    language: str | tuple[str, ...] | None = None
    task: Literal["transcribe", "translate"] = "transcribe"
    prompt: str = ""
    temperature: float = 0.0
    seed: int = 0
    fitted_window: bool = False
    draft_tokens: tuple[int, ...] = ()
    prefix: str = ""
    language_hint: str | None = None
    hint_below: float = HINT_BELOW
    stop_on_repetition: bool = False
    fallback_temperatures: tuple[float, ...] = ()
    words: bool = False
    speech: tuple[tuple[int, int], ...] = ()
    max_new_tokens: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class RequestOutput:
    """What the target says of an utterance.

    tokens: as emitted, the end of transcript included when it was reached; one copy of a loop. The
        request's prefix comes first.
    certain: characters of `text` before the first token that the target doubted (DOUBTED in
        model/engine/fallback.py).
    language_probability: among the languages asked for; None when the language was given.
    no_speech: probability of silence after the start token. mean_logprob: natural, over the tokens
        that the target chose, a loop's cut copies included.
    rounds: target passes after prefill, of all attempts; proposed, accepted: draft tokens, of all
        attempts; reused: accepted tokens that came from a text.
    temperature: at which this transcript was decoded. looped: whether a loop was cut from it.
    timed: its words; None where the request asked for none, or memory ran out.
    voiced: seconds of the request's speech; covered: those that the text accounts for.
    """

    request: Request
    text: str
    tokens: tuple[int, ...]
    language: str
    language_probability: float | None
    no_speech: float
    mean_logprob: float
    rounds: int
    proposed: int = 0
    accepted: int = 0
    reused: int = 0
    certain: int = 0
    temperature: float = 0.0
    looped: bool = False
    timed: tuple[WordTiming, ...] | None = None
    voiced: float = 0.0
    covered: float = 0.0

    @property
    def compression_ratio(self) -> float:
        """As Whisper computes it: high for a text that repeats itself."""
        return compression_ratio(self.text)

    @property
    def silent(self) -> bool:
        """Whether Whisper's reference takes the audio for silence, by these figures."""
        return is_silence(self.no_speech, self.mean_logprob)

    @property
    def repetitive(self) -> bool:
        """Whether a loop was cut from the text, or Whisper's reference finds that it repeats itself."""
        return self.looped or is_repetitive(self.text)


@dataclass(frozen=True, slots=True, eq=False)
class Failure:
    """A request that could not be decoded; the others went on."""

    request: Request
    message: str


def check(
    request: Request,
    *,
    model: str,
    languages: Collection[str],
    multilingual: bool,
    most_samples: int,
    vocabulary: int,
) -> None:
    """Raises ValueError, in words for the client, for a request that `model` cannot serve."""
    check_languages(
        {*as_tuple(request.language), *as_tuple(request.language_hint)}, languages, model
    )
    if request.task not in ("transcribe", "translate"):
        raise ValueError(f"task is transcribe or translate, not {request.task!r}")
    if request.task == "translate" and not multilingual:
        raise ValueError(f"the model {model} knows English only and cannot translate")
    _check_temperatures(request)
    if request.max_new_tokens is not None and request.max_new_tokens < 1:
        raise ValueError(f"max_new_tokens is 1 or more, not {request.max_new_tokens}")
    if not -(2**63) <= request.seed < 2**63:
        raise ValueError("seed is a 64-bit integer")
    if not all(0 <= token < vocabulary for token in request.draft_tokens):
        raise ValueError(f"draft tokens are ids below {vocabulary}")
    _check_content(request, most_samples)


def _check_temperatures(request: Request) -> None:
    if not 0.0 <= request.temperature <= 2.0:  # NaN fails, too
        raise ValueError(f"temperature lies in 0 … 2, not {request.temperature}")
    if not all(0.0 < temperature <= 2.0 for temperature in request.fallback_temperatures):
        raise ValueError("fallback temperatures lie in 0 … 2, without 0")
    if request.fallback_temperatures and request.temperature:
        raise ValueError("fallback begins at temperature 0")


def _check_content(request: Request, most_samples: int) -> None:
    for name, text in (("prompt", request.prompt), ("prefix", request.prefix)):
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            raise ValueError(f"the {name} holds halves of characters: it is no Unicode text")
    audio = request.audio
    if audio.ndim != 1 or audio.dtype != np.float32 or not 2 <= len(audio) <= most_samples:
        raise ValueError(
            f"an utterance is 2 to {most_samples} float32 samples at {SAMPLE_RATE} Hz, "
            f"not {audio.dtype} {list(audio.shape)}"
        )
    if not np.isfinite(audio).all():
        raise ValueError("the utterance holds NaN or infinite samples")
    if not all(0 <= start < stop <= len(audio) for start, stop in request.speech):
        raise ValueError("speech lies within the utterance")


def check_languages(asked: Collection[str], known: Collection[str], model: str) -> None:
    """Raises ValueError, in words for people, for languages that `model` does not know."""
    unknown = sorted(set(asked) - set(known))
    if unknown:
        raise ValueError(
            f"the model {model} does not know the language {', '.join(unknown)}; "
            f"it knows {', '.join(sorted(known))}"
        )


def as_tuple(language: str | Sequence[str] | None) -> tuple[str, ...]:
    """The languages asked for, each once; an empty tuple allows any."""
    if language is None:
        return ()
    return (language,) if isinstance(language, str) else tuple(dict.fromkeys(language))
