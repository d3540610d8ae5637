import numpy as np
import pytest
from numpy.typing import NDArray

from streaming.audio import AudioDecoder
from streaming.mixdown import BLOCKS_PER_SECOND, Mixdown
from streaming.protocol import ProtocolError
from tests.support.streams import RATE, Samples, loud, quiet

BLOCK = RATE // BLOCKS_PER_SECOND


def mixed(*channels: Samples, channel: int | None = None, frames: int = 0) -> NDArray[np.float32]:
    """[frames] of these channels, `frames` at a time."""
    audio = np.stack(channels, axis=1)
    mixdown = Mixdown(RATE, len(channels), channel)
    size = frames or len(audio)
    return np.concatenate(
        [mixdown.mix(audio[at : at + size].ravel()) for at in range(0, len(audio), size)]
    )


def test_channels_of_opposite_sign_do_not_cancel_out() -> None:
    """All but the first block, of which nothing was known."""
    voice = loud(1)
    np.testing.assert_array_equal(mixed(voice, -voice)[BLOCK:], voice[BLOCK:])


def test_the_stronger_of_opposite_channels_is_taken() -> None:
    voice = loud(1)
    np.testing.assert_array_equal(mixed(-0.7 * voice, voice)[BLOCK:], voice[BLOCK:])


@pytest.mark.parametrize("others", [loud(1), 0.3 * loud(1), quiet(1), np.roll(loud(1), 99)])
def test_any_other_pair_is_averaged(others: Samples) -> None:
    voice = loud(1)
    expected = np.stack([voice, others], axis=1).mean(axis=1)
    np.testing.assert_array_equal(mixed(voice, others), expected)


def test_the_mean_is_taken_again_when_the_channels_agree() -> None:
    voice = loud(3)
    other = np.concatenate([-voice[:RATE], voice[RATE:]])
    np.testing.assert_array_equal(mixed(voice, other)[2 * RATE :], voice[2 * RATE :])


def test_silence_is_averaged_and_ends_no_choice_too_soon() -> None:
    """A pause between two words is no reason to lose the beginning of the second."""
    voice = np.concatenate([loud(1), quiet(1), loud(1)])
    np.testing.assert_array_equal(mixed(voice, -voice)[BLOCK:], voice[BLOCK:])
    assert not mixed(quiet(1), quiet(1)).any()


@pytest.mark.parametrize("frames", [1, 7, BLOCK - 1, BLOCK, 1_000])
def test_how_the_audio_is_cut_changes_nothing(frames: int) -> None:
    voice = loud(0.2)
    other = np.concatenate([-voice[: RATE // 10], voice[RATE // 10 :]])
    np.testing.assert_array_equal(mixed(voice, other, frames=frames), mixed(voice, other))


def test_one_channel_can_be_chosen() -> None:
    voice, other = loud(0.1), quiet(0.1)
    np.testing.assert_array_equal(mixed(voice, other, channel=0), voice)
    np.testing.assert_array_equal(mixed(voice, other, channel=1), other)


def test_a_channel_that_does_not_exist_is_refused() -> None:
    AudioDecoder("s16le", RATE, 2, 1)
    with pytest.raises(ProtocolError, match="no channel 2 of 2") as caught:
        AudioDecoder("s16le", RATE, 2, 2)
    assert caught.value.code == "bad_request"
