"""One client's stream, the whole line: bytes and hypotheses in, messages and decoding work out.

No socket, no model, no thread and no clock: time is the count of samples received, and the same
bytes give the same utterances, at the same samples, however they are cut into calls.
"""

from dataclasses import replace
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from streaming.audio import AudioDecoder
from streaming.hallucination import is_plausible, worth_showing
from streaming.hypothesis import Hypothesis, final_message
from streaming.languages import Languages
from streaming.protocol import (
    SAMPLE_RATE,
    Closed,
    Error,
    Final,
    Flushed,
    Partial,
    ProtocolError,
    Speech,
    Start,
)
from streaming.segmenter import Began, Ended, Event, Paused, Segmenter
from streaming.settings import Settings
from streaming.utterance import Decode, Utterance
from streaming.vad import VoiceActivity, detector

DEFAULTS = Settings()

LEAST_PENDING = SAMPLE_RATE  # of an utterance: a short one takes the recogniser about as long

Message = Speech | Partial | Final | Flushed | Error | Closed
Output = Message | Decode


def settings_of(start: Start, settings: Settings) -> Settings:
    """What `start` asks of the streaming room, and for the rest the daemon's `settings`."""
    asked = {
        key: value
        for key in ("endpoint_silence_ms", "minimum_speech_ms", "cap_ms")
        if (value := getattr(start, key)) is not None
    }
    return replace(settings, **asked)


class Session:
    """The stream from `start` to `closed`.

    Each call returns what is to be done next, in order: messages go to the client, a Decode goes to
    the recogniser and comes back by `accept` or `fail`, in any order. Of every utterance the client
    sees the start of speech, partials, the end of speech and exactly one final, finals in order.

    A frame is heard half a second at a time: `feed` takes it whole and hears its beginning, and each
    `hear` hears on, so that whoever serves several sessions can go round between them.

    A final is decoded early, when silence begins: should it last, the endpoint only confirms it.

    `vad` replaces the detector that the settings name.
    """

    def __init__(
        self, start: Start, settings: Settings = DEFAULTS, *, vad: VoiceActivity | None = None
    ) -> None:
        self.settings = settings_of(start, settings)
        self._decoder = AudioDecoder(start.encoding, start.rate, start.channels)
        self._vad = vad if vad is not None else detector(self.settings.vad, self.settings.vad_mode)
        self._segmenter = Segmenter(self.settings, self._vad.frame)
        self._partials = start.partials
        self._commits = start.stability == "commit"
        self._interval = self.settings.partial_interval_ms * SAMPLE_RATE // 1_000
        self._languages = Languages(start.language)
        self._pending = np.zeros(0, np.float32)  # less than a frame
        self._open: Utterance | None = None
        self._utterances = 0  # begun so far
        self._decoding: dict[int, Utterance] = {}  # ended, and their finals not accepted
        self._settled: dict[int, list[Output]] = {}  # accepted, but an earlier one is not
        self._finals = 0  # sent so far: also the number of the next to be sent
        self._flushes: dict[int, Flushed] = {}  # to be answered once so many finals are sent
        self._stopped = False

    @property
    def pending_samples(self) -> int:
        """Samples at 16 kHz of ended utterances whose final has been neither accepted nor failed.

        Each counts as LEAST_BACKLOG at least, so that this bounds the recogniser's work, too.
        """
        return sum(max(one.stop - one.start, LEAST_PENDING) for one in self._decoding.values())

    @property
    def received(self) -> int:
        """Samples at 16 kHz that came so far, refused ones included."""
        return self._decoder.received

    @property
    def unprocessed(self) -> bool:
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
        return self.process()

    def process(self) -> list[Output]:
        """Hear on in what was fed, for half a second at most.

        Of the partials that fall due within one frame only the newest is given out: it supersedes
        the others, and many copies of 30 s would be large.
        """
        outputs = self._judge(self._decoder.read())
        return outputs if self.unprocessed else outputs + self._newest_work()

    def flush(self) -> list[Output]:
        """End the open utterance here, with all audio received; the stream goes on.

        `Flushed` follows the last final of what came before; of several that are due together only the
        last comes. Raises ProtocolError("bad_order") after `stop`.
        """
        outputs = self._end_here(last=False)
        at = self._segmenter.position / SAMPLE_RATE
        self._flushes[self._utterances] = Flushed(at=at)
        return outputs + self._answer_flush()

    def _end_here(self, *, last: bool) -> list[Output]:
        self._expect_running()
        outputs: list[Output] = []
        while self.unprocessed:
            outputs += self._judge(self._decoder.read())
        outputs += self._judge(self._decoder.finish())
        rest, self._pending = self._pending, self._pending[:0]
        return outputs + self._follow(self._segmenter.flush(rest, last=last))

    def stop(self) -> list[Output]:
        """End of audio: the open utterance ends; `Closed` comes with the last final. Idempotent."""
        if self._stopped:
            return []
        outputs = self._end_here(last=True)
        self._stopped = True
        return outputs + self._close_if_done()

    def accept(self, decode: Decode, hypothesis: Hypothesis, ms: float) -> list[Output]:
        """Take a decode's result; `ms` is how long it took, waiting included.

        A partial that comes after its utterance's end, or after a newer one, yields nothing.
        """
        if decode.final:
            return self._settle(decode, self._final(decode, hypothesis, ms))
        utterance = self._open
        if utterance is None or utterance.number != decode.utterance:
            return []
        if decode.early:
            utterance.early = decode, hypothesis
        return self._show(utterance, decode, hypothesis)

    def fail(self, decode: Decode, message: str) -> list[Output]:
        """Take that a decode could not be done: a final becomes an Error and an empty Final."""
        if not decode.final:
            return []
        error = Error(
            code="decode_failed",
            message=f"utterance {decode.utterance} could not be recognised: {message}",
            fatal=False,
        )
        nothing = Hypothesis("", self._languages.fixed or "")
        return self._settle(decode, [error, *self._final(decode, nothing, 0.0)])

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
            if self._open is not None and speech:
                self._speak(self._open)
        self._pending = audio[whole:].copy()  # a view would keep the whole frame alive
        return outputs

    def _follow(self, events: list[Event]) -> list[Output]:
        outputs: list[Output] = []
        for event in events:
            match event:
                case Began():
                    outputs.append(self._begin(event))
                case Paused():
                    self._pause(event)
                case Ended():
                    outputs += self._end(event)
                case _:
                    assert_never(event)
        return outputs

    def _begin(self, began: Began) -> Speech:
        number, at = self._utterances, began.start
        self._utterances += 1
        self._open = Utterance(number, start=at, due=at, given=at)
        return Speech(event="start", utterance=number, at=at / SAMPLE_RATE)

    def _pause(self, paused: Paused) -> None:
        assert self._open is not None
        self._open.paused = paused.stop

    def _speak(self, utterance: Utterance) -> None:
        utterance.paused = -1
        voiced = self._segmenter.speech_end - self._segmenter.onset
        if self._partials and self._languages.enough(voiced):
            utterance.note_speech(self._segmenter.speech_end, voiced, self._interval)

    def _end(self, ended: Ended) -> list[Output]:
        utterance = self._open
        assert utterance is not None
        self._open = None
        self._decoding[utterance.number] = utterance
        utterance.stop = ended.stop
        outputs: list[Output] = [
            Speech(event="end", utterance=utterance.number, at=ended.stop / SAMPLE_RATE)
        ]
        early = utterance.final_at(ended.stop)
        if early is not None:
            decode, hypothesis = early
            return outputs + self._settle(decode, self._final(decode, hypothesis, 0.0))
        span = ended.start, ended.stop
        return [*outputs, self._work(utterance, span, ended.voiced, ended.audio, final=True)]

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
        return [self._work(utterance, span, voiced, audio, early=early)]

    def _work(
        self,
        utterance: Utterance,
        span: tuple[int, int],
        voiced: int,
        audio: NDArray[np.float32],
        *,
        final: bool = False,
        early: bool = False,
    ) -> Decode:
        language, language_hint = self._languages.of(voiced)
        prefix = utterance.caption.stable if self._commits else ""
        if prefix and utterance.language is not None:
            language = utterance.language  # the words promised are in it
        return Decode(
            utterance.number,
            *span,
            audio,
            final=final,
            early=early,
            voiced=voiced,
            language=language,
            language_hint=utterance.language or language_hint,
            prefix=prefix,
        )

    def _show(self, utterance: Utterance, decode: Decode, hypothesis: Hypothesis) -> list[Output]:
        late = decode.stop <= utterance.shown
        if late or not self._partials or not worth_showing(hypothesis):
            return []
        utterance.shown = decode.stop
        utterance.language = hypothesis.language
        text, stable = utterance.caption.update(
            hypothesis.text.strip(), hypothesis.certain, whole=decode.early
        )
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

    def _final(self, decode: Decode, hypothesis: Hypothesis, ms: float) -> list[Output]:
        """The final message; the text is empty where nobody is believed to have spoken."""
        text = hypothesis.text.strip() if is_plausible(hypothesis) else ""
        if text and not hypothesis.looped:
            self._languages.learn(
                hypothesis.language, hypothesis.language_probability, decode.voiced
            )
        if self._commits:
            text = self._decoding[decode.utterance].caption.bind(text)
        return [final_message(decode.utterance, decode.start, decode.stop, hypothesis, text, ms)]

    def _settle(self, decode: Decode, messages: list[Output]) -> list[Output]:
        assert decode.utterance in self._decoding, f"utterance {decode.utterance} settled twice"
        del self._decoding[decode.utterance]
        self._settled[decode.utterance] = messages
        outputs: list[Output] = []
        while self._finals in self._settled:
            outputs += self._settled.pop(self._finals)
            self._finals += 1
            outputs += self._answer_flush()
        return outputs + self._close_if_done()

    def _answer_flush(self) -> list[Output]:
        flushed = self._flushes.pop(self._finals, None)
        return [] if flushed is None else [flushed]

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
