"""Vosk's websocket server: lock-step, for its clients wait for an answer before they send on.

Each frame of audio is answered at once, by the final of an utterance that is ready, else by what is spoken
now. `eof` and `reset` are answered by one final of all that is left. Times run from the first audio.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, assert_never

from msgspec import Meta, Struct

from streaming.dialects.dialect import Action, Dialect, Opening, Reply, Told, line, parsed
from streaming.dialects.figures import bare, confidence
from streaming.dialects.options import NO_EFFECT, from_object, hot_words
from streaming.protocol import (
    Closed,
    Configured,
    Error,
    Final,
    Flush,
    Flushed,
    Heard,
    Lag,
    Partial,
    ProtocolError,
    Ready,
    Speech,
    Start,
    Stop,
)

MOST_REASON = 120  # bytes of a close reason (RFC 6455, 5.5)
UNKNOWN_WORD = "[unk]"  # in a list of phrases: what is none of them


class Options(Struct):
    """`config`. Other fields are passed over, as Vosk does."""

    sample_rate: Annotated[float, Meta(ge=4_000, le=384_000, description="Hz")] = 8_000
    phrase_list: Annotated[
        list[str] | None,
        Meta(description="`hot_words` of `start`: what else is said is heard, too"),
    ] = None
    words: Annotated[bool, Meta(description="whether finals have the times of their words")] = True
    max_alternatives: Annotated[
        int,
        Meta(description="above 0: finals have the form with alternatives, of which there is one"),
    ] = 0
    model: Annotated[str | None, NO_EFFECT] = None

    def start(self) -> Start:
        """What is asked of captiond."""
        phrases = [one for one in self.phrase_list or () if one != UNKNOWN_WORD]
        asked = {"rate": round(self.sample_rate), "words": self.words}
        return from_object(Start, asked | {"hot_words": hot_words(phrases)})


class Vosk(Dialect):
    """One connection's. There is no message for errors: the first one ends the connection."""

    name = "vosk"
    forgiving = False
    starts_late = True

    def __init__(self, _opening: Opening) -> None:
        self._options = Options()
        self._started = False
        self._finals: deque[Final] = deque()  # that no reply has told
        self._partial = -1, ""  # of which utterance
        self._wrong = ""
        self._resetting = False

    def receive(self, frame: str | bytes) -> Iterator[Action]:
        """Audio, or a command; some send those in binary frames as well."""
        command = _command(frame)
        if command is None:
            assert isinstance(frame, bytes)
            yield from self._begin()
            yield frame
            yield Reply("partial")
        elif "eof" in command:
            yield from self._begin()
            yield Stop()
        elif "reset" in command:
            yield from self._begin()
            yield Reply("reset")
            yield Flush()
        elif "config" in command:
            if not self._started:  # later ones are passed over, as Vosk does
                self._options = from_object(Options, _known(command["config"]), strict=False)
        else:
            raise ProtocolError("bad_message", "commands are config, eof and reset")

    def _begin(self) -> Iterator[Action]:
        if not self._started:
            yield self._options.start()
            self._started = True

    def encode(self, message: Told) -> Iterator[str]:
        """Nothing without being asked."""
        match message:
            case Reply(about="reset"):
                self._resetting = True
            case Reply():
                yield self._next()
            case Partial():
                self._partial = message.utterance, message.text
            case Final():
                self._finals.append(message)
                if message.utterance >= self._partial[0]:
                    self._partial = -1, ""
            case Error(fatal=True):
                self._wrong = message.message
            case Flushed() if self._resetting:
                self._resetting = False
                yield self._rest()
            case Closed():
                yield self._rest()
            case Ready() | Speech() | Configured() | Flushed() | Lag() | Heard() | Error():
                pass
            case _:
                assert_never(message)

    def close(self, code: int, reason: str) -> tuple[int, str]:
        """What is wrong can be told here alone."""
        return code, self._wrong.encode()[:MOST_REASON].decode(errors="ignore") or reason

    def _next(self) -> str:
        while self._finals:
            final = self._finals.popleft()
            if final.text:
                return self._final([final])
        return line(partial=self._partial[1])

    def _rest(self) -> str:
        finals, self._finals = [one for one in self._finals if one.text], deque()
        return self._final(finals)

    def _final(self, finals: Sequence[Final]) -> str:
        text = " ".join(final.text for final in finals)
        words = [
            {"conf": word.probability, "start": word.start, "end": word.end, "word": bare(word)}
            for final in finals
            for word in final.words or ()
        ]
        if self._options.max_alternatives > 0:
            result = [{name: word[name] for name in ("start", "end", "word")} for word in words]
            sure = sum(map(confidence, finals)) / len(finals) if finals else 0.0
            best: dict[str, Any] = {"confidence": sure, "text": text}
            return line(alternatives=[best | ({"result": result} if result else {})])
        return line(result=words, text=text) if words else line(text=text)


def _command(frame: str | bytes) -> dict[str, Any] | None:
    """The object in a frame; None of audio. Raises ProtocolError for a text that is no object."""
    if isinstance(frame, bytes) and not frame.lstrip().startswith(b'{"'):
        return None
    command = parsed(frame)
    if command is None and isinstance(frame, str):
        raise ProtocolError("bad_json", "text frames carry JSON objects")
    return command


def _known(config: object) -> dict[str, Any]:
    if not isinstance(config, dict):
        raise ProtocolError("bad_message", "config is an object")
    return config
