"""One client's stream, the whole line: bytes and hypotheses in, messages and decoding work out.

No socket, no model, no thread and no clock: time is the count of samples received, and the same
bytes give the same utterances, at the same samples, however they are cut into calls.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import assert_never

from streaming.captioner import Captioner
from streaming.configuration import Configurations
from streaming.frontend import FrontEnd, Judged
from streaming.hypothesis import Hypothesis
from streaming.lifecycle import Event, Lifecycle
from streaming.pending import PendingFinals
from streaming.protocol import (
    SAMPLE_RATE,
    Closed,
    Configure,
    Configured,
    Error,
    Final,
    Flushed,
    Partial,
    Speech,
    Start,
)
from streaming.reorder import ReorderBuffer
from streaming.segmenter import Began, Ended, Moved, Paused, SegmenterEvent
from streaming.settings import Settings
from streaming.text_rules import rules_of
from streaming.utterance import Decode, Utterances
from streaming.vad import VoiceActivity

DEFAULTS = Settings()

# Settings that `start` may name.
OWN = (
    *("endpoint_silence_ms", "minimum_speech_ms", "cap_ms"),
    *("replacements", "blocklist", "blocked", "numbers"),
)

Message = Speech | Partial | Final | Configured | Flushed | Error | Closed
Output = Message | Decode


def session_settings(start: Start, settings: Settings) -> Settings:
    """What `start` asks of the streaming room, and for the rest the daemon's `settings`."""
    asked = {key: value for key in OWN if (value := getattr(start, key)) is not None}
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
        self._captioner = Captioner(start, rules_of(self.settings))
        self.configurations = Configurations(start)
        self._interval = self.settings.partial_interval_ms * SAMPLE_RATE // 1_000
        self._utterances = Utterances()
        self._pending = PendingFinals()
        self._reorder = ReorderBuffer[Output]()
        self._step(Event.START)

    @property
    def pending_samples(self) -> int:
        """Of ended utterances whose final has been neither accepted nor failed, as `PendingFinals` counts."""
        return self._pending.samples

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

        Of the partials that fall due within one frame only the newest is given out.
        """
        outputs = self._follow(self._front.read())
        return outputs if self.unprocessed else outputs + self._newest_work()

    def configure(self, message: Configure) -> list[Output]:
        """Change what was asked for, for utterances whose speech begins behind all audio received.

        An open utterance ends as it began. Raises ProtocolError("bad_order") after `stop`.
        """
        self._step(Event.CONFIGURE)
        self.configurations.change(message, self._front.position)
        return [Configured(at=self._front.position / SAMPLE_RATE)]

    def flush(self) -> list[Output]:
        """End the open utterance here, with all audio received; the stream goes on.

        `Flushed` follows the last final of what came before; only the last of several that are due
        together comes. Raises ProtocolError("bad_order") after `stop`.
        """
        self._step(Event.FLUSH)
        outputs = self._follow(self._front.finish(last=False))
        at = self._segmenter.position / SAMPLE_RATE
        return outputs + self._reorder.flush(self._utterances.begun, Flushed(at=at))

    def pause(self) -> list[Output]:
        """The client has sent nothing for a while: the open utterance ends as if a pause had come.

        Session time stays where it is. The frame before must have been heard.
        """
        if self._utterances.open is None or not self.state.takes_audio:
            return []
        assert not self.unprocessed, "a pause amid a frame"
        return self._follow(self._front.pause())

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
            utterance = self._pending.awaited(decode)
            return self._settle(decode, [self._captioner.final(utterance, decode, hypothesis, ms)])
        open_one = self._utterances.open
        if open_one is None or open_one.number != decode.utterance:
            return []
        if decode.early:
            open_one.early = decode, hypothesis
        partial = self._captioner.partial(open_one, decode, hypothesis)
        return [] if partial is None else [partial]

    def fail(self, decode: Decode, message: str) -> list[Output]:
        """Take that a decode could not be done: a final becomes an Error and an empty Final."""
        if not decode.final:
            return []
        return self._settle(
            decode, self._captioner.failed(self._pending.awaited(decode), decode, message)
        )

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
            if speech and (utterance := self._utterances.open) is not None:
                utterance.paused = -1
                voiced = self._segmenter.speech_end - self._segmenter.onset
                if self._captioner.wants_partial(utterance, voiced):
                    utterance.note_speech(self._segmenter.speech_end, voiced, self._interval)
        return outputs

    def _segmented(self, event: SegmenterEvent) -> Sequence[Output]:
        match event:
            case Began():
                return [self._begin(event)]
            case Paused() | Moved():
                self._utterances.note(event, self._segmenter.position)
                return []
            case Ended():
                return self._end(event)
            case _:
                assert_never(event)

    def _begin(self, began: Began) -> Speech:
        utterance = self._utterances.begin(began, self.configurations.at(self._front.onset))
        return Speech(event="start", utterance=utterance.number, at=began.start / SAMPLE_RATE)

    def _end(self, ended: Ended) -> list[Output]:
        utterance = self._utterances.end(ended)
        self._pending.add(utterance)
        at = ended.stop / SAMPLE_RATE
        outputs: list[Output] = [Speech(event="end", utterance=utterance.number, at=at)]
        early = utterance.final_at(ended.stop)
        if early is not None:
            return outputs + self._settle(early[0], [self._captioner.final(utterance, *early, 0.0)])
        span = ended.start, ended.stop
        work = self._captioner.decode(
            utterance, span, ended.voiced, ended.audio, final=True, speech=ended.speech
        )
        return outputs + self._pending.ask(work)

    def _newest_work(self) -> list[Output]:
        """An early final where silence has begun, else the newest partial that is due."""
        utterance = self._utterances.open
        if utterance is None or (stop := utterance.take_due()) is None:
            return []
        span = utterance.start, stop
        voiced = min(stop, self._segmenter.speech_end) - self._segmenter.onset
        audio = self._segmenter.audio(*span)
        early = utterance.paused >= 0
        speech = self._segmenter.spans(*span) if early else ()
        return [self._captioner.decode(utterance, span, voiced, audio, early=early, speech=speech)]

    def _settle(self, decode: Decode, messages: Sequence[Output]) -> list[Output]:
        outputs = self._reorder.settle(decode.utterance, [*messages])
        return outputs + self._pending.settle(decode) + self._close_if_done()

    def _close_if_done(self) -> list[Output]:
        if self.state.takes_audio or self._pending:
            return []
        self._step(Event.FINISHED)
        return [self._front.account(finals=self._reorder.released)]
