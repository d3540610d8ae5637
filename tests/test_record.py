from pathlib import Path

from daemon.sessions.record import Record
from daemon.sessions.replay_log import ReplayLog
from daemon.sessions.transcripts import Transcripts
from streaming.protocol import Closed, Final, ServerMessage, Speech
from tests.support.standin import final, spoken

WORDS = spoken(("a", 0.1, 0.2))


def test_words_are_told_where_they_are_wanted() -> None:
    for words in (False, True):
        record = Record(ReplayLog(), None, words=words)
        told = record.add(final("a", words=WORDS))
        assert isinstance(told, Final)
        assert told.words == (WORDS if words else None)
        assert record.replay_log.after(0) == [told]


def test_a_transcript_has_the_words_and_the_end(tmp_path: Path) -> None:
    transcripts = Transcripts(str(tmp_path), 1, 1, failed=lambda: None)
    record = Record(ReplayLog(), transcripts.open("0a1b2c3d", {}), words=False)
    closed = Closed(received=16_000, speech=8_000, silence=8_000, refused=0, finals=1)
    said: list[ServerMessage] = [
        Speech(event="start", utterance=0, at=0.0),
        final("a", words=WORDS),
        closed,
    ]
    told = [record.add(message) for message in said]
    record.close()
    transcripts.stop()
    (lines,) = tmp_path.glob("*.jsonl")
    _, kept, last = lines.read_text().splitlines()
    assert '"words":[{"text":"a"' in kept
    assert '"closed"' in last
    assert [told[0], told[2]] == [said[0], said[2]]
