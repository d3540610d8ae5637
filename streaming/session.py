"""One client's stream, the whole line: bytes and hypotheses in, messages and decoding work out.

No socket, no model, no thread and no clock: time is the count of samples received, and the same
bytes give the same utterances, at the same samples, however they are cut into calls.
"""

from dataclasses import dataclass, field
from typing import Protocol, assert_never

import numpy as np
from numpy.typing import NDArray

from streaming.audio import AudioDecoder
from streaming.captions import StablePrefix
from streaming.protocol import (
    SAMPLE_RATE,
    Closed,
    DecodeFigures,
    Error,
    Final,
    Partial,
    ProtocolError,
    Speech,
    Start,
)
from streaming.segmenter import Began, Ended, Event, Segmenter, Settings
from streaming.vad import NoiseGate, VoiceActivity, WebRtcVad

DEFAULTS = Settings()

LEAST_BACKLOG = SAMPLE_RATE  # of an utterance: a short one takes the recogniser about as long


@dataclass(frozen=True, slots=True, eq=False)
class Decode:
    """Work for the recogniser: one span of one utterance.

    utterance: 0, 1, 2 … within the session.
    start, stop: sample indices at 16 kHz in session time; stop is exclusive, at most 30 s on.
    audio: a copy of the span, [stop - start], 16 kHz mono in [-1, 1].
    final: whether the utterance has ended; else the work may be superseded.
    """

    utterance: int
    start: int
    stop: int
    audio: NDArray[np.float32]
    final: bool


class Hypothesis(Protocol):
    """What the recogniser says of a span, and what that took."""

    @property
    def text(self) -> str:
        """The transcript; empty where there was no speech."""
        ...

    @property
    def language(self) -> str:
        """The code of the language spoken."""
        ...

    @property
    def no_speech(self) -> float:
        """Probability that the span holds no speech."""
        ...

    @property
    def mean_logprob(self) -> float:
        """Mean natural log-probability of the tokens."""
        ...

    @property
    def rounds(self) -> int:
        """Target passes."""
        ...

    @property
    def proposed(self) -> int:
        """Tokens that were drafted."""
        ...

    @property
    def accepted(self) -> int:
        """Drafted tokens that the target accepted."""
        ...

    @property
    def reused(self) -> int:
        """Accepted tokens that came from the hypothesis before."""
        ...


Message = Speech | Partial | Final | Error | Closed
Output = Message | Decode


@dataclass(frozen=True, slots=True)
class _Nothing:
    """The hypothesis of an utterance that could not be decoded."""

    language: str
    text: str = ""
    no_speech: float = 0.0
    mean_logprob: float = 0.0
    rounds: int = 0
    proposed: int = 0
    accepted: int = 0
    reused: int = 0


def _final(decode: Decode, hypothesis: Hypothesis, ms: float) -> Final:
    return Final(
        utterance=decode.utterance,
        start=decode.start / SAMPLE_RATE,
        end=decode.stop / SAMPLE_RATE,
        text=hypothesis.text.strip(),
        language=hypothesis.language,
        no_speech=round(hypothesis.no_speech, 4),
        mean_logprob=round(hypothesis.mean_logprob, 4),
        decode=DecodeFigures(
            rounds=hypothesis.rounds,
            proposed=hypothesis.proposed,
            accepted=hypothesis.accepted,
            reused=hypothesis.reused,
            ms=round(ms, 1),
        ),
    )


@dataclass(slots=True)
class _OpenUtterance:
    number: int
    start: int
    due: int  # up to where a partial is due
    given: int  # up to where one has been given out
    shown: int = -1  # up to where the newest partial accepted had heard
    caption: StablePrefix = field(default_factory=StablePrefix)


class Session:
    """The stream from `start` to `closed`.

    Each call returns what is to be done next, in order: messages go to the client, a Decode goes to
    the recogniser and comes back by `accept` or `fail`, in any order. Of every utterance the client
    sees the start of speech, partials, the end of speech and exactly one final, finals in order.

    A frame is heard half a second at a time: `feed` takes it whole and hears its beginning, and each
    `hear` hears on, so that whoever serves several sessions can go round between them.

    `vad` replaces the detector; by default webrtcvad behind a noise gate.
    """

    def __init__(
        self, start: Start, settings: Settings = DEFAULTS, *, vad: VoiceActivity | None = None
    ) -> None:
        self._decoder = AudioDecoder(start.encoding, start.rate, start.channels)
        self._vad = vad if vad is not None else NoiseGate(WebRtcVad(settings.vad_mode))
        self._segmenter = Segmenter(settings, self._vad.frame)
        self._partials = start.partials
        self._interval = settings.partial_interval_ms * SAMPLE_RATE // 1_000
        self._language = start.language if isinstance(start.language, str) else ""
        self._pending = np.zeros(0, np.float32)  # less than a frame
        self._open: _OpenUtterance | None = None
        self._utterances = 0  # begun so far
        self._decoding: dict[int, int] = {}  # ended utterance → its samples, until accepted
        self._settled: dict[int, list[Output]] = {}  # accepted, but an earlier one is not
        self._finals = 0  # sent so far: also the number of the next to be sent
        self._stopped = False

    @property
    def backlog_samples(self) -> int:
        """Samples at 16 kHz of ended utterances whose final has been neither accepted nor failed.

        Each counts as LEAST_BACKLOG at least, so that this bounds the recogniser's work, too.
        """
        return sum(max(samples, LEAST_BACKLOG) for samples in self._decoding.values())

    @property
    def received(self) -> int:
        """Samples at 16 kHz that came so far, refused ones included."""
        return self._decoder.received

    @property
    def unheard(self) -> bool:
        """Whether some of the last frame waits for `hear`."""
        return self._decoder.unread

    def feed(self, data: bytes) -> list[Output]:
        """Take one binary frame of the announced format, of any length, and hear its beginning.

        The frame before must have been heard. Raises ProtocolError: "bad_order" after `stop`;
        "bad_audio" for NaN or infinity, and the frame is refused as a whole; "bad_audio" for a
        stream that opens with the header of another format, after which nothing can be decoded.
        """
        self._expect_running()
        self._decoder.take(data)
        return self.hear()

    def hear(self) -> list[Output]:
        """Hear on in what was fed, for half a second at most.

        Of the partials that fall due within one frame only the newest is given out: it supersedes
        the others, and many copies of 30 s would be large.
        """
        outputs = self._judge(self._decoder.read())
        return outputs if self.unheard else outputs + self._newest_partial()

    def flush(self) -> list[Output]:
        """End the open utterance here, with all audio received; the stream goes on.

        Without an open utterance nothing is due and nothing is returned. Raises
        ProtocolError("bad_order") after `stop`.
        """
        self._expect_running()
        outputs: list[Output] = []
        while self.unheard:
            outputs += self._judge(self._decoder.read())
        outputs += self._judge(self._decoder.finish())
        rest, self._pending = self._pending, self._pending[:0]
        return outputs + self._follow(self._segmenter.flush(rest))

    def stop(self) -> list[Output]:
        """End of audio: the open utterance ends; `Closed` comes with the last final. Idempotent."""
        if self._stopped:
            return []
        outputs = self.flush()
        self._stopped = True
        return outputs + self._close_if_done()

    def accept(self, decode: Decode, hypothesis: Hypothesis, ms: float) -> list[Output]:
        """Take a decode's result; `ms` is how long it took, waiting included.

        A partial that comes after its utterance's end, or after a newer one, yields nothing.
        """
        if decode.final:
            return self._settle(decode, [_final(decode, hypothesis, ms)])
        return self._show(decode, hypothesis.text.strip())

    def fail(self, decode: Decode, message: str) -> list[Output]:
        """Take that a decode could not be done: a final becomes an Error and an empty Final."""
        if not decode.final:
            return []
        error = Error(
            code="decode_failed",
            message=f"utterance {decode.utterance} could not be recognised: {message}",
            fatal=False,
        )
        return self._settle(decode, [error, _final(decode, _Nothing(self._language), ms=0.0)])

    def _expect_running(self) -> None:
        if self._stopped:
            raise ProtocolError("bad_order", "nothing may follow stop: open another session")

    def _judge(self, samples: NDArray[np.float32]) -> list[Output]:
        outputs: list[Output] = []
        audio = np.concatenate([self._pending, samples])
        size = self._vad.frame
        whole = len(audio) - len(audio) % size
        for at in range(0, whole, size):
            frame = audio[at : at + size]
            speech = self._vad.is_speech(frame)
            outputs += self._follow(self._segmenter.push(frame, speech=speech))
            self._mark_partial()
        self._pending = audio[whole:].copy()  # a view would keep the whole frame alive
        return outputs

    def _follow(self, events: list[Event]) -> list[Output]:
        outputs: list[Output] = []
        for event in events:
            match event:
                case Began():
                    outputs.append(self._begin(event))
                case Ended():
                    outputs += self._end(event)
                case _:
                    assert_never(event)
        return outputs

    def _begin(self, began: Began) -> Speech:
        number, at = self._utterances, began.start
        self._utterances += 1
        self._open = _OpenUtterance(number, start=at, due=at, given=at)
        return Speech(event="start", utterance=number, at=at / SAMPLE_RATE)

    def _end(self, ended: Ended) -> list[Output]:
        assert self._open is not None
        number = self._open.number
        self._open = None
        self._decoding[number] = ended.stop - ended.start
        return [
            Speech(event="end", utterance=number, at=ended.stop / SAMPLE_RATE),
            Decode(number, ended.start, ended.stop, ended.audio, final=True),
        ]

    def _mark_partial(self) -> None:
        if self._open is None:
            return
        now = self._segmenter.position
        if now - self._open.due >= self._interval:
            self._open.due = now

    def _newest_partial(self) -> list[Output]:
        utterance = self._open
        if utterance is None or utterance.due == utterance.given or not self._partials:
            return []
        start, stop = utterance.start, utterance.due
        utterance.given = stop
        audio = self._segmenter.audio(start, stop)
        return [Decode(utterance.number, start, stop, audio, final=False)]

    def _show(self, decode: Decode, text: str) -> list[Output]:
        utterance = self._open
        if utterance is None or utterance.number != decode.utterance:
            return []
        if decode.stop <= utterance.shown:
            return []
        utterance.shown = decode.stop
        text, stable = utterance.caption.update(text)
        if not text:
            return []
        return [
            Partial(
                utterance=decode.utterance,
                start=decode.start / SAMPLE_RATE,
                end=decode.stop / SAMPLE_RATE,
                text=text,
                stable=stable,
            )
        ]

    def _settle(self, decode: Decode, messages: list[Output]) -> list[Output]:
        assert decode.utterance in self._decoding, f"utterance {decode.utterance} settled twice"
        del self._decoding[decode.utterance]
        self._settled[decode.utterance] = messages
        outputs: list[Output] = []
        while self._finals in self._settled:
            outputs += self._settled.pop(self._finals)
            self._finals += 1
        return outputs + self._close_if_done()

    def _close_if_done(self) -> list[Output]:
        if not self._stopped or self._decoding:
            return []
        account = Closed(
            received=self._decoder.received,
            speech=self._segmenter.speech,
            silence=self._segmenter.silence,
            refused=self._decoder.refused,
            finals=self._finals,
        )
        assert account.received == account.speech + account.silence + account.refused, account
        return [account]
