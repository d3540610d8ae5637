"""No speaker is lost: genuine weights, genuine turns, as a session's finals are decoded."""

from functools import cache

import numpy as np
import pytest

from daemon.recognition import request_builder
from model.checkpoints.load import load
from model.engine.engine import Engine
from model.engine.offline import transcribe
from model.engine.requests import Request
from streaming.protocol import Start
from streaming.session import Session
from tests.support.audio import INPUTS, needs_inputs, read_file
from tests.support.streams import feed, finals

pytestmark = [pytest.mark.real, pytest.mark.timeout(600), needs_inputs]

# Words of each of the two, in order, that base writes as the speaker says them.
SPEAKERS = {
    "turn_10_350": ("keeping bachelor hall in the lodge", "i tell thee the truth"),
    "turn_12_450": ("hugely pleased that you have seen my lady", "recited the second time"),
    "turn_14_350": ("he would not be rid of his affliction", "i tell thee the truth"),
    "turn_26_250": ("without any man at the head of it", "yarn"),  # "when churchyards yawn"
}


@cache
def engine() -> Engine:
    return Engine(load("base"), slots=2)


@pytest.mark.parametrize("name", SPEAKERS)
def test_both_speakers_are_in_the_final(name: str) -> None:
    start = Start(language="en", encoding="f32le", words=True, partials=False)
    audio = np.append(read_file(INPUTS / f"{name}.flac"), np.zeros(16_000, np.float32))
    stream = Session(start)
    works = [*finals(feed(stream, audio.astype("<f4").tobytes())), *finals(stream.stop())]
    outputs = transcribe(engine(), [request_builder.request(start, work) for work in works])
    text = " ".join(one.text for one in outputs).lower()
    first, second = SPEAKERS[name]
    assert -1 < text.find(first) < text.find(second)
    for one in outputs:
        assert one.voiced > 2
        assert one.covered == pytest.approx(one.voiced)
        edges = [edge for word in one.timed or () for edge in (word.start, word.end)]
        assert edges
        assert edges == sorted(edges)


def test_a_complete_final_is_plain_decoding() -> None:
    """One speaker's half of an input: nothing is left out, so nothing is added."""
    audio = read_file(INPUTS / "turn_14_350.flac")[: 3 * 16_000]
    request = Request(audio, language="en")
    spoken = Request(audio, language="en", speech=((4_000, 44_000),))
    plain, whole = transcribe(engine(), [request, spoken])
    assert whole.tokens == plain.tokens
    assert whole.covered == whole.voiced == 2.5
