"""The items of OpenAI's Realtime API: from utterances and commits to its events.

An item is what is transcribed as one: an utterance where the server detects turns, and all that came
between two commits where it does not. Its deltas only ever append to its text.

    speech_started → speech_stopped → committed → item.added, item.done → delta … → completed
"""

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from streaming.dialects.figures import milliseconds
from streaming.protocol import Final, Partial, Speech, Word

INSTANT = 1e-3  # seconds: times that are closer are the same
TRANSCRIPTION = "conversation.item.input_audio_transcription"

Event = dict[str, Any]


@dataclass(slots=True)
class Item:
    """One. seconds: of audio that was heard for it. sent: its deltas so far. cleared: nobody wants it."""

    id: str
    texts: list[str] = field(default_factory=list)
    logprobs: list[Event] = field(default_factory=list)
    seconds: float = 0.0
    sent: str = ""
    failure: str = ""
    committed: bool = False
    cleared: bool = False

    def with_text(self, text: str = "") -> str:
        """All of its text, if `text` came next."""
        return " ".join(one for one in (*self.texts, text) if one)


class Items:
    """One session's. name: random; what ids are made of.

    beta: whether events have the form of the beta. manual: whether only commits end an item. logprobs:
    whether they are told. live: whether deltas come before the final. cut: second up to where audio is
    in an item.
    """

    def __init__(self, name: str) -> None:
        self.beta = self.manual = self.logprobs = self.live = False
        self.cut = 0.0
        self.failure = ""  # why the final that follows is empty
        self._name = name
        self._count = 0
        self._last: str | None = None  # the item committed last
        self._open: dict[int, Item] = {}  # by utterance, where turns are detected
        self._gathering = self._new()  # ... and where they are not
        self._commits: deque[tuple[float, Item | None]] = (
            deque()
        )  # up to which second; not answered

    def speech(self, speech: Speech) -> Iterator[Event]:
        """Where turns are detected one has begun, or ended."""
        if self.manual:
            return
        kind, ms = "input_audio_buffer.speech_st", milliseconds(speech.at)
        if speech.event == "start":
            item = self._open[speech.utterance] = self._new()
            yield {"type": f"{kind}arted", "audio_start_ms": ms, "item_id": item.id}
            return
        item = self._open[speech.utterance]
        if item.cleared:
            return
        self.cut = max(self.cut, speech.at)
        yield {"type": f"{kind}opped", "audio_end_ms": ms, "item_id": item.id}
        yield from self._committed(item)
        # What was committed by hand is this item, if it ends there.
        late = speech.at - INSTANT
        self._commits = deque((at, None if at >= late else one) for at, one in self._commits)

    def commit(self, at: float) -> Iterator[Event]:
        """All up to second `at` is one item; where turns are detected, only if none ends there."""
        item = self._gathering
        self._commits.append((at, item))
        self._gathering = self._new()
        if self.manual:
            yield from self._committed(item)

    def clear(self, at: float) -> Iterator[Event]:
        """Nothing is told of what is not committed."""
        for item in (*self._open.values(), self._gathering):
            item.cleared = not item.committed
        self._commits.append((at, self._gathering))
        self._gathering = self._new()
        yield {"type": "input_audio_buffer.cleared"}

    def partial(self, partial: Partial) -> Iterator[Event]:
        """What of it is promised."""
        item = self._item(partial.utterance, partial.start)
        yield from self._delta(item, item.with_text(partial.text[: partial.stable]))

    def final(self, final: Final) -> Iterator[Event]:
        """The words of an utterance."""
        item = self._item(final.utterance, final.start)
        item.seconds += final.end - final.start
        item.texts.append(final.text)
        item.logprobs += map(_logprob, final.words or ())
        item.failure, self.failure = self.failure, ""
        if self.live:
            yield from self._delta(item, item.with_text())
        if not self.manual:
            del self._open[final.utterance]
            yield from self._completed(item)

    def flushed(self, at: float) -> Iterator[Event]:
        """All that was spoken before second `at` is told."""
        while self._commits and self._commits[0][0] <= at + INSTANT:
            _, item = self._commits.popleft()
            if item is None or item.cleared:
                continue
            if not self.manual:
                yield from self._committed(item)
            yield from self._completed(item)

    def _item(self, utterance: int, start: float) -> Item:
        if not self.manual:
            return self._open[utterance]
        pending = (item for at, item in self._commits if item is not None and start < at - INSTANT)
        return next(pending, self._gathering)

    def _new(self) -> Item:
        self._count += 1
        return Item(f"item_{self._name[:16]}{self._count:05}")

    def _committed(self, item: Item) -> Iterator[Event]:
        before = {"previous_item_id": self._last}
        item.committed, self._last = True, item.id
        yield {"type": "input_audio_buffer.committed", "item_id": item.id, **before}
        content = {"type": "input_audio", "transcript": None}
        shown: Event = {"id": item.id, "object": "realtime.item", "type": "message", "role": "user"}
        shown |= {"status": "completed", "content": [content]}
        for kind in ("created",) if self.beta else ("added", "done"):
            yield {"type": f"conversation.item.{kind}", "item": shown, **before}

    def _delta(self, item: Item, text: str) -> Iterator[Event]:
        """What `text` has beyond the deltas so far."""
        if not item.cleared and len(text) > len(item.sent):
            delta, item.sent = text[len(item.sent) :], text
            about = {"item_id": item.id, "content_index": 0}
            yield {"type": f"{TRANSCRIPTION}.delta", **about, "delta": delta}

    def _completed(self, item: Item) -> Iterator[Event]:
        if item.cleared:
            return
        about = {"item_id": item.id, "content_index": 0}
        if item.failure:
            error = {"type": "server_error", "code": "decode_failed", "param": None}
            error["message"] = item.failure
            yield {"type": f"{TRANSCRIPTION}.failed", **about, "error": error}
            return
        text = item.with_text()
        yield from self._delta(item, text)
        usage = {"type": "duration", "seconds": round(item.seconds, 3)}
        event = {"type": f"{TRANSCRIPTION}.completed", **about, "transcript": text, "usage": usage}
        yield event | ({"logprobs": item.logprobs} if self.logprobs else {})


def _logprob(word: Word) -> Event:
    logprob = math.log(max(word.probability, 1e-6))
    return {"token": word.text, "logprob": round(logprob, 4), "bytes": list(word.text.encode())}
