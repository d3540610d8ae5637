"""One client's stream, the whole line: bytes and hypotheses in, messages and decoding work out.

No socket, no model, no thread and no clock: time is the count of samples received, and the same
bytes give the same utterances, at the same samples, however they are cut into calls.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import assert_never

from streaming.captioner import Captioner
from streaming.frontend import FrontEnd, Judged
from streaming.hypothesis import Hypothesis
from streaming.lifecycle import Event, Lifecycle
from streaming.protocol import SAMPLE_RATE, Closed, Error, Final, Flushed, Partial, Speech, Start
from streaming.reorder import ReorderBuffer
from streaming.segmenter import Began, Ended, Paused, SegmenterEvent
from streaming.settings import Settings
from streaming.utterance import Decode, Utterance
from streaming.vad import VoiceActivity

DEFAULTS = Settings()

LEAST_PENDING = SAMPLE_RATE  # of an utterance: a short one takes the recogniser about as long

Message = Speech | Partial | Final | Flushed | Error | Closed
Output = Message | Decode


def session_settings(start: Start, settings: Settings) -> Settings:
    """What `start` asks of the streaming room, and for the rest the daemon's `settings`."""
    asked = {
        key: value
        for key in ("endpoint_silence_ms", "minimum_speech_ms", "cap_ms")
        if (value := getattr(start, key)) is not None
    }
    return replace(settings, **asked)


class Session(Lifecycle):
    """The stream from `start` to `closed`.

    Each call returns what is to be done next, in order: messages go to the client, a Decode goes to
    the recogniser and comes back by `accept` or `fail`, in any order. For every utterance the client
    sees the start of speech, partials, the end of speech and exactly one final, finals in order.

    A frame is processed half a second at a time: `feed` takes it whole and begins, and each
    `process` goes on, so that the other sessions of a daemon get their turn in between.

    A final is decoded early, when silence begins: should it last, the endpoint only confirms it.

    `vad` replaces the detector that the settings name.
    """

    def __init__(
        self, start: Start, settings: Settings = DEFAULTS, *, vad: VoiceActivity | None = None
    ) -> None:
        super().__init__()
        self.settings = session_settings(start, settings)
        self._front = FrontEnd(start, self.settings, vad)
        self._segmenter = self._front.segmenter
        self._captioner = Captioner(start)
        self._interval = self.settings.partial_interval_ms * SAMPLE_RATE // 1_000
        self._open: Utterance | None = None
        self._utterances = 0  # begun so far
        self._decoding: dict[int, Utterance] = {}  # ended, and their finals not accepted
        self._reorder = ReorderBuffer[Output]()
        self._step(Event.START)

    @property
    def pending_samples(self) -> int:
        """Samples at 16 kHz of ended utterances whose final has been neither accepted nor failed.

        Each counts as LEAST_PENDING at least, so that this bounds the recogniser's work, too.
        """
        return sum(max(one.stop - one.start, LEAST_PENDING) for one in self._decoding.values())

    @property
    def received(self) -> int:
        """Samples at 16 kHz that came so far, refused ones included."""
        return self._front.received

    @property
    def unprocessed(self) -> bool:
        """Whether some of the last frame waits for `process`."""
        return self._front.unread

    def feed(self, data: bytes) -> list[Output]:
        """Take one binary frame of the announced format, of any length, and process its beginning.

        The frame before must have been processed. Raises ProtocolError: "bad_order" after `stop`;
        "bad_audio" for NaN or infinity, and the frame is refused as a whole; "bad_audio" for a
        stream that opens with the header of another format, after which nothing can be decoded.
        """
        self._step(Event.AUDIO)
        self._front.take(data)
        return self.process()

    def process(self) -> list[Output]:
        """Go on with what was fed, for half a second at most.

        Only the newest of the partials that fall due within one frame is given out: it supersedes
        the others, and many copies of 30 s would be large.
        """
        outputs = self._follow(self._front.read())
        return outputs if self.unprocessed else outputs + self._newest_work()

    def flush(self) -> list[Output]:
        """End the open utterance here, with all audio received; the stream goes on.

        `Flushed` follows the last final of what came before; only the last of several that are due
        together comes. Raises ProtocolError("bad_order") after `stop`.
        """
        self._step(Event.FLUSH)
        outputs = self._follow(self._front.finish(last=False))
        at = self._segmenter.position / SAMPLE_RATE
        return outputs + self._reorder.flush(self._utterances, Flushed(at=at))

    def stop(self) -> list[Output]:
        """End of audio: the open utterance ends; `Closed` comes with the last final. Idempotent."""
        return self._end_audio(Event.STOP)

    def shut_down(self) -> list[Output]:
        """As `stop`, but the daemon's wish."""
        return self._end_audio(Event.SHUT_DOWN)

    def expire(self) -> list[Output]:
        """As `stop`, for no client will come; what is finished is closed."""
        return self._end_audio(Event.EXPIRED)

    def accept(self, decode: Decode, hypothesis: Hypothesis, ms: float) -> list[Output]:
        """Take a decode's result; `ms` is how long it took, waiting included.

        A partial that comes after its utterance's end, or after a newer one, yields nothing.
        """
        if decode.final:
            utterance = self._awaited(decode)
            return self._settle(decode, [self._captioner.final(utterance, decode, hypothesis, ms)])
        if self._open is None or self._open.number != decode.utterance:
            return []
        if decode.early:
            self._open.early = decode, hypothesis
        partial = self._captioner.partial(self._open, decode, hypothesis)
        return [] if partial is None else [partial]

    def fail(self, decode: Decode, message: str) -> list[Output]:
        """Take that a decode could not be done: a final becomes an Error and an empty Final."""
        if not decode.final:
            return []
        return self._settle(decode, self._captioner.failed(self._awaited(decode), decode, message))

    def _end_audio(self, why: Event) -> list[Output]:
        was_open = self.state.takes_audio
        outputs = self._follow(self._front.finish(last=True)) if was_open else []
        self._step(why)
        return outputs + self._close_if_done() if was_open else []

    def _follow(self, frames: Iterator[Judged]) -> list[Output]:
        outputs: list[Output] = []
        for events, speech in frames:
            for event in events:
                outputs += self._segmented(event)
            if self._open is not None and speech:
                self._speak(self._open)
        return outputs

    def _segmented(self, event: SegmenterEvent) -> Sequence[Output]:
        match event:
            case Began():
                return [self._begin(event)]
            case Paused():
                assert self._open is not None
                self._open.paused = event.stop
                return []
            case Ended():
                return self._end(event)
            case _:
                assert_never(event)

    def _begin(self, began: Began) -> Speech:
        number, at = self._utterances, began.start
        self._utterances += 1
        self._open = Utterance(number, start=at, due=at, given=at)
        return Speech(event="start", utterance=number, at=at / SAMPLE_RATE)

    def _speak(self, utterance: Utterance) -> None:
        utterance.paused = -1
        voiced = self._segmenter.speech_end - self._segmenter.onset
        if self._captioner.wants_partial(voiced):
            utterance.note_speech(self._segmenter.speech_end, voiced, self._interval)

    def _end(self, ended: Ended) -> list[Output]:
        utterance = self._open
        assert utterance is not None
        self._open = None
        self._decoding[utterance.number] = utterance
        utterance.stop = ended.stop
        at = ended.stop / SAMPLE_RATE
        outputs: list[Output] = [Speech(event="end", utterance=utterance.number, at=at)]
        early = utterance.final_at(ended.stop)
        if early is not None:
            return outputs + self._settle(early[0], [self._captioner.final(utterance, *early, 0.0)])
        span = ended.start, ended.stop
        work = self._captioner.decode(utterance, span, ended.voiced, ended.audio, final=True)
        return [*outputs, work]

    def _newest_work(self) -> list[Output]:
        """An early final where silence has begun, else the newest partial that is due."""
        utterance = self._open
        if utterance is None:
            return []
        early = utterance.paused >= 0
        stop = utterance.paused if early else utterance.due
        if stop <= utterance.given:
            return []
        utterance.given = stop
        span = utterance.start, stop
        voiced = min(stop, self._segmenter.speech_end) - self._segmenter.onset
        audio = self._segmenter.audio(*span)
        return [self._captioner.decode(utterance, span, voiced, audio, early=early)]

    def _awaited(self, decode: Decode) -> Utterance:
        assert decode.utterance in self._decoding, f"utterance {decode.utterance} settled twice"
        return self._decoding[decode.utterance]

    def _settle(self, decode: Decode, messages: Sequence[Output]) -> list[Output]:
        del self._decoding[decode.utterance]
        return self._reorder.settle(decode.utterance, [*messages]) + self._close_if_done()

    def _close_if_done(self) -> list[Output]:
        if self.state.takes_audio or self._decoding:
            return []
        self._step(Event.FINISHED)
        return [self._front.account(finals=self._reorder.released)]
