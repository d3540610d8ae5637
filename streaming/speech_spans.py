"""Where a stream's voiced frames lie: spans of samples, for as long as their audio is kept."""

from collections import deque

Spans = tuple[tuple[int, int], ...]  # [start, stop) each, ascending, none meets the next


class SpeechSpans:
    """The spans of speech of one stream, in session time."""

    def __init__(self) -> None:
        self._spans: deque[tuple[int, int]] = deque()

    def add(self, start: int, stop: int) -> None:
        """A frame of speech, [start, stop), behind all that were added."""
        if self._spans and self._spans[-1][1] == start:
            start, _ = self._spans.pop()
        self._spans.append((start, stop))

    def within(self, start: int, stop: int) -> Spans:
        """The speech of [start, stop), in samples from `start` on."""
        return tuple(
            (max(a, start) - start, min(b, stop) - start)
            for a, b in self._spans
            if a < stop and b > start
        )

    def forget(self, before: int) -> None:
        """Give up the spans that end before the index."""
        while self._spans and self._spans[0][1] <= before:
            self._spans.popleft()
