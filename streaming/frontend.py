"""Bytes in, segmenter events out: decoder, detector of speech and segmenter in a row."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from streaming.audio import AudioDecoder
from streaming.foreground import Foreground
from streaming.protocol import Closed, Start
from streaming.segmenter import Segmenter, SegmenterEvent
from streaming.settings import Settings
from streaming.vad import VoiceActivity, detector

# What a frame of the detector led to, and whether it was speech.
Judged = tuple[list[SegmenterEvent], bool]


class FrontEnd:
    """One stream's. What `read` and `finish` return is lazy: go through all of it at once.

    `vad` replaces the detector that the settings name.
    """

    def __init__(self, start: Start, settings: Settings, vad: VoiceActivity | None) -> None:
        self._decoder = AudioDecoder(start.encoding, start.rate, start.channels, start.channel)
        self._vad = vad if vad is not None else detector(settings.vad, settings.vad_mode)
        self.segmenter = Segmenter(settings, self._vad.frame)
        self._pending = np.zeros(0, np.float32)  # less than a frame

    @property
    def onset(self) -> int:
        """The sample at which the open utterance's speech began at the latest.

        A frame judged as speech may be so for its last sample.
        """
        return self.segmenter.onset + self._vad.frame - 1

    @property
    def received(self) -> int:
        """Samples at 16 kHz that came so far, refused ones included."""
        return self._decoder.received

    @property
    def position(self) -> int:
        """Session time that has come, in samples: up to 0.1 s of it is judged later."""
        return self._decoder.position

    @property
    def unread(self) -> bool:
        """Whether some of the last binary frame waits for `read`."""
        return self._decoder.unread

    def take(self, data: bytes) -> None:
        """Take a binary frame. Raises ProtocolError as `AudioDecoder.take` does."""
        self._decoder.take(data)

    def read(self) -> Iterator[Judged]:
        """Half a second of what was taken, at most."""
        return self._judge(self._decoder.read())

    def finish(self, *, last: bool) -> Iterator[Judged]:
        """All that is left; the open utterance ends. More may follow unless this was the `last`."""
        while self.unread:
            yield from self.read()
        yield from self._judge(self._decoder.finish())
        rest, self._pending = self._pending, self._pending[:0]
        yield self.segmenter.flush(rest, last=last), False

    def account(self, *, finals: int) -> Closed:
        """Of all samples that came, once the last is read."""
        speech, silence, refused = (
            self.segmenter.speech,
            self.segmenter.silence,
            self._decoder.refused,
        )
        closed = Closed(self.received, speech, silence, refused, finals)
        assert closed.received == speech + silence + refused, closed
        return closed

    def pause(self) -> Iterator[Judged]:
        """All that is left; the open utterance ends as if a pause had come. More may follow."""
        yield from self._judge(self._decoder.finish())
        rest, self._pending = self._pending, self._pending[:0]
        yield self.segmenter.pause(rest), False

    def _judge(self, samples: NDArray[np.float32]) -> Iterator[Judged]:
        audio = np.concatenate([self._pending, samples])
        size = self._vad.frame
        whole = len(audio) - len(audio) % size
        self._pending = audio[whole:].copy()  # a view would keep the whole frame alive
        for at in range(0, whole, size):
            frame = audio[at : at + size]
            speech = self._vad.is_speech(frame)
            crowd = self._vad.crowd if isinstance(self._vad, Foreground) else 0
            yield self.segmenter.push(frame, speech=speech, crowd=crowd), speech
