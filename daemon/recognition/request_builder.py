"""From a session's `start` and a span to the engine's request; from its output to a hypothesis. Pure."""

import numpy as np

from daemon.recognition.scheduler import Engine
from model.engine.fallback import FALLBACK_TEMPERATURES
from model.engine.requests import Request, RequestOutput, as_tuple
from streaming.hypothesis import Hypothesis, TimedWord
from streaming.protocol import SAMPLE_RATE, Start
from streaming.utterance import Decode

SILENCE = np.zeros(SAMPLE_RATE, np.float32)


def check(start: Start, engine: Engine) -> None:
    """Raises ValueError where `engine` cannot do what `start` asks, in one of its languages."""
    for language in as_tuple(start.language) or (None,):
        probe = Decode(0, 0, SAMPLE_RATE, SILENCE, final=True, language=language)
        engine.check(request(start, probe))


def request(start: Start, decode: Decode, *, draft_tokens: tuple[int, ...] = ()) -> Request:
    """The request for the span of `decode`, with the options of `start`.

    A span that may become a final is decoded in the full window, with words and, where it is greedy,
    with fallback temperatures; a partial in a fitted window, once.
    """
    whole = decode.final or decode.early
    said_before = (", ".join(start.hot_words or ()), start.prompt, decode.before)
    return Request(
        audio=np.pad(decode.audio, (decode.lead, 0)) if decode.lead else decode.audio,
        language=decode.language,
        language_hint=decode.language_hint,
        task=start.task,
        prompt=" ".join(text for text in said_before if text),
        prefix=decode.prefix,
        temperature=start.temperature,
        seed=start.seed,
        fitted_window=not whole,
        draft_tokens=draft_tokens,
        stop_on_repetition=True,
        fallback_temperatures=FALLBACK_TEMPERATURES if whole and start.temperature == 0 else (),
        words=whole and start.words,
        speech=decode.speech,
    )


def hypothesis(output: RequestOutput, *, lead: int = 0) -> Hypothesis:
    """The engine's output as a hypothesis of the streaming room; lead: of the decode it is for."""
    timed = None
    if output.timed is not None:
        before = lead / SAMPLE_RATE
        timed = tuple(
            TimedWord(w.text, max(w.start - before, 0.0), max(w.end - before, 0.0), w.probability)
            for w in output.timed
        )
    return Hypothesis(
        text=output.text,
        language=output.language,
        certain=output.certain,
        language_probability=output.language_probability,
        no_speech=output.no_speech,
        mean_logprob=output.mean_logprob,
        silent=output.silent,
        compression_ratio=output.compression_ratio,
        looped=output.looped,
        repetitive=output.repetitive,
        timed=timed,
        temperature=output.temperature,
        rounds=output.rounds,
        proposed=output.proposed,
        accepted=output.accepted,
        reused=output.reused,
        voiced=output.voiced,
        covered=output.covered,
    )
