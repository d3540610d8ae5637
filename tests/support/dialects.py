"""A dialect with a real session behind it and a recogniser that answers when it may: no socket, no thread."""

import json
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from streaming.dialects.dialect import Action, Check, Dialect, Opening, Reply, Told
from streaming.hypothesis import TimedWord
from streaming.protocol import (
    SAMPLE_RATE,
    Closed,
    Error,
    Final,
    Flush,
    Limits,
    ProtocolError,
    Ready,
    Resume,
    Start,
    Stop,
)
from streaming.session import Output, Session
from streaming.utterance import Decode
from tests.support.streams import GoodHypothesis, Loudness, Samples

NAME = "0123456789abcdef" * 2
LIMITS = Limits(frame_bytes=2**20, utterance_seconds=30.0, buffered_seconds=60.0)

Frame = str | bytes
# What is said to a dialect, before it is put in the dialect's own words.
Step = tuple[str, float]
Words = dict[str, Callable[[Step], Sequence[Frame]]]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("speech"), st.sampled_from([0.3, 1.1, 2.0])),
        st.tuples(st.just("silence"), st.sampled_from([0.2, 0.9, 1.7])),
        st.tuples(st.sampled_from(["flush", "keep", "hold", "release"]), st.just(0.0)),
    ),
    max_size=8,
)
# Whatever may come in a frame, some of it nearly right.
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


def garbage(words: Iterable[str]) -> st.SearchStrategy[Frame]:
    """Frames of bytes, of text, and of objects whose keys and types are `words` of a protocol."""
    known = st.sampled_from(sorted(words))
    objects = st.dictionaries(known, JSON_VALUES | known, max_size=4).map(json.dumps)
    return st.one_of(
        st.binary(max_size=40), st.text(max_size=40), JSON_VALUES.map(json.dumps), objects
    )


def opening(**query: str) -> Opening:
    return Opening(NAME, tuple(query.items()), time=1_700_000_000.0)


def sound(step: Step, rate: int = SAMPLE_RATE) -> Samples:
    """Noise for speech, nothing for silence: [samples] at `rate`."""
    kind, seconds = step
    size = round(seconds * rate)
    if kind == "silence":
        return np.zeros(size, np.float32)
    return np.random.default_rng(5).uniform(-0.5, 0.5, size).astype(np.float32)


class Conversation:
    """One client's. sent: the JSON objects that it got. over: whether the connection is closed."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.session: Session | None = None
        self.sent: list[dict[str, Any]] = []
        self.finals: list[Final] = []
        self.over = False
        self.errors = 0
        self._held = self._words = False
        self._waiting: deque[Decode] = deque()
        self._do(dialect.open())

    def say(self, *frames: Frame) -> None:
        for frame in frames:
            if not self.over:
                self._do(self.dialect.receive(frame))

    def hold(self) -> None:
        """The recogniser answers no more."""
        self._held = True

    def release(self) -> None:
        """The recogniser answers, what came last first."""
        self._held = False
        while self._waiting:
            self._answer(self._waiting.pop())

    def play(self, steps: Iterable[Step], words: Words) -> None:
        """Say `steps` in the dialect's words; steps that it has no word for are left out."""
        for step in steps:
            kind = step[0]
            if kind in ("hold", "release"):
                getattr(self, kind)()
            else:
                self.say(*(words[kind](step) if kind in words else ()))
        self.release()

    def tell(self, message: Told) -> None:
        """What the session says."""
        if isinstance(message, Final):
            self.finals.append(message)
        self.sent += [json.loads(frame) for frame in self.dialect.encode(message)]

    def _do(self, actions: Iterable[Action]) -> None:
        try:
            for action in actions:
                self._obey(action)
        except ProtocolError as error:
            self.errors += 1
            fatal = not self.dialect.forgiving
            self.tell(Error(code=error.code, message=str(error), fatal=fatal))
            self.over |= fatal

    def _obey(self, action: Action) -> None:
        match action:
            case Start():
                self.session = Session(action, vad=Loudness())
                self._words = action.words
                self.tell(Ready(session="s", model="m", drafter=None, limits=LIMITS))
            case Reply():
                self.tell(action)
            case Check():
                pass
            case bytes():
                self._carry_out(self._open().feed(action))
                while self._open().unprocessed:
                    self._carry_out(self._open().process())
            case Flush():
                self._carry_out(self._open().flush())
            case Stop():
                self._carry_out(self._open().stop())
            case Resume():
                raise AssertionError("only captiond's own clients come back")

    def _open(self) -> Session:
        assert self.session is not None, "no session was started"
        return self.session

    def _carry_out(self, outputs: Iterable[Output]) -> None:
        for output in outputs:
            if not isinstance(output, Decode):
                self.tell(output)
                self.over |= isinstance(output, Closed)
            else:
                self._waiting.append(output)
        if not self._held:
            self.release()

    def hypothesis(self, decode: Decode) -> GoodHypothesis:
        """What it is heard as: its first and its last sample, as two words."""
        text = f"{decode.start} {decode.stop}"
        middle = (decode.stop - decode.start) / SAMPLE_RATE / 2
        timed = tuple(
            TimedWord(word, n * middle, (n + 1) * middle, 0.9)
            for n, word in enumerate(text.split())
        )
        return GoodHypothesis(text, timed=timed if self._words else None)

    def _answer(self, decode: Decode) -> None:
        self._carry_out(self._open().accept(decode, self.hypothesis(decode), ms=5.0))
