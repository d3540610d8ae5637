import numpy as np
import pytest

from streaming.protocol import Closed, Error, Final, Flushed, Partial, ProtocolError, Speech
from streaming.settings import Settings
from streaming.utterance import Decode
from tests.support.streams import (
    RATE,
    GoodHypothesis,
    answer,
    closing,
    decodes,
    earlies,
    feed,
    feed_all,
    finals,
    loud,
    partials,
    quiet,
    ranges,
    s16,
    session,
)

# The line: bytes to work, hypotheses to messages.


def test_an_utterance_gives_start_partial_work_end_and_final_work() -> None:
    stream = session()
    outputs = feed_all(stream, quiet(0.9), loud(0.9), quiet(0.8))
    begin, *between, end, final = outputs
    assert begin == Speech(event="start", utterance=0, at=0.6)
    assert [(work.start, work.stop, work.early) for work in decodes(between)] == [
        (9_600, 17_760, False),
        (9_600, 25_920, False),
        (9_600, 32_000, True),
    ]
    assert end == Speech(event="end", utterance=0, at=2.0)
    assert isinstance(final, Decode)
    assert (final.utterance, final.start, final.stop, final.final) == (0, 9_600, 32_000, True)


def test_finals_know_where_speech_is_and_partials_do_not() -> None:
    """Early ones, too, which may become the final."""
    outputs = feed_all(session(), quiet(0.9), loud(0.9), quiet(0.3), loud(0.6), quiet(0.8))
    *_, early = earlies(outputs)
    (final,) = finals(outputs)
    assert early.speech == final.speech
    frame = 480
    edges = [edge + final.start for span in final.speech for edge in span]
    assert edges == pytest.approx([0.9 * RATE, 1.8 * RATE, 2.1 * RATE, 2.7 * RATE], abs=frame)
    assert all(work.speech == () for work in partials(outputs))


def test_a_partial_decode_keeps_its_audio_while_the_session_goes_on() -> None:
    stream = session(encoding="f32le")
    first = partials(feed(stream, loud(1).astype("<f4").tobytes()))[0]
    before = first.audio.copy()
    feed(stream, np.full(40 * RATE, 0.9, "<f4").tobytes())
    np.testing.assert_array_equal(first.audio, before)


def test_a_final_hypothesis_becomes_a_final_message_with_all_figures() -> None:
    stream = session()
    (work,) = finals(feed_all(stream, loud(1), quiet(1)))
    (final,) = stream.accept(work, GoodHypothesis(" Yes. "), ms=12.5)
    assert isinstance(final, Final)
    wanted = (0, 0.0, work.stop / RATE, "Yes.")
    assert (final.utterance, final.start, final.end, final.text) == wanted
    assert (final.language, final.no_speech, final.mean_logprob) == ("en", 0.25, -0.5)
    figures = final.decode
    assert (figures.rounds, figures.proposed, figures.accepted, figures.reused) == (4, 9, 7, 3)
    assert figures.ms == 12.5


def test_a_partial_hypothesis_becomes_a_partial_message_with_its_stable_prefix() -> None:
    stream = session()
    first, second = partials(feed_all(stream, loud(1.05)))
    assert stream.accept(first, GoodHypothesis("it is no."), 1.0) == [
        Partial(utterance=0, start=0.0, end=first.stop / RATE, text="it is", stable=0)
    ]
    assert stream.accept(second, GoodHypothesis("it is not so."), 1.0) == [
        Partial(utterance=0, start=0.0, end=second.stop / RATE, text="it is not", stable=5)
    ]


def test_a_partial_hypothesis_without_text_is_not_shown() -> None:
    stream = session()
    first, second = partials(feed_all(stream, loud(1.05)))
    assert stream.accept(first, GoodHypothesis(" "), 1.0) == []
    assert len(stream.accept(second, GoodHypothesis("yes, but"), 1.0)) == 1


def test_a_partial_older_than_one_accepted_yields_nothing() -> None:
    stream = session()
    first, second = partials(feed_all(stream, loud(1.05)))
    assert len(stream.accept(second, GoodHypothesis("it is"), 1.0)) == 1
    assert stream.accept(first, GoodHypothesis("it"), 1.0) == []
    assert stream.accept(second, GoodHypothesis("it is"), 1.0) == []


def test_a_stable_prefix_does_not_reach_into_the_next_utterance() -> None:
    stream = session()
    for work in partials(feed_all(stream, loud(1.05))):
        stream.accept(work, GoodHypothesis("one two"), 1.0)
    stream.flush()
    work = partials(feed_all(stream, loud(1)))[0]
    (partial,) = stream.accept(work, GoodHypothesis("one two"), 1.0)
    assert isinstance(partial, Partial)
    assert (partial.utterance, partial.text, partial.stable) == (1, "one", 0)


def test_partials_come_at_the_interval_in_new_audio() -> None:
    stream = session(Settings(partial_interval_ms=300))
    stops = [work.stop for work in partials(feed_all(stream, loud(1.51)))]
    assert stops == [4_800, 9_600, 14_400, 19_200, 24_000]


def test_of_partials_due_in_one_frame_only_the_newest_is_given_out() -> None:
    """A large frame would else cost a copy of up to 30 s for every half second in it."""
    stream = session(Settings(partial_interval_ms=300))
    assert [work.stop for work in partials(feed(stream, s16(loud(1.3))))] == [19_200]
    assert [work.stop for work in partials(feed(stream, s16(loud(0.1))))] == []
    assert [work.stop for work in partials(feed(stream, s16(loud(0.1))))] == [24_000]
    ended = feed(stream, s16(loud(2), quiet(1)))
    assert [work.final for work in decodes(ended)] == [True]


def test_no_partials_are_asked_for_where_none_are_wanted() -> None:
    stream = session(partials=False)
    works = decodes(feed_all(stream, loud(5), quiet(1)))
    assert [(work.final, work.early) for work in works] == [(False, True), (True, False)]


def test_partials_of_a_long_utterance_come_less_often() -> None:
    """Each costs more and changes less: one for every tenth of what was spoken."""
    stops = [work.stop for work in partials(feed_all(session(), loud(25)))]
    steps = np.diff(stops) / RATE
    assert steps[0] < 0.6
    assert 2.1 < steps[-1] < 2.5


def test_silence_asks_for_no_partials() -> None:
    """There is nothing new to be heard in it; the early final has said all."""
    stream = session(Settings(endpoint_silence_ms=5_000))
    works = decodes(feed_all(stream, loud(0.6), quiet(4)))
    assert [work.early for work in works] == [False, True]


def test_a_failed_final_is_an_error_and_an_empty_final_in_its_place() -> None:
    stream = session(language="de")
    works = finals(feed_all(stream, *[loud(0.5), quiet(3)] * 2))
    assert stream.fail(works[1], "out of memory") == []
    first, error, empty = stream.accept(works[0], GoodHypothesis("a"), 1.0)
    assert isinstance(first, Final)
    assert error == Error(
        code="decode_failed",
        message="utterance 1 could not be recognised: out of memory",
        fatal=False,
    )
    assert isinstance(empty, Final)
    assert (empty.utterance, empty.text, empty.language) == (1, "", "de")
    assert (empty.start, empty.end) == (works[1].start / RATE, works[1].stop / RATE)
    assert empty.voiced == pytest.approx(0.5, abs=0.05)
    assert empty.covered == 0


def test_a_failed_partial_yields_nothing() -> None:
    stream = session()
    assert stream.fail(partials(feed_all(stream, loud(1)))[0], "cancelled") == []


def test_a_final_settled_twice_is_our_own_mistake() -> None:
    stream = session()
    (work,) = finals(feed_all(stream, loud(1), quiet(1)))
    stream.accept(work, GoodHypothesis("a"), 1.0)
    with pytest.raises(AssertionError, match="utterance 0 settled twice"):
        stream.accept(work, GoodHypothesis("a"), 1.0)


def test_the_backlog_counts_the_samples_whose_final_is_outstanding() -> None:
    stream = session()
    first, second = finals(feed_all(stream, *[loud(1.5), quiet(3)] * 2))
    assert stream.pending_samples == len(first.audio) + len(second.audio)
    stream.accept(second, GoodHypothesis("b"), 1.0)
    assert stream.pending_samples == len(first.audio)
    stream.fail(first, "no")
    assert stream.pending_samples == 0


def test_a_short_utterance_counts_as_a_second_of_backlog() -> None:
    """A thousand of them would else be little audio, and minutes of work."""
    stream = session()
    for _ in range(10):
        feed_all(stream, loud(0.2))
        stream.flush()
    assert stream.pending_samples == 10 * RATE


# Flush, stop and the account.


def test_a_session_without_audio_closes_with_zeros_and_once() -> None:
    stream = session()
    assert stream.stop() == [Closed(received=0, speech=0, silence=0, refused=0, finals=0)]
    assert stream.stop() == []


@pytest.mark.parametrize("call", ["feed", "flush"])
def test_nothing_may_follow_stop(call: str) -> None:
    stream = session()
    stream.stop()
    with pytest.raises(ProtocolError, match="nothing may follow stop") as caught:
        stream.feed(b"") if call == "feed" else stream.flush()
    assert caught.value.code == "bad_order"


def test_flush_gives_the_last_word_at_once_and_the_stream_goes_on() -> None:
    stream = session()
    outputs = feed_all(stream, loud(0.5))
    outputs += stream.flush()
    outputs += feed_all(stream, loud(0.5))
    outputs += stream.flush()
    assert ranges(outputs) == [(0, 8_000), (8_000, 16_000)]


@pytest.mark.parametrize("rate", [8_000, 44_100, 48_000])
def test_flush_takes_what_the_resampler_holds_back(rate: int) -> None:
    """Up to a tenth of a second of the last word would else wait for more audio."""
    stream = session(rate=rate)
    tone = 0.5 * np.sin(2 * np.pi * 500 * np.arange(rate // 2) / rate)
    outputs = [*feed_all(stream, tone.astype(np.float32)), *stream.flush()]
    assert ranges(outputs) == [(0, 8_000)]


def test_flush_without_an_open_utterance_is_answered_and_yields_nothing_else() -> None:
    stream = session()
    assert stream.flush() == [Flushed(at=0.0)]
    assert feed_all(stream, quiet(1)) == []
    assert stream.flush() == [Flushed(at=1.0)]


@pytest.mark.parametrize("rate", [16_000, 48_000])
def test_a_pause_of_the_client_ends_the_utterance_and_the_stream_goes_on(rate: int) -> None:
    """With all audio received, in session time, and without a `flushed`."""
    stream = session(rate=rate)
    feed_all(stream, np.repeat(loud(1), rate // RATE))
    end, work = stream.pause()
    assert end == Speech(event="end", utterance=0, at=1.0)
    assert isinstance(work, Decode)
    assert (work.start, work.stop, work.final) == (0, RATE, True)
    assert stream.pause() == []
    assert ranges(feed_all(stream, np.repeat(loud(1), rate // RATE)) + stream.stop()) == [
        (RATE, 2 * RATE)
    ]


def test_a_pause_of_the_client_confirms_an_early_final() -> None:
    stream = session()
    answer(stream, feed_all(stream, loud(1), quiet(0.3)))
    assert [type(output) for output in stream.pause()] == [Speech, Final]


def test_a_pause_of_the_client_between_utterances_is_none() -> None:
    """No clip comes of it, and nothing after `stop`."""
    stream = session()
    feed_all(stream, 0.05 * loud(1))
    assert stream.pause() == []
    stream.stop()
    assert stream.pause() == []


def test_flush_is_answered_behind_the_finals_of_what_came_before() -> None:
    stream = session()
    works = finals([*feed_all(stream, loud(1), quiet(3), loud(1)), *stream.flush()])
    later = finals([*feed_all(stream, loud(1)), *stream.flush()])
    assert stream.flush() == []  # answered with the one before
    answers = [stream.accept(work, GoodHypothesis("yes"), 1.0) for work in works + later]
    assert [len(messages) for messages in answers] == [1, 2, 2]
    assert [messages[-1] for messages in answers[1:]] == [Flushed(at=5.0), Flushed(at=6.0)]


@pytest.mark.parametrize("milliseconds", [80, 200, 400, 900])
def test_a_short_word_on_its_own_is_answered(milliseconds: int) -> None:
    stream = session()
    outputs = [*feed_all(stream, loud(milliseconds / 1_000)), *stream.stop()]
    assert ranges(outputs) == [(0, milliseconds * 16)]


def test_a_clip_at_the_end_is_an_utterance_where_nothing_else_was() -> None:
    """Behind utterances it is what was still recorded of the room."""
    murmur = (loud(0.5) / 10).astype(np.float32)  # which the detector takes for no speech
    alone = session()
    assert ranges([*feed_all(alone, murmur), *alone.stop()]) == [(0, 8_000)]
    behind = session()
    outputs = [*feed_all(behind, loud(1), quiet(1)), *behind.flush()]
    outputs += [*feed_all(behind, murmur), *behind.stop()]
    assert len(ranges(outputs)) == 1


def test_a_flush_every_20_ms_has_its_answer_for_as_long_as_it_likes() -> None:
    stream = session()
    for number in range(1, 3_001):
        assert [*feed_all(stream, quiet(0.02)), *stream.flush()] == [
            Flushed(at=number * 320 / RATE)
        ]


@pytest.mark.parametrize("samples", [0, 1, 479])
def test_less_than_a_frame_of_sound_is_silence(samples: int) -> None:
    stream = session()
    assert feed_all(stream, loud(1)[:samples]) == []
    assert closing(stream.stop()).silence == samples


def test_a_frame_with_nan_is_refused_and_counted_and_the_session_goes_on() -> None:
    stream = session(encoding="f32le", rate=8_000)
    broken = np.append(loud(0.05)[1:], np.nan).astype("<f4").tobytes()
    with pytest.raises(ProtocolError, match="NaN or infinity") as caught:
        stream.feed(broken)
    assert caught.value.code == "bad_audio"
    assert not stream.unprocessed
    outputs = feed(stream, loud(0.25).astype("<f4").tobytes())
    with pytest.raises(ProtocolError, match="NaN or infinity"):
        stream.feed(broken)
    outputs += stream.stop()
    account = closing(answer(stream, outputs))
    assert ranges(outputs) == [(0, 8_000)]
    assert account == Closed(received=11_200, speech=8_000, silence=0, refused=3_200, finals=1)


# Long frames.


def test_what_is_not_heard_yet_is_not_lost() -> None:
    stream = session()
    outputs = [*stream.feed(s16(loud(3))), *stream.flush()]
    outputs += [*stream.feed(s16(loud(3))), *stream.stop()]
    assert ranges(outputs) == [(0, 3 * RATE), (3 * RATE, 6 * RATE)]


def test_a_frame_fed_before_the_last_one_was_heard_is_our_own_mistake() -> None:
    stream = session()
    stream.feed(s16(loud(1)))
    with pytest.raises(AssertionError, match="before the last one was read"):
        stream.feed(s16(loud(1)))
