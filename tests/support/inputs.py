"""The shared inputs on which something went wrong once, and a session that hears them with genuine weights."""

from functools import cache

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from daemon.recognition import request_builder
from model.checkpoints.load import load
from model.engine.engine import Engine
from model.engine.offline import transcribe
from streaming.protocol import Final, Start
from streaming.session import Output, Session
from streaming.utterance import Decode
from tests.support.audio import BESIDE
from tests.support.streams import encoded, feed, g711

INPUTS = BESIDE.parent / "reference" / "inputs"
needs_inputs = pytest.mark.skipif(
    not (INPUTS / "manifest.tsv").is_file(), reason=f"the shared inputs are absent: {INPUTS}"
)


@cache
def engine() -> Engine:
    """Whisper base."""
    return Engine(load("base"), slots=1)


def read(name: str) -> tuple[NDArray[np.float32], int]:
    """An input as it is, [samples] or [samples, channels], and its rate."""
    audio, rate = soundfile.read(INPUTS / f"{name}.flac", dtype="float32")
    return audio, rate


def telephone(name: str) -> bytes:
    """An input at 8 kHz in mu-law."""
    audio, rate = read(name)
    assert rate == 8_000
    return g711(audio, "ULAW")


def captions(data: bytes, *, partials: bool = False, **start: object) -> list[Final]:
    """The finals of a session whose client sends `data` in frames of 0.1 s, and stops."""
    asked = Start(partials=partials, **start)  # type: ignore[arg-type]  # any fields
    stream, said = Session(asked), list[Final]()

    def carry_out(outputs: list[Output]) -> None:
        for output in outputs:
            if isinstance(output, Final):
                said.append(output)
            elif isinstance(output, Decode):
                request = request_builder.request(asked, output)
                (result,) = transcribe(engine(), [request])
                hypothesis = request_builder.hypothesis(result, lead=output.lead)
                carry_out(stream.accept(output, hypothesis, 0.0))

    size = asked.rate // 10 * len(encoded(np.zeros(1, np.float32), asked.encoding, asked.channels))
    for at in range(0, len(data), size):
        carry_out(feed(stream, data[at : at + size]))
    carry_out(stream.stop())
    return said
