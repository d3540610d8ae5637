"""People who take turns within one utterance: material made of the shared test recordings.

Sentences of known speakers, trimmed to their speech, are joined with short pauses of near silence, as a
segmenter that waits longer than that hears them: one utterance, between its pre-roll and its post-roll.
Everything follows from the seed and the manifest.
"""

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streaming.protocol import SAMPLE_RATE
from tests.benchmarks.bench_stream import voiced_range
from tests.support.audio import recordings

SEED = 13
GAP_S = (0.1, 0.6)  # pauses between sentences, all below what ends an utterance (0.7 s)
MOST_S, SENTENCE_S = 28.0, (1.2, 12.0)
BEFORE_S, BEHIND_S = 0.3, 0.2  # the segmenter's pre-roll and post-roll
ROOM_DBFS = -65.0  # of the noise in half of the pauses; the others are digital silence
FADE = SAMPLE_RATE // 100  # samples: no click where a clip is cut
# Readers of whole sentences. Digits and single words are no turns, but for Mandarin, of which there is
# nothing else: three of its words make a sentence.
ENGLISH = ("librispeech_testother", "librispeech_misc", "librispeech_walleclipse")
OTHERS = {"de": "german_kerstin", "es": "spanish_donadaniel", "zh": "mandarin_hsk_words"}
ORDERS: Sequence[tuple[str, str]] = [
    *(("de", "en"), ("en", "de"), ("es", "en"), ("en", "es")),
    *(("zh", "en"), ("en", "zh"), ("de", "es"), ("es", "zh")),
]

Samples = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Sentence:
    """One reader's sentence, trimmed to its speech. name: of the recording it comes from."""

    name: str
    speaker: str
    language: str
    text: str
    audio: Samples


@dataclass(frozen=True, slots=True, eq=False)
class Turns:
    """One utterance of several sentences. spans: samples of each sentence in `audio`."""

    name: str
    sentences: tuple[Sentence, ...]
    gaps: tuple[float, ...]
    audio: Samples
    spans: tuple[tuple[int, int], ...]

    @property
    def texts(self) -> list[str]:
        return [sentence.text for sentence in self.sentences]

    @property
    def languages(self) -> tuple[str, ...]:
        """What is said, in order, each once."""
        return tuple(dict.fromkeys(one.language for one in self.sentences))


def english_turns(most: int, count: int, seed: int = SEED) -> list[Turns]:
    """`most` utterances of `count` English sentences each; the first ones are the same for any `most`."""
    readers = by_speaker(sentences(*ENGLISH, language="en"))
    return [of_readers(readers, count, f"{count}-{n:03}", seed) for n in range(most)]


def mixed_turns(most: int, seed: int = SEED) -> list[Turns]:
    """`most` utterances of two languages, for each order of them."""
    known = {"en": sentences(*ENGLISH, language="en")}
    known |= {language: sentences(folder, language=language) for language, folder in OTHERS.items()}
    found = []
    for number in range(most):
        for order in ORDERS:
            name = f"{'-'.join(order)}-{number}"
            dice = random.Random(f"{seed} {name}")
            parts = [of_language(language, known[language], dice) for language in order]
            found.append(join(name, parts, dice))
    return found


def sentences(*folders: str, language: str) -> list[Sentence]:
    """The transcribed test recordings below these folders whose speech lasts SENTENCE_S (not Mandarin)."""
    found = []
    for one in [one for folder in folders for one in recordings(language=language, under=folder)]:
        if not one.transcript or not one.speaker or one.seconds > 2 * SENTENCE_S[1]:
            continue
        sentence = Sentence(one.name, one.speaker, language, one.transcript, trimmed(one.audio()))
        seconds = len(sentence.audio) / SAMPLE_RATE
        if language == "zh" or SENTENCE_S[0] <= seconds <= SENTENCE_S[1]:
            found.append(sentence)
    return found


def trimmed(audio: Samples) -> Samples:
    """A recording without the silence around its speech."""
    first, last = voiced_range(audio)
    return audio[first : last + 1]


def by_speaker(found: Sequence[Sentence]) -> dict[str, list[Sentence]]:
    """Speaker → sentences. Readers of a single sentence are drawn as often as those of ninety."""
    result: dict[str, list[Sentence]] = defaultdict(list)
    for one in found:
        result[one.speaker].append(one)
    return dict(result)


def of_readers(readers: dict[str, list[Sentence]], count: int, name: str, seed: int) -> Turns:
    """`count` sentences; neighbours differ in their speaker, and the first may speak again."""
    dice = random.Random(f"{seed} {name}")
    while True:
        two = dice.sample(sorted(readers), 2)
        again = dice.random() < 0.5 or len(readers) < count
        who = [two[n % 2] for n in range(count)] if again else dice.sample(sorted(readers), count)
        parts = [dice.choice(readers[speaker]) for speaker in who]
        if len({part.name for part in parts}) == count and _fits(parts):
            return join(name, parts, dice)


def _fits(parts: Sequence[Sentence]) -> bool:
    longest = BEFORE_S + BEHIND_S + GAP_S[1] * (len(parts) - 1)
    return longest + sum(len(part.audio) for part in parts) / SAMPLE_RATE <= MOST_S


def of_language(language: str, found: Sequence[Sentence], dice: random.Random) -> Sentence:
    """A sentence in the language; in Mandarin three words."""
    if language != "zh":
        return dice.choice(found)
    words = dice.sample(list(found), 3)
    return Sentence(
        "+".join(word.name for word in words),
        words[0].speaker,
        language,
        "".join(word.text for word in words),
        np.concatenate([word.audio for word in words]),
    )


def join(name: str, parts: Sequence[Sentence], dice: random.Random) -> Turns:
    """One utterance of these sentences, with pauses drawn from GAP_S between them."""
    noise = np.random.default_rng(dice.getrandbits(32))
    level = 10 ** (ROOM_DBFS / 20) if dice.random() < 0.5 else 0.0

    def room(seconds: float) -> Samples:
        count = round(seconds * SAMPLE_RATE)
        return np.asarray(level * noise.standard_normal(count), np.float32)

    pieces, gaps, spans = [room(BEFORE_S)], [], []
    at = len(pieces[0])
    for number, part in enumerate(parts):
        if number:
            gaps.append(round(dice.uniform(*GAP_S), 2))
            pieces.append(room(gaps[-1]))
            at += len(pieces[-1])
        pieces.append(faded(part.audio))
        spans.append((at, at + len(part.audio)))
        at += len(part.audio)
    pieces.append(room(BEHIND_S))
    return Turns(name, tuple(parts), tuple(gaps), np.concatenate(pieces), tuple(spans))


def faded(audio: Samples) -> Samples:
    """With its first and last 10 ms swelling and dying away."""
    slope = np.linspace(0, 1, FADE, dtype=np.float32)
    result = audio.copy()
    result[:FADE] *= slope
    result[-FADE:] *= slope[::-1]
    return result
