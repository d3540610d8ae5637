import numpy as np
import pytest
from numpy.typing import NDArray

from streaming.level import LOUD, MEMORY, MOST, Level
from streaming.silero import FRAME, Silero
from tests.support.audio import needs_audio, read, recordings
from tests.support.streams import coloured_noise, frames_of

ONE = np.ones(FRAME, np.float32)


def heard(*levels: float) -> list[float]:
    """What a detector hears of frames at these levels."""
    level = Level(FRAME)
    return [float(level.adjust(ONE * np.float32(one)).max()) for one in levels]


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (0.0, 0.0),
        (0.001, 0.001 * MOST),
        (LOUD / MOST, LOUD),
        (0.01, LOUD),
        (LOUD, LOUD),
        (0.5, 0.5),
    ],
)
def test_quiet_sound_is_made_louder(level: float, expected: float) -> None:
    """As loud as speech commonly is, where that takes no more than the most."""
    assert heard(level) == [pytest.approx(expected)]


def test_the_loudest_frame_of_late_says_how_loud_the_others_are_made() -> None:
    """A pause is as much quieter than the words as it was."""
    late = MEMORY // FRAME
    levels = heard(LOUD, *[LOUD / 100] * late)
    assert levels[1:-1] == pytest.approx([LOUD / 100] * (late - 1))
    assert levels[-1] == pytest.approx(LOUD / 100 * MOST)


def test_nothing_is_made_louder_than_full_scale() -> None:
    """A click in silence, far above the level of its frame."""
    click = np.where(np.arange(FRAME) == 5, 0.3, 0.0).astype(np.float32)
    assert 0.3 < Level(FRAME).adjust(click).max() <= 1.0


def first_speech(audio: NDArray[np.float32]) -> int | None:
    """The first frame that is speech to Silero."""
    judge = Silero()
    return next(
        (n for n, frame in enumerate(frames_of(judge.frame, audio)) if judge.is_speech(frame)), None
    )


@needs_audio
def test_very_quiet_speech_begins_where_it_would_if_it_were_louder() -> None:
    """At -65 dBFS, with the rounding of 16 bits. Without more level it begins 0.18 s late in the mean."""
    late = []
    for one in recordings(under="librispeech_testother")[:6]:
        speech = np.pad(one.audio()[: 3 * 16_000], (8_000, 0))
        scale = 10 ** (-65 / 20) / float(np.sqrt(np.mean(speech**2)))
        found = first_speech(
            (speech * scale * 32_768).round().astype(np.float32) / np.float32(32_768)
        )
        expected = first_speech(speech)
        assert found is not None
        assert expected is not None
        late.append((found - expected) * 0.032)
    assert np.mean(late) < 0.08


@pytest.mark.parametrize("dbfs", [-70, -60, -50, -40])
@pytest.mark.parametrize("colour", ["white", "pink", "brown", "hum"])
def test_quiet_noise_does_not_become_speech(colour: str, dbfs: int) -> None:
    assert first_speech(coloured_noise(colour, dbfs, 10)) is None


@needs_audio
@pytest.mark.parametrize(
    "name",
    ["howl__exercise_bike", "audiomentations__friction0", "DeepFilterNet__noise_freesound_573577"],
)
def test_quiet_machines_do_not_become_speech(name: str) -> None:
    sound = read(f"nonspeech/{name}.flac")[: 20 * 16_000]
    assert first_speech(sound * np.float32(0.03)) is None
