"""The replay buffer: audio and control messages that may have to be sent again. Pure.

Positions are bytes of the stream's audio. The user bounds the buffer by calling `acknowledge`.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Audio:
    """Bytes of audio, from `position` on."""

    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Mark:
    """A control message that was sent behind `position` bytes of audio."""

    position: int
    text: str


class Answers:
    """Answers that tell a place in the audio. Once the stream is resumed each may come a second time."""

    def __init__(self) -> None:
        self._place = -1.0  # of the last one
        self._silent = False  # no audio was sent since the last question
        self._again = False  # a second answer at the same place is due

    def audio(self) -> None:
        """Audio is being sent."""
        self._silent = False

    def ask(self) -> None:
        """A question is being sent."""
        self._again, self._silent = self._silent, True

    def is_news(self, place: float, *, resumed: bool) -> bool:
        """Whether the answer that tells `place` is the first to its question."""
        if resumed and place <= self._place and not self._again:
            return False
        self._place, self._again = place, False
        return True


class Replay:
    """Audio and control messages in the order they were sent."""

    def __init__(self) -> None:
        self._items: deque[Audio | Mark] = deque()
        self._end = 0

    @property
    def start(self) -> int:
        """The first byte that can still be sent again."""
        first = next((item for item in self._items if isinstance(item, Audio)), None)
        return self._end if first is None else first.position

    def audio(self, data: bytes) -> None:
        """Keep `data`, which is being sent."""
        self._items.append(Audio(self._end, data))
        self._end += len(data)

    def mark(self, text: str) -> None:
        """Keep the control message `text`, which is being sent."""
        self._items.append(Mark(self._end, text))

    def acknowledge(self, count: int) -> None:
        """Forget the first `count` bytes, and control messages before the last of them."""
        while self._items and self._is_safe(self._items[0], count):
            self._items.popleft()

    def rest(self, count: int) -> Iterator[bytes | str]:
        """What to send again to a daemon that has received `count` bytes.

        It includes a control message at that very position: it may have been lost, and may safely come
        twice.
        """
        for item in list(self._items):
            match item:
                case Mark():
                    if item.position >= count:
                        yield item.text
                case Audio():
                    left = item.data[max(count - item.position, 0) :]
                    if left:
                        yield left

    @staticmethod
    def _is_safe(item: Audio | Mark, count: int) -> bool:
        if isinstance(item, Mark):
            return item.position < count
        return item.position + len(item.data) <= count
