"""When words were said: a transcript aligned to its audio by the decoder's attention to it.

As openai/whisper does it (timing.py): one pass over the whole transcript, the attention of the heads that
follow the audio, normalised over the tokens, smoothed by a median, and the cheapest monotonic path
through it (dynamic time warping). Nothing is decoded here.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.whisper.mel import SAMPLE_RATE, SAMPLES_PER_STATE
from model.whisper.network import Cache, Decoder
from model.whisper.tokens import TokenTable

Heads = tuple[tuple[int, int], ...]  # (layer, head)

MEDIAN = 7  # encoder states over which the attention is smoothed
SECONDS_PER_STATE = SAMPLES_PER_STATE / SAMPLE_RATE
# Left alone, the path shares the pauses out among the words. So it leads through the sound alone: a state
# is in a pause where it is this much softer than the loud ones: those of LOUD, for a bump is louder yet.
PAUSE_DB = 35
LOUD = 0.95
UNSPACED = frozenset({"zh", "ja", "th", "lo", "my", "yue"})  # languages that write no spaces


@dataclass(frozen=True, slots=True)
class WordTiming:
    """A word as written, its punctuation included; seconds from the utterance's first sample.

    probability: mean of its tokens'.
    """

    text: str
    start: float
    end: float
    probability: float


def read_heads(given: object, layers: int, heads: int) -> Heads:
    """A checkpoint's own list of alignment heads; where it has none all of the upper half of the layers.

    Raises ValueError for what is no list of pairs of a decoder with so many layers and heads in each.
    """
    if given is None:
        return tuple(product(range(layers // 2, layers), range(heads)))
    pairs = [tuple(pair) for pair in given] if isinstance(given, list) else []
    if not pairs or not set(product(range(layers), range(heads))).issuperset(pairs):
        raise ValueError(
            f"alignment_heads must be pairs of one of {layers} layers and one of {heads} heads, "
            f"not {given!r:.100}"
        )
    return tuple((layer, head) for layer, head in pairs)


def align(
    decoder: Decoder,
    prompt_tokens: list[int],
    text: list[int],
    heads: Heads,
    cache: Cache,
    states: int,
    audio: NDArray[np.float32],
    table: TokenTable,
    language: str,
) -> tuple[WordTiming, ...]:
    """The words of `text`, tokens without the end, and when they were said.

    opening: what stood before it. cache: the utterance's row alone, of which `states` encoder states
    are valid; the decoder's part is written anew. audio: the utterance, [samples] at 16 kHz.
    """
    if not text:
        return ()
    encoder_len = min(states, -(-len(audio) // SAMPLES_PER_STATE))
    weights, logits = attention(decoder, prompt_tokens + text, heads, cache, states, encoder_len)
    # The position before a token predicts it; the last one predicts the end.
    first = len(prompt_tokens) - 1
    sound = sounding(audio)
    starts = token_starts(weights[:, first:, torch.from_numpy(sound)])
    chances = logits[first:-1].softmax(-1)[torch.arange(len(text)), text].tolist()
    return timed_words(text, starts, sound, chances, table, language, len(audio) / SAMPLE_RATE)


def attention(
    decoder: Decoder, tokens: list[int], heads: Heads, cache: Cache, states: int, encoder_len: int
) -> tuple[Tensor, Tensor]:
    """Whom every token listens to, and what is expected behind it.

    tokens: opening and transcript, which `cache`, one row, is filled with. states: encoder states that
    the row holds; heard: those of them that are audio. Returns attention weights [heads, tokens, heard]
    and logits [tokens, vocabulary], float32 on the CPU.
    """
    device = cache.self_keys.device
    found: dict[int, Tensor] = {}
    with _watched(decoder, {layer for layer, _ in heads}, encoder_len, found):
        hidden, _ = decoder(
            torch.tensor([tokens], device=device),
            torch.zeros(1, dtype=torch.int64, device=device),
            torch.tensor([states], device=device),
            cache,
            len(tokens),
            states,
        )
    weights = torch.stack([found[layer][head] for layer, head in heads])
    return weights.float().cpu(), decoder.logits(hidden[0]).float().cpu()


@contextmanager
def _watched(
    decoder: Decoder, layers: set[int], encoder_len: int, found: dict[int, Tensor]
) -> Iterator[None]:
    """While entered, these layers' attention [heads, tokens, heard] to the audio is kept in `found`."""

    def keep(layer: int, cross: torch.nn.Module, inputs: tuple[Tensor, ...]) -> None:
        x, keys = inputs[0], inputs[1]
        assert isinstance(cross.q, torch.nn.Module)
        q = cross.q(x).view(*x.shape[:2], keys.shape[1], -1).transpose(1, 2)
        scores = q.float() @ keys.float().transpose(-1, -2) * q.shape[-1] ** -0.5
        found[layer] = scores[0, ..., :encoder_len].softmax(-1)

    hooks = [
        decoder.layers[layer]
        .get_submodule("cross")
        .register_forward_pre_hook(lambda cross, inputs, layer=layer: keep(layer, cross, inputs))
        for layer in layers
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def token_starts(weights: Tensor) -> NDArray[np.int64]:
    """The first encoder state of every token, and of the end behind the last: [tokens], ascending.

    weights: [heads, tokens, states], each row the attention with which a token is predicted.
    """
    deviation, mean = torch.std_mean(weights, dim=-2, keepdim=True, unbiased=False)
    sharpened = (weights - mean) / deviation.clamp(min=1e-6)
    cost = -_median(sharpened).mean(0).double().numpy()
    rows, columns = cheapest_path(cost)
    return columns[np.flatnonzero(np.diff(rows, prepend=-1))]


def _median(weights: Tensor) -> Tensor:
    """A running median over the last axis, its ends mirrored."""
    half = MEDIAN // 2
    if weights.shape[-1] <= half:
        return weights
    padded = torch.nn.functional.pad(weights, (half, half), mode="reflect")
    return padded.unfold(-1, MEDIAN, 1).median(-1).values


def cheapest_path(cost: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Dynamic time warping: the monotonic path of least cost from the first corner to the last.

    cost: [n, m], n and m at least 1. Returns row and column indices along the path, ascending. Of
    equal steps the diagonal one is taken. Whole anti-diagonals are computed at once: n + m steps.
    """
    n, m = cost.shape
    total = np.full((n + 1, m + 1), np.inf)
    total[0, 0] = 0.0
    step = np.zeros((n + 1, m + 1), np.int8)
    for diagonal in range(2, n + m + 1):
        i = np.arange(max(1, diagonal - m), min(n, diagonal - 1) + 1)
        j = diagonal - i
        before = np.stack([total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]])
        step[i, j] = before.argmin(0)
        total[i, j] = cost[i - 1, j - 1] + before.min(0)
    path = [(n, m)]
    while path[-1] != (1, 1):
        i, j = path[-1]
        taken = step[i, j]
        path.append((i - (taken != 2), j - (taken != 1)))
    rows, columns = np.array(path[::-1], np.int64).T - 1
    return rows, columns


def split_words(
    tokens: Sequence[int], table: TokenTable, language: str
) -> list[tuple[str, int, int]]:
    """Words as (text, first token, token behind the last); together they are the whole text.

    A word begins with a space, or in languages without them with any whole character. Marks belong to
    the word before them, opening ones to the word behind.
    """
    words: list[tuple[str, int, int]] = []
    start = 0
    for stop in range(1, len(tokens) + 1):
        text = table.decode(tokens[start:stop])
        if "\ufffd" in text and stop < len(tokens):
            continue  # in the middle of a character
        begins = text.startswith(" ") or language in UNSPACED
        opens = bool(words) and _opens(words[-1][0])  # nothing but marks so far
        if words and (opens or not begins or _closes(text)):
            text = words[-1][0] + text
            start_of_word = words.pop()[1]
        else:
            start_of_word = start
        words.append((text, start_of_word, stop))
        start = stop
    return words


def _opens(text: str) -> bool:
    """Whether it is nothing but marks that stand before a word."""
    return all(unicodedata.category(c) in {"Ps", "Pi", "Zs"} or c in "\"'¿¡-" for c in text)


def _closes(text: str) -> bool:
    """Whether it is nothing but marks that stand behind a word."""
    marks = text.strip(" ")
    return all(unicodedata.category(c)[0] == "P" for c in marks) and not _opens(text)


def sounding(audio: NDArray[np.float32]) -> NDArray[np.int64]:
    """The encoder states of `audio`, [samples], that are in no pause, ascending; one at least.

    Under noise there are no pauses, and it is all of them.
    """
    padded = np.pad(audio, (0, -len(audio) % SAMPLES_PER_STATE)).astype(np.float64)
    power = np.square(padded).reshape(-1, SAMPLES_PER_STATE).mean(1)
    return np.flatnonzero(power >= np.quantile(power, LOUD) * 10 ** (-PAUSE_DB / 10))


def timed_words(
    tokens: Sequence[int],
    starts: NDArray[np.int64],
    sound: NDArray[np.int64],
    probabilities: Sequence[float],
    table: TokenTable,
    language: str,
    seconds: float,
) -> tuple[WordTiming, ...]:
    """Words with their times, which ascend and lie within `seconds`.

    tokens: of the text alone. starts: [len(tokens) + 1], as `token_starts` gives them, counted in the
    states `sound`.
    """
    assert all(a <= b for a, b in pairwise(starts))

    def word(text: str, first: int, stop: int) -> WordTiming:
        start = sound[starts[first]]
        # Up to the last state before the next word, which may lie behind a pause.
        end = sound[starts[stop] - 1] + 1 if starts[stop] > starts[first] else start
        return WordTiming(
            text=text.strip(),
            start=float(min(start * SECONDS_PER_STATE, seconds)),
            end=float(min(end * SECONDS_PER_STATE, seconds)),
            probability=float(np.mean(probabilities[first:stop])),
        )

    words = split_words(tokens, table, language)
    return tuple(word(*found) for found in words if found[0].strip())
