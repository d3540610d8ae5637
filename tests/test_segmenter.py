import math

import hypothesis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from streaming.segmenter import (
    AUDIBLE,
    SMOOTHING,
    STEPS,
    Began,
    Ended,
    Moved,
    Paused,
    Segmenter,
    SegmenterEvent,
    SegmenterState,
    Signal,
    quietest_point,
)
from streaming.settings import Settings

MS = 16  # samples
FRAME = 30 * MS
PRE, POST = 300 * MS, 200 * MS
LOUD, QUIET = True, False
NO_AUDIO = np.zeros(0, np.float32)


class Run:
    """A segmenter fed with frames whose samples are their own session time."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.segmenter = Segmenter(settings or Settings(), FRAME)
        self.events: list[SegmenterEvent] = []
        self._judged: list[NDArray[np.bool_]] = []
        self._flushes: list[int] = []  # sample indices

    def frames(self, count: int, *, speech: bool) -> "Run":
        for _ in range(count):
            self.events += self.segmenter.push(self._clock(FRAME), speech=speech)
            self._judged.append(np.full(FRAME, speech))
        return self

    def rise(self, crowd: int) -> "Run":
        """One frame of speech in which someone speaks up after so many frames of others."""
        self.events += self.segmenter.push(self._clock(FRAME), speech=True, crowd=crowd * FRAME)
        self._judged.append(np.full(FRAME, LOUD))
        return self

    def flush(self, rest: int = 0, *, last: bool = False) -> "Run":
        self.events += self.segmenter.flush(self._clock(rest), last=last)
        self._judged.append(np.zeros(rest, bool))
        self._flushes.append(self.segmenter.position)
        return self

    def _clock(self, samples: int) -> NDArray[np.float32]:  # exact below 2**24 samples
        now = self.segmenter.position
        return np.arange(now, now + samples, dtype=np.float32)

    @property
    def judged(self) -> NDArray[np.bool_]:
        """Whether each sample so far was judged speech: [samples]."""
        return np.concatenate(self._judged)

    @property
    def bursts(self) -> list[tuple[int, int]]:
        """The maximal ranges judged speech that no flush divides."""
        stretches = np.split(self.judged, self._flushes)
        offsets = [0, *self._flushes]
        return [
            (offset + int(start), offset + int(stop))
            for offset, stretch in zip(offsets, stretches, strict=True)
            for start, stop in np.flatnonzero(
                np.diff(np.concatenate([[False], stretch, [False]]))
            ).reshape(-1, 2)
        ]

    @property
    def ended(self) -> list[Ended]:
        return [event for event in self.events if isinstance(event, Ended)]

    @property
    def ranges(self) -> list[tuple[int, int]]:
        return [(event.start, event.stop) for event in self.ended]


def test_an_utterance_begins_once_the_burst_has_reached_the_minimum() -> None:
    run = Run(Settings(minimum_speech_ms=120)).frames(20, speech=False).frames(3, speech=True)
    assert run.events == []
    run.frames(1, speech=True)
    assert run.events == [Began(20 * FRAME - 300 * MS, 20 * FRAME)]


def test_an_utterance_ends_once_the_pause_has_reached_the_endpoint() -> None:
    """700 ms of silence are 24 frames of 30 ms; the 23rd does not end it yet."""
    run = Run().frames(20, speech=True).frames(23, speech=False)
    assert run.ended == []
    run.frames(1, speech=False)
    assert len(run.ended) == 1


def test_a_pause_says_where_the_utterance_will_end_should_it_last() -> None:
    """Once for each pause, after the post-roll; none that is shorter."""
    run = Run().frames(10, speech=True).frames(5, speech=False)
    run.frames(10, speech=True).frames(6, speech=False)
    assert run.events == [Began(0, 0)]
    run.frames(1, speech=False)
    assert run.events[1:] == [Paused(25 * FRAME + 200 * MS)]
    run.frames(17, speech=False)
    assert run.ranges == [(0, 25 * FRAME + 200 * MS)]


def test_an_utterance_moves_to_where_someone_spoke_up_if_all_before_was_others() -> None:
    """The pre-roll before him and, for his onset swells, as much before that."""
    run = Run().frames(20, speech=False).frames(60, speech=True).rise(crowd=61)
    onset = 81 * FRAME - PRE
    assert run.events[1:] == [Moved(onset - PRE, onset)]
    run.frames(40, speech=False)
    assert run.ranges == [(onset - PRE, 81 * FRAME + POST)]
    assert run.segmenter.silence + run.segmenter.speech == run.segmenter.position


def test_it_stays_where_it_began_if_more_was_said_before_them() -> None:
    run = Run().frames(20, speech=False).frames(60, speech=True).rise(crowd=60)
    assert len(run.events) == 1


def test_an_endpoint_as_short_as_the_post_roll_makes_no_pause_of_it() -> None:
    run = Run(Settings(endpoint_silence_ms=200)).frames(10, speech=True).frames(7, speech=False)
    assert [type(event) for event in run.events] == [Began, Ended]


def test_what_is_voiced_leaves_out_the_silence_around_it() -> None:
    run = Run().frames(20, speech=False).frames(10, speech=True).frames(50, speech=False)
    assert [event.voiced for event in run.ended] == [10 * FRAME]


@pytest.mark.parametrize(("spoken", "pause"), [(495, 24), (500, 24), (667, 15), (834, 7), (900, 7)])
def test_the_longer_an_utterance_the_shorter_its_last_pause(spoken: int, pause: int) -> None:
    """700 ms up to half the cap, 450 ms at two thirds, 200 ms from five sixths on."""
    run = Run().frames(spoken, speech=True).frames(pause - 1, speech=False)
    assert run.ended == []
    assert len(run.frames(1, speech=False).ended) == 1


def test_a_burst_below_the_minimum_leaves_no_trace() -> None:
    run = Run(Settings(minimum_speech_ms=120))
    for _ in range(20):
        run.frames(3, speech=True).frames(1, speech=False)
    assert run.flush().events == []
    assert run.segmenter.silence == run.segmenter.position


def test_a_short_clip_is_an_utterance_though_nothing_in_it_was_judged_speech() -> None:
    """The whole of it, after the audio before; none of it counts as voiced."""
    run = Run().frames(90, speech=False).flush().frames(20, speech=False).flush(rest=7)
    assert run.ranges == [(90 * FRAME, 110 * FRAME + 7)]
    assert [event.voiced for event in run.ended] == [0]
    assert run.segmenter.silence == 90 * FRAME


@pytest.mark.parametrize("frames", [1, 67])
def test_no_clip_is_less_than_the_minimum_of_speech_or_more_than_two_seconds(frames: int) -> None:
    run = Run().frames(90, speech=False).flush().frames(frames, speech=False).flush()
    assert run.events == []


@pytest.mark.parametrize(("last", "ended"), [(False, 2), (True, 1)])
def test_behind_utterances_the_end_of_the_stream_makes_no_clip(*, last: bool, ended: int) -> None:
    """It is what was still recorded of the room; a client that flushes means what it sends."""
    run = Run().frames(20, speech=True).frames(30, speech=False).flush()
    assert len(run.frames(20, speech=False).flush(last=last).ended) == ended


NOISE = np.random.default_rng(2).standard_normal(20 * FRAME).astype(np.float32)  # of level 1
KNOCK = np.repeat(np.arange(20) == 11, FRAME)  # one frame of twenty


def clip(sound: NDArray[np.float32]) -> list[SegmenterEvent]:
    """What a flush makes of `sound` alone, none of which was judged speech."""
    segmenter = Segmenter(Settings(), FRAME)
    for at in range(0, len(sound), FRAME):
        segmenter.push(sound[at : at + FRAME], speech=False)
    return segmenter.flush(NO_AUDIO)


@pytest.mark.parametrize(
    "sound",
    [
        np.zeros(20 * FRAME, np.float32),
        np.full(20 * FRAME, 0.2, np.float32),  # direct current of a cheap sound card
        0.8 * AUDIBLE * NOISE,  # single samples are louder, no 30 ms are
        0.2 + 0.8 * AUDIBLE * NOISE,
    ],
    ids=["nothing", "offset", "noise", "noise on an offset"],
)
def test_a_clip_that_cannot_be_heard_is_none(sound: NDArray[np.float32]) -> None:
    assert clip(sound) == []


def test_of_a_clip_the_loudest_moment_counts() -> None:
    """A short word in a silent room."""
    sound = np.where(KNOCK, 1.5 * AUDIBLE, 0.1 * AUDIBLE).astype(np.float32) * NOISE
    began, ended = clip(sound)
    assert began == Began(0, 0)
    assert isinstance(ended, Ended)
    assert ended.stop == 20 * FRAME


def test_gapless_speech_is_cut_at_the_quietest_point_before_the_cap() -> None:
    noise = np.random.default_rng(1).uniform(-0.5, 0.5, 75 * 16_000).astype(np.float32)
    dip = 28 * 16_000
    noise[dip - 100 * MS : dip + 100 * MS] *= 0.1
    segmenter = Segmenter(Settings(), FRAME)
    events: list[SegmenterEvent] = []
    for at in range(0, len(noise), FRAME):
        events += segmenter.push(noise[at : at + FRAME], speech=True)
    events += segmenter.flush(NO_AUDIO)
    ended = [event for event in events if isinstance(event, Ended)]
    assert abs(ended[0].stop - dip) <= 30 * MS
    assert [event.start for event in ended] == [0, *(event.stop for event in ended[:-1])]
    assert all(25 * 16_000 <= event.stop - event.start <= 30 * 16_000 for event in ended[:-1])
    np.testing.assert_array_equal(np.concatenate([event.audio for event in ended]), noise)


def test_a_flush_at_the_cap_keeps_to_it() -> None:
    run = Run().frames(1_000, speech=True).flush(rest=10)
    assert run.ended[0].stop < 1_000 * FRAME
    assert run.ranges[1] == (run.ended[0].stop, 1_000 * FRAME + 10)


# Frames judged alike, and flushes with so many samples left over.
Script = list[tuple[int, bool] | int]

JUDGED = st.lists(st.tuples(st.integers(1, 40), st.booleans()), max_size=25)
STEADY = st.tuples(st.integers(900, 1_100), st.booleans())
FLUSH = st.integers(0, FRAME - 1).map(lambda rest: [rest])
SCRIPT = st.lists(st.one_of(JUDGED, JUDGED, STEADY.map(lambda run: [run]), FLUSH), max_size=6).map(
    lambda parts: [step for part in parts for step in part]
)
SETTINGS = st.builds(
    Settings,
    minimum_speech_ms=st.integers(30, 400),
    pre_roll_ms=st.integers(300, 800),
    post_roll_ms=st.integers(30, 200),
    endpoint_silence_ms=st.integers(200, 900),
    cap_ms=st.integers(10_000, 30_000),
    cut_search_ms=st.integers(1_000, 6_000),
)


def play(script: Script, settings: Settings) -> Run:
    run = Run(settings)
    for step in script:
        if isinstance(step, int):
            run.flush(rest=step)
        else:
            run.frames(step[0], speech=step[1])
    return run


@pytest.mark.parametrize(
    ("endpoint", "script", "ranges"),
    [
        (700, [(50, QUIET), (20, LOUD), (50, QUIET)], [(50 * FRAME - PRE, 70 * FRAME + POST)]),
        (700, [(10, LOUD), (23, QUIET), (10, LOUD), (24, QUIET)], [(0, 43 * FRAME + POST)]),
        (
            210,  # the pre-roll does not reach into the utterance before
            [(10, LOUD), (7, QUIET)] * 2,
            [(0, 10 * FRAME + POST), (10 * FRAME + POST, 27 * FRAME + POST)],
        ),
        (700, [(10, LOUD), 123], [(0, 10 * FRAME + 123)]),
        (700, [(10, LOUD), (12, QUIET), 123], [(0, 10 * FRAME + POST)]),
        (700, [(1, LOUD), 5], [(0, FRAME + 5)]),  # cut off, it may be the beginning of a word
        (700, [0, (70, QUIET), 7], []),
        (700, [(20, QUIET), 7], [(0, 20 * FRAME + 7)]),
        (700, [(10, LOUD), (30, QUIET), 0], [(0, 10 * FRAME + POST)]),  # behind it is no clip
        (700, [(995, LOUD), (6, QUIET)], [(0, 1_000 * FRAME)]),  # at the cap, without a cut
    ],
)
def test_an_utterance_has_its_pre_roll_and_its_post_roll(
    endpoint: int, script: Script, ranges: list[tuple[int, int]]
) -> None:
    """Numbers are flushes with so many samples left over."""
    run = play(script, Settings(endpoint_silence_ms=endpoint))
    assert run.ranges == ranges
    assert [event.start for event in run.events if isinstance(event, Began)] == [
        start for start, _ in ranges
    ]


@pytest.mark.parametrize(
    ("script", "silences"),
    [
        ([(40, LOUD), (30, QUIET), (40, LOUD)], [math.inf, 9 / 7]),  # an endpoint
        ([(300, LOUD), (10, QUIET), (40, LOUD)], [math.inf, 3 / 7]),  # too little silence for one
        ([(300, LOUD), (30, QUIET), (40, LOUD)], [math.inf, 9 / 7]),  # as it turned out, enough
        ([(400, LOUD), (30, QUIET)], [math.inf, 0.0]),  # the cap
        ([(300, LOUD), 0, (40, LOUD)], [math.inf, math.inf]),
        ([(300, LOUD), (10, QUIET), 0, (40, LOUD)], [math.inf, math.inf]),
    ],
)
def test_the_silence_between_two_utterances_is_told_in_endpoint_silences(
    script: Script, silences: list[float]
) -> None:
    run = play(script, Settings(cap_ms=10_000)).flush()
    assert [event.silence for event in run.events if isinstance(event, Began)] == pytest.approx(
        silences
    )


@given(SCRIPT, SETTINGS)
@hypothesis.settings(deadline=None)
def test_utterances_are_in_order_within_the_cap_and_hold_all_speech_once(
    script: Script, settings: Settings
) -> None:
    run = play(script, settings).flush()
    judged = run.judged
    covered = np.zeros(len(judged), int)
    position = 0
    spans = [event for event in run.events if not isinstance(event, Paused)]
    for began, ended in zip(spans[::2], spans[1::2], strict=True):
        assert isinstance(began, Began)
        assert isinstance(ended, Ended)
        assert position <= began.start == ended.start < ended.stop <= len(judged)
        assert ended.stop - ended.start <= settings.cap_ms * MS
        np.testing.assert_array_equal(ended.audio, np.arange(ended.start, ended.stop))
        speech = np.zeros(ended.stop - ended.start, np.bool_)
        for start, stop in ended.speech:
            speech[start:stop] = True
        np.testing.assert_array_equal(speech, judged[ended.start : ended.stop])
        covered[ended.start : ended.stop] += 1
        position = ended.stop
    assert covered.max(initial=0) <= 1
    for start, stop in run.bursts:
        if stop - start >= settings.minimum_speech_ms * MS:
            assert covered[start:stop].all()
    assert run.segmenter.speech == covered.sum()
    assert run.segmenter.silence == len(covered) - covered.sum()


def test_the_table_holds_every_step_but_the_impossible() -> None:
    """What counts samples of a burst, a pause or an utterance needs a burst, pause or utterance."""
    silence, burst, speech, pause = SegmenterState
    impossible = {
        Signal.ENOUGH: {silence, speech, pause},
        Signal.SETTLED: {silence, burst, speech},
        Signal.ROSE: {silence, burst, pause},
        Signal.EXPIRED: {silence, burst, speech},
        Signal.FULL: {silence, burst},
        Signal.CLIP: {burst, speech, pause},
    }
    for signal in Signal:
        missing = {state for state in SegmenterState if (state, signal) not in STEPS}
        assert missing == impossible.get(signal, set())


def test_memory_stays_the_same_over_two_hours() -> None:
    segmenter = Segmenter(Settings(), FRAME)
    array = segmenter.buffer.samples
    frame = np.zeros(FRAME, np.float32)
    for index in range(2 * 3_600 * 1_000 // 30):
        segmenter.push(frame, speech=index % 4_000 < 2_500)
    assert segmenter.buffer.samples is array
    assert len(array) < 33 * 16_000


def test_memory_stays_the_same_over_thousands_of_flushes() -> None:
    """With less than a frame before each: what is said then still has its pre-roll."""
    run = Run()
    array = run.segmenter.buffer.samples
    for _ in range(5_000):
        run.flush(rest=320)
    assert run.events == []
    assert run.segmenter.buffer.samples is array
    assert run.segmenter.position == run.segmenter.silence == 5_000 * 320 > 3 * len(array)
    run.frames(20, speech=True).frames(50, speech=False)
    (ended,) = run.ended
    assert ended.start == 5_000 * 320 - 300 * MS
    np.testing.assert_array_equal(ended.audio, np.arange(ended.start, ended.stop))


@given(st.integers(SMOOTHING // 2, 20_000 - SMOOTHING // 2))
def test_the_quietest_point_is_the_middle_of_the_dip(middle: int) -> None:
    audio = np.ones(20_000, np.float32)
    audio[middle - SMOOTHING // 2 : middle + SMOOTHING // 2] = 0.0
    assert quietest_point(audio) == middle


def test_of_equally_quiet_points_the_last_is_taken() -> None:
    assert quietest_point(np.zeros(20_000, np.float32)) == 20_000 - SMOOTHING // 2
