"""Early finals, and what they spare. The detector is a script, the rest is the session itself."""

import numpy as np
import pytest

from streaming.configuration import Configuration
from streaming.languages import Languages
from streaming.protocol import Final, Flushed, Partial, Speech, Start
from streaming.session import Session
from streaming.utterance import LEAD, NEW_SHARE, Decode, Utterance
from tests.support import streams
from tests.support.streams import (
    RATE,
    feed_all,
    finals,
    loud,
    partials,
    quiet,
    session,
)


def paused(*, partials: bool = True) -> tuple[Session, Decode]:
    """A session in a pause that is too short for an endpoint, and the early final asked for."""
    stream = streams.session(partials=partials)
    (early,) = streams.earlies(streams.feed_all(stream, streams.loud(1), streams.quiet(0.3)))
    return stream, early


def test_a_final_is_asked_for_when_silence_begins() -> None:
    stream, early = paused()
    (final,) = streams.finals(streams.feed_all(stream, streams.quiet(0.5)))
    assert (early.start, early.stop, early.voiced) == (final.start, final.stop, final.voiced)
    np.testing.assert_array_equal(early.audio, final.audio)


def test_the_endpoint_confirms_what_has_been_decoded() -> None:
    stream, early = paused()
    (partial,) = stream.accept(early, streams.GoodHypothesis("it is so."), 1.0)
    assert isinstance(partial, Partial)
    assert partial.text == "it is so."
    outputs = streams.feed_all(stream, streams.quiet(0.5))
    assert streams.decodes(outputs) == []
    end, final = outputs
    assert isinstance(end, Speech)
    assert isinstance(final, Final)
    assert (end.event, final.text, final.decode.ms) == ("end", "it is so.", 0.0)
    assert (final.start, final.end) == (early.start / streams.RATE, early.stop / streams.RATE)
    assert stream.pending_samples == 0


def test_a_flush_confirms_it_too() -> None:
    stream, early = paused()
    stream.accept(early, streams.GoodHypothesis("it is so."), 1.0)
    outputs = stream.flush()
    assert streams.decodes(outputs) == []
    assert [type(output) for output in outputs] == [Speech, Final, Flushed]


def test_when_speech_goes_on_it_was_a_partial() -> None:
    stream, early = paused()
    streams.feed_all(stream, streams.loud(0.1))
    (partial,) = stream.accept(early, streams.GoodHypothesis("it is so."), 1.0)
    assert isinstance(partial, Partial)
    outputs = streams.feed_all(stream, streams.loud(0.4), streams.quiet(0.8))
    (second,) = streams.earlies(outputs)
    (final,) = streams.finals(outputs)
    assert second.stop == final.stop > early.stop


def test_an_early_final_that_comes_late_is_not_waited_for() -> None:
    """The endpoint asks again; whoever still works on the first may answer both with one."""
    stream, early = paused()
    (final,) = streams.finals(streams.feed_all(stream, streams.quiet(0.5)))
    assert stream.accept(early, streams.GoodHypothesis("late"), 1.0) == []
    (message,) = stream.accept(final, streams.GoodHypothesis("in time"), 1.0)
    assert isinstance(message, Final)
    assert message.text == "in time"


def test_early_finals_show_nothing_to_those_who_want_no_partials() -> None:
    stream, early = paused(partials=False)
    assert stream.accept(early, streams.GoodHypothesis("it is so."), 1.0) == []
    assert isinstance(streams.feed_all(stream, streams.quiet(0.5))[-1], Final)


def test_a_pause_within_one_long_frame_costs_nothing() -> None:
    """Where speech goes on in the same half second there is nothing to be early for."""
    stream = streams.session()
    outputs = stream.feed(
        (np.concatenate([streams.loud(0.1), streams.quiet(0.25), streams.loud(0.15)]) * 32_767)
        .astype("<i2")
        .tobytes()
    )
    assert streams.earlies(outputs) == []


@pytest.mark.parametrize(("voiced", "step"), [(0, 8_000), (80_000, 8_000), (200_000, 20_000)])
def test_a_partial_is_due_after_enough_that_is_new(voiced: int, step: int) -> None:
    assert NEW_SHARE == 10
    asked = Configuration(Start(), Languages(None))
    one = Utterance(0, start=0, onset=0, due=100, given=100, configuration=asked)
    one.note_speech(100 + step - 1, voiced, 8_000)
    assert one.due == 100
    one.note_speech(100 + step, voiced, 8_000)
    assert one.due == 100 + step


@pytest.mark.parametrize(
    ("onset", "length", "lead"),
    [
        (0, RATE, LEAD),
        (1_000, RATE, LEAD - 1_000),
        (LEAD, RATE, 0),
        (LEAD + 1, RATE, 0),
        (0, 30 * RATE - 7, 7),
        (0, 30 * RATE, 0),
    ],
)
def test_speech_has_silence_before_it(onset: int, length: int, lead: int) -> None:
    """As far as the window has room for it."""
    one = Utterance(
        0,
        start=0,
        onset=onset,
        due=0,
        given=0,
        configuration=Configuration(Start(), Languages(None)),
    )
    assert one.lead(length) == lead


def test_silence_is_put_in_front_of_speech_that_begins_a_stream() -> None:
    """... or follows a flush; not where the pause before can be heard."""
    stream = session()
    (first,) = finals(feed_all(stream, loud(1)) + stream.flush())
    (second,) = finals(feed_all(stream, loud(1), quiet(3)))
    (third,) = finals(feed_all(stream, loud(1), quiet(1)))
    assert [one.lead for one in (first, second, third)] == [LEAD, LEAD, 0]


def test_speech_behind_a_cut_has_silence_before_it() -> None:
    stream = session(partials=False, cap_ms=10_000)
    outputs = feed_all(stream, loud(12), quiet(1))
    (first,) = finals(outputs)
    (second,) = finals(streams.answer(stream, outputs))
    assert first.stop == second.start
    assert second.lead == LEAD


# The promise of `commit`.


def committed() -> tuple[Session, str]:
    """A session with words promised, and these."""
    stream = streams.session(stability="commit")
    for work in partials(streams.feed_all(stream, streams.loud(1.05))):
        (message,) = stream.accept(work, streams.GoodHypothesis("one two three four"), 1.0)
    assert isinstance(message, Partial)
    return stream, message.text[: message.stable]


def test_later_decodes_are_told_what_was_promised() -> None:
    stream, promised = committed()
    assert promised == "one two three"
    later = streams.decodes(streams.feed_all(stream, streams.loud(0.5), streams.quiet(1)))
    assert {work.prefix for work in later} == {promised}
    assert {work.language for work in later} == {"en"}


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ("one two three, four.", "one two three, four."),
        ("won two three, four.", "one two three, four."),
        ("", "one two three"),
    ],
)
def test_a_final_begins_with_what_was_promised(said: str, text: str) -> None:
    """Whatever the recogniser makes of it, silence included."""
    stream, _ = committed()
    (work,) = streams.finals(stream.flush())
    final, _ = stream.accept(work, streams.GoodHypothesis(said), 1.0)
    assert isinstance(final, Final)
    assert final.text == text


def test_a_failed_final_keeps_what_was_promised() -> None:
    stream, promised = committed()
    (work,) = streams.finals(stream.flush())
    _, final, _ = stream.fail(work, "no")
    assert isinstance(final, Final)
    assert final.text == promised


def test_without_the_promise_a_final_is_free() -> None:
    stream = streams.session()
    for work in partials(streams.feed_all(stream, streams.loud(1.05))):
        stream.accept(work, streams.GoodHypothesis("one two three four"), 1.0)
    (work,) = streams.finals(stream.flush())
    assert work.prefix == ""
    final, _ = stream.accept(work, streams.GoodHypothesis("won too"), 1.0)
    assert isinstance(final, Final)
    assert final.text == "won too"
