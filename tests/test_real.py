"""The whole model with genuine weights, on real speech, against transformers."""

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
import soxr
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration

from daemon.recognition import request_builder
from model.bench.word_errors import word_errors
from model.checkpoints.load import PACKAGES, Checkpoint, load
from model.checkpoints.reference import as_transformers
from model.engine.engine import Engine
from model.engine.fallback import FALLBACK_TEMPERATURES
from model.engine.offline import transcribe
from model.engine.requests import Request
from model.whisper import kernels
from model.whisper.mel import LogMel
from model.whisper.network import Cache, Whisper
from streaming.hallucination import is_plausible
from streaming.hypothesis import Hypothesis
from streaming.protocol import Encoding, Start
from streaming.session import Session
from tests.support.audio import english, needs_audio, read, recordings
from tests.support.streams import coloured_noise, encoded, feed, finals
from tests.support.transformers_greedy import greedy_reference, prompt_like

pytestmark = [
    pytest.mark.real,
    pytest.mark.usefixtures("every_core"),
    pytest.mark.timeout(1800),
    needs_audio,
]


@cache
def checkpoint(name: str) -> Checkpoint:
    return load(name)


@cache
def engine(name: str) -> Engine:
    return Engine(checkpoint(name), slots=4)


@cache
def reference(name: str) -> WhisperForConditionalGeneration:
    return as_transformers(checkpoint(name))


def words(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


def logits_along(name: str, tokens: Tensor, features: Tensor, whisper: Whisper) -> Tensor:
    """The target's logits at every token of one transcript, in the dtype of `whisper`."""
    dtype = whisper.decoder.positions.dtype
    slot = Cache.allocate(checkpoint(name).config, 1, torch.device("cpu"), dtype)
    whisper.decoder.write_cross(whisper.encoder(features.to(dtype)), slot)
    zero, encoder_len = torch.zeros(1, dtype=torch.int64), torch.tensor([1500])
    return whisper.decoder.logits(whisper.decoder(tokens, zero, encoder_len, slot, 128, 1500)[0])


@pytest.mark.parametrize("name", PACKAGES)
@torch.inference_mode()
def test_features_and_logits_equal_transformers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Log-mel within 1e-5 and logits within 1e-4 of transformers, along a real transcript.

    With the same kernels, that is. The packed ones round otherwise: they stay as close to the same
    model in float64 as transformers itself does.
    """
    monkeypatch.setattr(kernels, "least_seconds", lambda works: [1.0 for _ in works])
    audio = recordings(under="librispeech_testother")[0].audio()
    features = WhisperFeatureExtractor(feature_size=80)(
        audio, sampling_rate=16_000, return_tensors="pt"
    ).input_features
    assert (LogMel(80)([audio], 1500) - features).abs().max() <= 1e-5

    (said,) = transcribe(engine(name), [Request(audio, language="en")])
    tokens = torch.cat((prompt_like(checkpoint(name)), torch.tensor([said.tokens])), 1)
    theirs = reference(name)(input_features=features, decoder_input_ids=tokens).logits
    make = partial(
        Whisper.from_weights, checkpoint(name).config, checkpoint(name).weights, torch.device("cpu")
    )
    plain, exact = (make(dtype) for dtype in (torch.float32, torch.float64))
    truth = logits_along(name, tokens, features, exact)
    assert (logits_along(name, tokens, features, plain) - theirs).abs().max() <= 1e-4
    packed = logits_along(name, tokens, features, make(torch.float32, packed=True))
    assert (packed - truth).abs().max() <= 2 * (theirs - truth).abs().max()


@pytest.mark.parametrize("name", PACKAGES)
def test_tokens_equal_transformers_greedy(name: str) -> None:
    """The same ids as `generate` on files of every kind: long, short, noisy, telephone, digits."""
    files = english()[:: 60 if name == "base" else 120]
    audios = [one.audio()[: 30 * 16_000] for one in files]
    ours = transcribe(engine(name), [Request(audio, language="en") for audio in audios])
    for one, audio, hypothesis in zip(files, audios, ours, strict=True):
        theirs, _ = greedy_reference(checkpoint(name), reference(name), audio)
        assert hypothesis.tokens == theirs, one.name


def test_company_changes_no_token() -> None:
    requests = [
        Request(one.audio(), language="en", fitted_window=bool(number % 2))
        for number, one in enumerate(recordings(under="librispeech_testother")[3:9])
    ]
    together = transcribe(engine("base"), requests)
    alone = [transcribe(engine("base"), [request])[0] for request in requests]
    assert [one.tokens for one in together] == [one.tokens for one in alone]


@pytest.mark.parametrize(
    ("language", "under"), [("de", "german_kerstin"), ("es", "spanish_donadaniel")]
)
def test_languages_are_detected(language: str, under: str) -> None:
    """Among all and among a set; a set without the true one still gives a member."""
    audio = max(recordings(under=under), key=lambda one: one.seconds).audio()
    every, among, without = transcribe(
        engine("base"),
        [Request(audio, language=asked) for asked in (None, ("en", language), ("en", "zh"))],
    )
    assert every.language == among.language == language
    assert every.language_probability is not None
    assert every.language_probability > 0.5
    assert without.language in {"en", "zh"}


def test_translation_writes_english() -> None:
    one = max(recordings(under="german_kerstin"), key=lambda one: one.seconds)
    said, translated = transcribe(
        engine("base"),
        [Request(one.audio(), language="de", task=task) for task in ("transcribe", "translate")],
    )
    english = {"the", "of", "and", "to", "a", "is", "in", "that", "it", "was", "he", "i"}
    assert english & set(words(translated.text))
    assert translated.text != said.text


def test_silence_is_likelier_no_speech_than_speech() -> None:
    speech = recordings(under="librispeech_testother")[2].audio()
    quiet = replace(Request(speech * 0), language="en")
    loud = Request(speech, language="en")
    silent, audio_len = transcribe(engine("base"), [quiet, loud])
    assert silent.no_speech > 0.3
    assert audio_len.no_speech < 0.1
    assert audio_len.mean_logprob > -0.5


def test_a_prompt_changes_the_spelling() -> None:
    audio = recordings(under="librispeech_testother")[1].audio()
    plain, prompted = transcribe(
        engine("base"),
        [
            Request(audio, language="en", prompt=prompt)
            for prompt in ("", "Mister Hayle and Mister Thorneton")
        ],
    )
    assert "Thornton" in plain.text
    assert "Thorneton" in prompted.text


def test_sampling_is_reproducible_and_warm() -> None:
    audio = recordings(under="ami_meetings")[1].audio()
    hot = Request(audio[: 10 * 16_000], language="en", temperature=1.0, seed=1)
    (alone,) = transcribe(engine("base"), [hot])
    batch = transcribe(engine("base"), [replace(hot), replace(hot, seed=2), replace(hot, seed=3)])
    assert batch[0].tokens == alone.tokens
    assert len({one.tokens for one in batch}) > 1


def test_words_lie_where_they_were_said() -> None:
    """Silence before and behind holds none; the last ends where the speech does."""
    speech = recordings(under="librispeech_testother")[2].audio()
    quiet = np.zeros(2 * 16_000, np.float32)
    audio = np.concatenate([quiet, speech, quiet])
    (said,) = transcribe(engine("tiny.en"), [Request(audio, words=True)])
    assert said.timed is not None
    assert " ".join(word.text for word in said.timed) == said.text
    edges = [edge for word in said.timed for edge in (word.start, word.end)]
    assert edges == sorted(edges)
    assert abs(said.timed[1].start - 2.0) < 1.0
    assert abs(edges[-1] - (2.0 + len(speech) / 16_000)) < 0.6
    assert np.mean([word.probability for word in said.timed]) > 0.5


def as_finals(audios: Iterable[NDArray[np.float32]], language: str | None) -> list[Hypothesis]:
    """Decoded as a session's finals are."""
    requests = (
        Request(
            audio,
            language=language,
            stop_on_repetition=True,
            fallback_temperatures=FALLBACK_TEMPERATURES,
        )
        for audio in audios
    )
    return list(map(request_builder.hypothesis, transcribe(engine("base"), requests)))


@pytest.mark.parametrize("language", ["en", "zh", None])
def test_words_made_of_noise_are_told_by_their_figures(language: str | None) -> None:
    """Short clips, too, which a session decodes though no voice was detected in them."""
    sounds = [coloured_noise(colour, -30, 2) for colour in ("white", "pink", "brown", "hum")]
    clips = [sound[:length].astype(np.float32) for sound in sounds for length in (5_000, 30_000)]
    assert not [one.text for one in as_finals(clips, language) if one.text and is_plausible(one)]


def test_a_thank_you_that_was_spoken_survives() -> None:
    """What Whisper likes best to write in silence, cut out of sentences in which it was said."""
    names = ("000360264", "001200146", "011090246")
    sentences = [read(f"speechocean762/{name}.opus") for name in names]
    clips = []
    for audio, said in zip(
        sentences,
        transcribe(engine("base"), [Request(a, language="en", words=True) for a in sentences]),
        strict=True,
    ):
        assert said.timed is not None
        at = next(n for n, word in enumerate(said.timed) if word.text.lower() == "thank")
        start, stop = said.timed[at].start, said.timed[at + 1].end
        clips.append(np.pad(audio[int(start * 16_000) : int(stop * 16_000)], 4_800))
    for encoder_len in as_finals(clips, "en"):
        assert words(encoder_len.text) == ["thank", "you"]
        assert is_plausible(encoder_len)


def test_every_format_gives_the_same_words() -> None:
    """Of one sentence, through a session; a telephone may cost a word."""
    one = recordings(under="librispeech_testother")[2]
    formats: list[tuple[Encoding, int, int]] = [
        ("s16le", 16_000, 1),
        ("f32le", 44_100, 2),
        ("s16le", 48_000, 1),
        ("s16le", 22_050, 1),
        ("mulaw", 8_000, 1),
        ("alaw", 8_000, 1),
    ]
    encoder_len = []
    for encoding, rate, channels in formats:
        stream = Session(Start(encoding=encoding, rate=rate, channels=channels, partials=False))
        audio = np.asarray(soxr.resample(one.audio(), 16_000, rate), np.float32)
        outputs = [*feed(stream, encoded(audio, encoding, channels)), *stream.stop()]
        encoder_len.append(
            " ".join(a.text for a in as_finals([w.audio for w in finals(outputs)], "en"))
        )
    wanted = words(encoder_len[0])
    assert len(wanted) > 8
    assert [words(text) for text in encoder_len[1:4]] == [wanted] * 3
    for text in encoder_len[4:]:
        assert word_errors([encoder_len[0]], [text])["errors"] <= 1


def test_a_prefix_is_gone_on_with() -> None:
    audio = recordings(under="librispeech_testother")[1].audio()
    (plain,) = transcribe(engine("base"), [Request(audio, language="en")])
    first = " ".join(plain.text.split()[:4])
    (bound,) = transcribe(engine("base"), [Request(audio, language="en", prefix=first)])
    assert bound.text.startswith(first)
    assert words(bound.text)[4:] == words(plain.text)[4:]
