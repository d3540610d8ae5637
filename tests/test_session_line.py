import itertools
import random

import hypothesis
import numpy as np
import pytest
import soxr
from hypothesis import given
from hypothesis import strategies as st

from streaming.protocol import Closed, Encoding, Final, Flushed, Partial, Speech, Start
from streaming.session import Message, Output, Session
from streaming.utterance import Decode
from tests.support import streams
from tests.support.audio import needs_audio, read

SOUNDS = st.lists(st.tuples(st.booleans(), st.integers(1, 24_000)), min_size=1, max_size=6).map(
    lambda runs: np.concatenate(
        [(streams.loud if s else streams.quiet)(n / streams.RATE) for s, n in runs]
    )
)
FORMATS = st.tuples(
    st.sampled_from(["s16le", "f32le", "mulaw", "alaw"]),
    st.sampled_from([8_000, 11_025, 16_000, 22_050, 24_000, 44_100, 48_000]),
    st.integers(1, 3),
)


def utterances(outputs: list[Output]) -> list[object]:
    """What must not depend on how the bytes were cut: all but the work for partials."""
    return [
        (output.utterance, output.start, output.stop, output.audio.tobytes())
        if isinstance(output, Decode)
        else output
        for output in outputs
        if not isinstance(output, Partial) and not (isinstance(output, Decode) and not output.final)
    ]


def check_partials(outputs: list[Output]) -> None:
    """Partial work is a beginning of its utterance, further on by the interval at least."""
    whole = {work.utterance: work for work in streams.finals(outputs)}
    before: dict[int, int] = {}
    for work in streams.partials(outputs):
        final = whole[work.utterance]
        assert work.start == final.start
        common = min(len(work.audio), len(final.audio))  # trailing silence may come after the stop
        np.testing.assert_array_equal(work.audio[:common], final.audio[:common])
        assert work.stop - before.get(work.utterance, work.start) >= streams.RATE // 2
        before[work.utterance] = work.stop
    for work in streams.earlies(outputs):
        np.testing.assert_array_equal(work.audio, whole[work.utterance].audio[: len(work.audio)])


def run_whole(stream: Session, frames: list[bytes]) -> list[Output]:
    """Everything a stream puts out for these frames, `stop` and instant hypotheses."""
    outputs = [output for frame in frames for output in streams.feed(stream, frame)]
    outputs += stream.stop()
    return outputs + streams.answer(stream, outputs)


@given(
    audio=SOUNDS,
    form=FORMATS,
    sizes=st.lists(st.integers(1, 65_536), min_size=1, max_size=5),
    tail=st.integers(0, 3),
)
@hypothesis.settings(deadline=None, max_examples=60)
def test_frame_sizes_change_nothing_and_the_account_is_exact(
    audio: streams.Samples, form: tuple[Encoding, int, int], sizes: list[int], tail: int
) -> None:
    encoding, rate, channels = form
    data = streams.encoded(audio, encoding, channels)
    hypothesis.assume(len(data) // min(sizes) < 20_000)
    unit = len(data) // len(audio)
    data += b"\1" * min(tail, unit - 1)  # part of a further sample: not counted
    seen = []
    for frames in ([data], [*streams.cut(data, sizes), b""]):
        stream = streams.session(encoding=encoding, rate=rate, channels=channels)
        outputs = run_whole(stream, frames)
        spans, account = streams.ranges(outputs), streams.closing(outputs)
        assert all(stop <= start for (_, stop), (start, _) in itertools.pairwise(spans))
        assert account.speech == sum(stop - start for start, stop in spans)
        assert account.received == account.speech + account.silence
        assert account.received == int(np.floor(len(audio) * streams.RATE / rate + 0.5))
        check_partials(outputs)
        seen.append(utterances(outputs))
    assert seen[0] == seen[1]


def check_flushes(messages: list[Message], *, asked: bool) -> None:
    """Each is answered when no final is owed for what came before."""
    flushed = [m.at for m in messages if isinstance(m, Flushed)]
    assert flushed == sorted(flushed)
    assert bool(flushed) == asked
    for place, message in enumerate(messages):
        if isinstance(message, Flushed):
            assert all(m.end > message.at for m in messages[place:] if isinstance(m, Final))


@given(
    script=st.lists(st.tuples(st.booleans(), st.integers(1, 160)), max_size=12),
    flushes=st.sets(st.integers(0, 11)),
    seed=st.integers(0, 2**32 - 1),
)
@hypothesis.settings(deadline=None)
def test_messages_keep_their_order_whatever_order_hypotheses_come_in(
    script: list[tuple[bool, int]], flushes: set[int], seed: int
) -> None:
    stream, choose = streams.session(), random.Random(seed)
    waiting: list[Decode] = []
    messages: list[Message] = []

    def deliver(outputs: list[Output]) -> None:
        for output in outputs:
            if isinstance(output, Decode):
                waiting.append(output)
            else:
                messages.append(output)

    def settle() -> None:
        work = waiting.pop(choose.randrange(len(waiting)))
        failed = choose.random() < 0.1
        deliver(
            stream.fail(work, "no")
            if failed
            else stream.accept(work, streams.GoodHypothesis("a b"), 1.0)
        )

    for index, (speech, hundredths) in enumerate(script):
        deliver(
            streams.feed_all(stream, (streams.loud if speech else streams.quiet)(hundredths / 100))
        )
        if index in flushes:
            deliver(stream.flush())
        while waiting and choose.random() < 0.7:
            settle()
    deliver(stream.stop())
    while waiting:
        settle()

    assert stream.pending_samples == 0
    assert isinstance(messages.pop(), Closed)
    utterances = [m.utterance for m in messages if isinstance(m, Final)]
    assert utterances == list(range(len(utterances)))
    spoken = [m for m in messages if isinstance(m, Speech | Partial | Final)]
    check_flushes(messages, asked=any(index < len(script) for index in flushes))
    for number in utterances:
        own = [m for m in spoken if m.utterance == number]
        start, *between, end, final = own
        assert isinstance(start, Speech)
        assert start.event == "start"
        assert all(isinstance(m, Partial) for m in between)
        assert isinstance(end, Speech)
        assert end.event == "end"
        assert isinstance(final, Final)
        assert start.at == final.start < end.at == final.end


def test_seventy_five_seconds_of_gapless_speech_are_cut_without_loss() -> None:
    audio = streams.loud(75)
    stream = streams.session(encoding="f32le")
    outputs = [
        o
        for frame in streams.cut(audio.astype("<f4").tobytes(), [3_333])
        for o in streams.feed(stream, frame)
    ]
    outputs += streams.answer(stream, outputs)
    during = streams.finals(outputs)
    quick = streams.partials(outputs)
    assert len(quick) > 60
    assert max(len(work.audio) for work in quick) <= 30 * streams.RATE
    assert len(during) >= 2  # finals come at the cap, not at the end
    ending = stream.stop()
    ending += streams.answer(stream, ending)
    works = during + streams.finals(ending)
    assert all(len(work.audio) <= 30 * streams.RATE for work in works)
    np.testing.assert_array_equal(np.concatenate([work.audio for work in works]), audio)
    assert streams.closing(ending) == Closed(
        received=75 * streams.RATE,
        speech=75 * streams.RATE,
        silence=0,
        refused=0,
        finals=len(works),
    )


@pytest.mark.parametrize("rate", [8_000, 16_000, 22_050, 24_000, 44_100, 48_000])
@pytest.mark.parametrize(
    ("encoding", "channels"), [("s16le", 1), ("f32le", 2), ("mulaw", 1), ("alaw", 1), ("s16le", 6)]
)
def test_all_formats_give_the_same_utterances(rate: int, encoding: Encoding, channels: int) -> None:
    time = np.arange(5 * rate) / rate
    tone = 0.5 * np.sin(2 * np.pi * 500 * time)
    spoken = ((time >= 1.0) & (time < 1.5)) | ((time >= 3.0) & (time < 3.6))
    data = streams.encoded(np.where(spoken, tone, 0.0).astype(np.float32), encoding, channels)
    stream = streams.session(rate=rate, encoding=encoding, channels=channels)
    outputs = [*streams.feed(stream, data), *stream.stop()]
    outputs += streams.answer(stream, outputs)
    expected = [(0.7, 1.7), (2.7, 3.8)]
    assert len(streams.ranges(outputs)) == len(expected)
    for (start, stop), (begin, end) in zip(streams.ranges(outputs), expected, strict=True):
        assert start / streams.RATE == pytest.approx(begin, abs=0.031)
        assert stop / streams.RATE == pytest.approx(end, abs=0.031)
    assert streams.closing(outputs).received == 5 * streams.RATE


@needs_audio
@pytest.mark.parametrize("rate", [8_000, 22_050, 44_100, 48_000])
def test_speech_gives_the_same_utterances_at_every_rate(rate: int) -> None:
    """To a fifth of a second: at the edge of audibility judgements may differ."""
    names = ["1688-142285-0000", "1998-15444-0003", "2033-164914-0001"]
    folder = "librispeech_testother_resemblyzer"
    audio = np.concatenate([np.append(read(f"{folder}/{n}.flac"), streams.quiet(1)) for n in names])
    expected = streams.feed(Session(Start()), streams.s16(audio))
    resampled = np.asarray(soxr.resample(audio, streams.RATE, rate), np.float32)
    stream = Session(Start(rate=rate))
    outputs = [*streams.feed(stream, streams.s16(resampled)), *stream.stop()]
    assert len(streams.ranges(outputs)) == len(streams.ranges(expected))
    np.testing.assert_allclose(
        streams.ranges(outputs), streams.ranges(expected), atol=streams.RATE // 5
    )
