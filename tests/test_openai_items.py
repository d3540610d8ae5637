from typing import Any

from streaming.dialects.openai_items import Items
from streaming.protocol import DecodeFigures, Final, Partial, Speech

FIGURES = DecodeFigures(rounds=1, proposed=0, accepted=0, reused=0, ms=1.0)


def final(utterance: int, start: float, end: float, text: str) -> Final:
    about: dict[str, Any] = {"language": "en", "no_speech": 0.0, "mean_logprob": 0.0}
    return Final(utterance=utterance, start=start, end=end, text=text, decode=FIGURES, **about)


def short(events: Any) -> list[str]:
    return [event["type"].rpartition(".")[2] for event in events]


def spoken(items: Items, utterance: int, start: float, end: float) -> list[Any]:
    said = [Speech(event="start", utterance=utterance, at=start)]
    said += [Speech(event="end", utterance=utterance, at=end)]
    return [event for speech in said for event in items.speech(speech)]


def test_the_events_of_a_turn_come_in_order() -> None:
    items = Items("n")
    events = [*spoken(items, 0, 0.25, 2.0), *items.final(final(0, 0.25, 2.0, "Hello."))]
    kinds = ["speech_started", "speech_stopped", "committed", "added", "done", "delta", "completed"]
    assert short(events) == kinds
    assert (events[0]["audio_start_ms"], events[1]["audio_end_ms"]) == (250, 2000)
    assert len({event.get("item_id", event.get("item", {}).get("id")) for event in events}) == 1
    assert events[-1]["usage"] == {"type": "duration", "seconds": 1.75}


def test_items_name_the_one_before() -> None:
    items = Items("n")
    first = spoken(items, 0, 0.0, 1.0)[2]
    second = spoken(items, 1, 2.0, 3.0)[2]
    assert first["previous_item_id"] is None
    assert second["previous_item_id"] == first["item_id"]


def test_commits_cut_where_no_turns_are_detected() -> None:
    """Each final belongs to the commit after it, whenever it comes."""
    items = Items("n")
    items.manual = True
    assert not spoken(items, 0, 0.0, 1.0)
    first = list(items.commit(2.0))
    second = list(items.commit(4.0))
    assert short(first) == short(second) == ["committed", "added", "done"]
    events = [*items.final(final(0, 0.0, 1.0, "a")), *items.final(final(1, 2.0, 3.0, "b"))]
    assert not events
    events = list(items.flushed(4.0))
    done = [event for event in events if event["type"].endswith("completed")]
    assert [(event["item_id"], event["transcript"]) for event in done] == [
        (first[0]["item_id"], "a"),
        (second[0]["item_id"], "b"),
    ]


def test_live_deltas_only_append() -> None:
    items = Items("n")
    items.manual = items.live = True
    partial = Partial(utterance=0, start=0.0, end=1.0, text="one two three", stable=7)
    deltas = [*items.partial(partial), *items.final(final(0, 0.0, 1.0, "one two four."))]
    deltas += items.final(final(1, 1.0, 2.0, "Five."))
    assert [event["delta"] for event in deltas] == ["one two", " four.", " Five."]
    list(items.commit(2.0))
    (done,) = items.flushed(2.0)
    assert done["transcript"] == "one two four. Five."


def test_a_commit_in_silence_is_an_empty_item() -> None:
    items = Items("n")
    assert not list(items.commit(1.0))
    assert short(items.flushed(1.0)) == ["committed", "added", "done", "completed"]


def test_a_commit_of_an_open_turn_is_that_turn() -> None:
    items = Items("n")
    list(items.speech(Speech(event="start", utterance=0, at=0.0)))
    list(items.commit(1.0))
    assert "committed" in short(items.speech(Speech(event="end", utterance=0, at=1.0)))
    list(items.final(final(0, 0.0, 1.0, "a")))
    assert not list(items.flushed(1.0))


def test_what_was_cleared_is_told_no_more() -> None:
    items = Items("n")
    list(items.speech(Speech(event="start", utterance=0, at=0.0)))
    assert short(items.clear(1.0)) == ["cleared"]
    assert not list(items.speech(Speech(event="end", utterance=0, at=1.0)))
    assert not list(items.final(final(0, 0.0, 1.0, "a")))
    assert not list(items.flushed(1.0))


def test_what_was_committed_is_not_cleared() -> None:
    """Its final may come later."""
    items = Items("n")
    spoken(items, 0, 0.0, 1.0)
    list(items.clear(1.0))
    assert short(items.final(final(0, 0.0, 1.0, "a"))) == ["delta", "completed"]


def test_what_could_not_be_decoded_has_failed() -> None:
    items = Items("n")
    items.failure = "too loud"
    events = [*spoken(items, 0, 0.0, 1.0), *items.final(final(0, 0.0, 1.0, ""))]
    assert short(events)[-1] == "failed"
    assert events[-1]["error"]["message"] == "too loud"
