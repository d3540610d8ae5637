"""What reaches the model, with genuine weights: beginnings, quiet speech, channels, short utterances."""

import re

import numpy as np
import pytest

from tests.support.audio import needs_audio, recordings
from tests.support.inputs import captions, needs_inputs, read, telephone
from tests.support.streams import s16

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800), needs_inputs]


def words(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


def english(name: str) -> str:
    """All that is said in a mono input at 16 kHz."""
    audio, rate = read(name)
    assert rate == 16_000
    return " ".join(final.text for final in captions(s16(audio), language="en"))


@pytest.mark.parametrize("voice", ["h1", "slt"])
@pytest.mark.parametrize("word", ["Stop", "No", "Cancel"])
def test_a_word_that_the_stream_begins_with_is_heard(word: str, voice: str) -> None:
    assert english(f"imm_{word}_{voice}") == f"{word}."


@pytest.mark.parametrize("voice", ["h1", "h2", "slt", "rms"])
def test_the_first_word_of_several_is_heard(voice: str) -> None:
    assert words(english(f"first_0_{voice}"))[0] == "go"


@pytest.mark.parametrize(("name", "word"), [("p604_0_h1", "yes"), ("p604_1_rms", "call")])
def test_the_first_word_behind_a_short_silence_is_heard(name: str, word: str) -> None:
    assert words(english(name))[0] == word


def test_the_words_of_such_a_stream_lie_where_they_were_said() -> None:
    audio, _ = read("imm_Stop_slt")
    (final,) = captions(s16(audio), language="en", words=True)
    assert final.words is not None
    (stop,) = final.words
    assert 0.0 <= stop.start < stop.end < 0.6


@pytest.mark.parametrize(
    ("name", "word"),
    [
        *((f"tele_0_{take}_8k", "hello") for take in ("h1_0", "h1_40", "h2_30", "slt_0")),
        *((f"tele_1_{take}_8k", "could") for take in ("h1_30", "h2_0", "slt_30")),
    ],
)
def test_the_first_word_of_a_quiet_telephone_is_heard(name: str, word: str) -> None:
    finals = captions(telephone(name), encoding="mulaw", rate=8_000, language="en")
    assert words(finals[0].text)[0] == word


@pytest.mark.parametrize("name", ["tele_0_slt_40_8k", "tele_1_h2_40_8k"])
def test_a_telephone_that_is_quieter_still_is_heard_from_its_first_word_on(name: str) -> None:
    """Its first word is there, if another one: base writes it of the whole recording, too."""
    finals = captions(telephone(name), encoding="mulaw", rate=8_000, language="en")
    assert finals[0].start < 0.5
    assert len(words(finals[0].text)) >= 9


@pytest.mark.parametrize(("name", "word"), [("whisp_1_h2_35", "please"), ("whisp_0_h1_20", "i")])
def test_the_first_word_of_a_whisper_is_heard(name: str, word: str) -> None:
    assert words(english(name))[0] == word


@pytest.mark.parametrize("name", ["stereo_anti", "stereo_right", "stereo_quiet_right"])
def test_one_channel_is_enough_and_two_do_not_cancel_out(name: str) -> None:
    audio, rate = read(name)
    (final,) = captions(s16(audio.ravel()), rate=rate, channels=2, language="en")
    assert words(final.text) == words("The quick brown fox jumps over the lazy dog.")


@pytest.mark.parametrize("name", ["tap_00", "tap_13", "tap_30", "tap_40"])
def test_silence_in_front_makes_no_word_of_a_tap(name: str) -> None:
    assert english(name) == ""


def test_a_final_comes_and_is_his_though_others_talk_before_and_behind() -> None:
    audio, _ = read("yeah_babble_15_h1")
    finals = captions(s16(audio), language="en")
    assert [final.text for final in finals if final.text] == ["Yeah."]
    assert finals[0].end < 3.2


def test_a_final_comes_though_others_talk_nearly_as_loud() -> None:
    """The pause that ends it is within two seconds of 2.9 s."""
    audio, _ = read("yeah_babble_5_h1")
    first = captions(s16(audio), language="en")[0]
    assert first.text == "Yeah."
    assert first.end < 4.4


@needs_audio
def test_silence_in_front_makes_no_word_of_noise() -> None:
    (noise,) = [one for one in recordings(under="nonspeech") if "noise5" in one.name]
    assert not [final.text for final in captions(s16(noise.audio()), language="en") if final.text]


@pytest.mark.parametrize("name", ["de_1", "ende_1"])
def test_a_short_utterance_is_in_the_language_of_the_list_that_it_is_spoken_in(name: str) -> None:
    audio, _ = read(name)
    final = captions(s16(audio), language=["en", "de"])[-1]
    assert words(final.text) == ["guten", "morgen"]
    assert final.language == "de"
    assert final.language_probability is not None
    assert final.language_probability > 0.5


@needs_audio
@pytest.mark.parametrize("first", ["en", "zh"])
def test_single_words_are_in_their_language_whichever_the_list_names_first(first: str) -> None:
    """Three of four, in sessions of their own, with nothing to go by."""
    asked = [first, "zh" if first == "en" else "en"]
    found = []
    for under in ("free_spoken_digits", "mandarin_hsk_words"):
        for one in recordings(under=under)[::14][:6]:
            audio = np.pad(one.audio(), (8_000, 16_000))
            finals = captions(s16(audio), language=asked)
            found += [finals[0].language == one.language] if finals else []
    assert len(found) >= 10
    assert sum(found) >= 0.75 * len(found)
