"""What a session asks of the recogniser: requests made of its `start` and of the spans to decode. Pure."""

import numpy as np

from daemon.recognition.scheduler import Engine
from model.engine.fallback import FALLBACK_TEMPERATURES
from model.engine.requests import Request, as_tuple
from streaming.protocol import SAMPLE_RATE, Start
from streaming.utterance import Decode

SILENCE = np.zeros(SAMPLE_RATE, np.float32)


def check(start: Start, engine: Engine) -> None:
    """Raises ValueError where `engine` cannot do what `start` asks, in one of its languages."""
    for language in as_tuple(start.language) or (None,):
        probe = Decode(0, 0, SAMPLE_RATE, SILENCE, final=True, language=language)
        engine.check(request(start, probe))


def request(start: Start, decode: Decode, *, draft_tokens: tuple[int, ...] = ()) -> Request:
    """What `start` asks for, of the span that `decode` names.

    What may become a final is decoded in the full window, with words and, where it is greedy, with
    further attempts if it fails; a partial in a fitted window, once.
    """
    whole = decode.final or decode.early
    said_before = (", ".join(start.hot_words or ()), start.prompt)
    return Request(
        audio=decode.audio,
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
    )
