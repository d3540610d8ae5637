import numpy as np
import pytest
from numpy.typing import NDArray

from streaming.foreground import SETTLING, Foreground
from streaming.protocol import SAMPLE_RATE, Start
from streaming.session import Output, Session
from tests.support.streams import closing, finals, frames_of, s16

Samples = NDArray[np.float32]
RATE = SAMPLE_RATE
FRAME = 512
HIS = -20.0  # dBFS, of the speaker


class Voices:
    """A detector to which everything above -60 dBFS is a voice."""

    frame = FRAME

    def is_speech(self, frame: Samples) -> bool:
        return bool(np.mean(np.square(frame, dtype=np.float64)) > 1e-6)


def noise(seconds: float, dbfs: float, seed: int = 3) -> Samples:
    dice = np.random.default_rng(seed).standard_normal(round(seconds * RATE))
    return (dice * 10 ** (dbfs / 20)).astype(np.float32)


def syllables(seconds: float, dbfs: float, seed: int = 3) -> Samples:
    """One voice: noise that swells and falls 18 dB four times a second, with a gap behind each fourth."""
    time = np.arange(round(seconds * RATE)) / RATE
    swing = 9 * np.cos(2 * np.pi * 4 * time) - 9
    words = (time + 0.25) % 1.0 < 0.8
    return np.asarray(noise(seconds, dbfs + 6, seed) * 10 ** (swing / 20) * words, np.float32)


def babble(seconds: float, dbfs: float) -> Samples:
    """Five such voices, each with its own beat: a crowd's level varies by a few dB."""
    time = np.arange(round(seconds * RATE)) / RATE
    total = np.zeros(len(time))
    for n in range(5):
        swing = 9 * np.cos(2 * np.pi * (3 + 0.7 * n) * time + 2 * n) - 9
        total += noise(seconds, 0.0, 10 + n) * 10 ** (swing / 20)
    total *= 10 ** (dbfs / 20) / np.sqrt(np.mean(total**2))
    return np.asarray(total, np.float32)


def amid(decibels: float, *, before: float = 2.0, behind: float = 3.0) -> Samples:
    """Two seconds of a speaker, others so many dB below him all the time."""
    others = babble(before + 2.0 + behind, HIS - decibels)
    his = np.pad(syllables(2.0, HIS), (round(before * RATE), round(behind * RATE)))
    return others + his


def judged(audio: Samples) -> list[bool]:
    foreground = Foreground(Voices())
    return [foreground.is_speech(frame) for frame in frames_of(FRAME, audio)]


def utterances(audio: Samples, frame: int = RATE // 50) -> list[tuple[int, int]]:
    """Their spans, however the audio is cut into frames."""
    session = Session(Start(partials=False), vad=Foreground(Voices()))
    data, outputs = s16(audio), list[Output]()
    for at in range(0, len(data), 2 * frame):
        outputs += session.feed(data[at : at + 2 * frame])
        while session.unprocessed:
            outputs += session.process()
    outputs += session.stop()
    return [(decode.start, decode.stop) for decode in finals(outputs)]


@pytest.mark.parametrize("decibels", [10, 15, 20])
def test_others_behind_do_not_keep_an_utterance_open(decibels: float) -> None:
    """Without it the utterance lasts as long as they talk."""
    (_, stop), *rest = utterances(amid(decibels))
    assert abs(stop - 4 * RATE) <= 0.5 * RATE
    assert not rest


@pytest.mark.parametrize("decibels", [10, 15, 20])
def test_what_others_said_before_him_is_not_his(decibels: float) -> None:
    (start, _), *_ = utterances(amid(decibels))
    assert 1.3 * RATE <= start <= 2.0 * RATE


def test_what_he_said_before_is_his_when_he_speaks_up() -> None:
    """Louder by 10 dB: one voice is no crowd."""
    quieter = syllables(2.0, HIS - 10)
    assert utterances(np.concatenate([quieter, syllables(2.0, HIS), np.zeros(RATE)]))[0][0] == 0


def test_more_than_a_few_seconds_are_never_given_up() -> None:
    assert utterances(amid(15, before=6.0))[0][0] == 0


@pytest.mark.parametrize("weaker", [6, 8, 12, 20])
def test_a_second_speaker_who_is_weaker_is_heard(weaker: float) -> None:
    first, second = syllables(2.0, HIS), syllables(2.0, HIS - weaker, 7)
    gap = np.zeros(RATE // 4, np.float32)
    ((start, stop),) = utterances(np.concatenate([first, gap, second, np.zeros(RATE)]))
    assert start == 0
    assert stop >= 4.0 * RATE


def test_a_voice_that_falls_is_speech_to_its_end() -> None:
    """By 20 dB within three seconds."""
    voice = syllables(3.0, HIS)
    fall = 10 ** (-np.linspace(0, 20, len(voice)) / 20)
    ((_, stop),) = utterances(np.concatenate([voice * fall, np.zeros(RATE)]).astype(np.float32))
    assert stop >= 2.7 * RATE


def test_a_quiet_speaker_is_heard_a_few_seconds_later() -> None:
    """35 dB weaker, which is more than one voice ever varies."""
    pause = np.zeros(6 * RATE, np.float32)
    found = utterances(np.concatenate([syllables(2.0, -10), pause, syllables(3.0, -45)]))
    assert len(found) == 2
    assert found[1][0] <= 8.1 * RATE


def test_a_crowd_by_itself_is_speech() -> None:
    ((start, stop),) = utterances(babble(4.0, -30))
    assert (start, stop) == (0, 4 * RATE)


def test_all_is_speech_at_the_beginning_of_a_stream() -> None:
    assert all(judged(amid(10, before=0.0))[: SETTLING // FRAME])


@pytest.mark.parametrize("frame", [160, 1_000, 7_777])
def test_the_cut_of_frames_changes_nothing(frame: int) -> None:
    audio = amid(12)
    assert utterances(audio, frame) == utterances(audio, len(audio))


def test_a_session_that_moved_an_utterance_accounts_for_all_samples() -> None:
    session = Session(Start(partials=True, language="en"), vad=Foreground(Voices()))
    audio = amid(15)
    outputs = session.feed(s16(audio))
    while session.unprocessed:
        outputs += session.process()
    outputs += session.stop()
    (final,) = finals(outputs)
    assert final.start > RATE
    closed = closing(session.fail(final, "none"))
    assert closed.received == closed.speech + closed.silence == len(audio)
    assert closed.speech == final.stop - final.start
