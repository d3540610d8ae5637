"""Word timestamps: a transcript aligned to its audio by the decoder's cross-attention.

The method is openai/whisper's (timing.py): one pass over the whole transcript; the weights of the alignment
heads, normalised over the tokens and smoothed by a median filter; dynamic time warping over them. Unlike
there, pauses are left out of the path, and a path that crosses one within a word costs more.
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

MEDIAN_WIDTH = 7  # encoder states
SECONDS_PER_STATE = SAMPLES_PER_STATE / SAMPLE_RATE
# The path would distribute pauses among the words, so that it leaves them out: PAUSE_STATES in a row whose
# power is PAUSE_DB below the quantile of loud ones (the maximum may be a bump against the microphone), or
# hardly above that of the noise, where that is SPEECH_DB below the loud ones.
PAUSE_STATES = 8
PAUSE_DB = 35
LOUD_QUANTILE = 0.95
NOISE_QUANTILE = 0.1
NOISE_DB = 6
SPEECH_DB = 12
CROSSING_COST = (
    40.0  # of a pause within a word, in units of the path's cost; from 20 on the same words
)
LEAD_STATES = 3  # so much before a word begins the attention turns to it
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
    """A checkpoint's list of alignment heads; by default, all heads of the upper half of the layers.

    layers: of the decoder; heads: of each layer. Raises ValueError for anything but a list of such pairs.
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
    weights: Tensor,
    probabilities: Sequence[float],
    text: list[int],
    audio: NDArray[np.float32],
    table: TokenTable,
    language: str,
) -> tuple[WordTiming, ...]:
    """The words of `text`, tokens without the end of transcript, with their times.

    weights: [heads, len(text) + 1, states]; row n is the attention that predicts token n, the last one
    that of the end. probabilities: of the tokens of `text`. audio: the utterance, [samples] at 16 kHz.
    """
    states = non_silent_states(audio)
    pauses = np.diff(states, prepend=states[0] - 1) > 1
    if states[-1] + 1 < weights.shape[-1]:  # the end of the transcript has the pause at the end
        states, pauses = np.append(states, states[-1] + 1), np.append(pauses, True)
    words = split_words(text, table, language)
    begins = np.isin(np.arange(len(text) + 1), [*(start for _, start, _ in words), len(text)])
    attended = torch.from_numpy(np.maximum(states - LEAD_STATES, 0))
    starts = token_starts(weights[..., attended], begins, pauses)
    return timed_words(words, starts, states, probabilities, len(audio) / SAMPLE_RATE)


def attention(
    decoder: Decoder,
    tokens: list[int],
    heads: Heads,
    cache: Cache,
    encoder_len: int,
    audio_len: int,
) -> tuple[Tensor, Tensor]:
    """Cross-attention weights and last hidden states of one pass over `tokens`, prompt and transcript.

    cache: one row, the utterance's, with `encoder_len` valid encoder states; the pass overwrites its
    decoder part. audio_len: the states that hold audio. Returns weights [heads, tokens, audio_len],
    float32 on the CPU, and hidden states [tokens, width] as the decoder has them.
    """
    device = cache.self_keys.device
    recorded: dict[tuple[int, int], Tensor] = {}
    with _recorded_attention(decoder, heads, audio_len, recorded):
        hidden, _ = decoder(
            torch.tensor([tokens], device=device),
            torch.zeros(1, dtype=torch.int64, device=device),
            torch.tensor([encoder_len], device=device),
            cache,
            len(tokens),
            encoder_len,
        )
    weights = torch.stack([recorded[pair] for pair in heads])
    return weights.float().cpu(), hidden[0]


@contextmanager
def _recorded_attention(
    decoder: Decoder, heads: Heads, audio_len: int, recorded: dict[tuple[int, int], Tensor]
) -> Iterator[None]:
    """While entered, write the cross-attention [tokens, audio_len] of every one of `heads` to `recorded`."""

    def record(layer: int, cross: torch.nn.Module, inputs: tuple[Tensor, ...]) -> None:
        x, keys = inputs[0], inputs[1]  # keys [1, heads, states, width of a head]
        assert isinstance(cross.q, torch.nn.Module)
        q = cross.q(x).view(len(x[0]), keys.shape[1], -1).transpose(0, 1)
        for head in (head for of, head in heads if of == layer):
            scores = q[head].float() @ keys[0, head, :audio_len].float().T * q.shape[-1] ** -0.5
            recorded[layer, head] = scores.softmax(-1)

    hooks = [
        decoder.layers[layer]
        .get_submodule("cross")
        .register_forward_pre_hook(lambda cross, inputs, layer=layer: record(layer, cross, inputs))
        for layer in {layer for layer, _ in heads}
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def token_starts(
    weights: Tensor, begins: NDArray[np.bool_], pauses: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """The first encoder state of every token, the end of transcript included: [tokens], ascending.

    weights: [heads, tokens, states]; row n is the attention that predicts token n. begins: [tokens],
    those with which a word or the end begins. pauses: [states], those before which a pause was left out.
    """
    deviation, mean = torch.std_mean(weights, dim=-2, keepdim=True, unbiased=False)
    sharpened = (weights - mean) / deviation.clamp(min=1e-6)
    cost = -_median(sharpened).mean(0).double().numpy()
    rows, columns = cheapest_path(cost, begins, np.where(pauses, CROSSING_COST, 0.0))
    return columns[np.flatnonzero(np.diff(rows, prepend=-1))]


def _median(weights: Tensor) -> Tensor:
    """Median filter over the last axis; the ends are mirrored."""
    half = MEDIAN_WIDTH // 2
    if weights.shape[-1] <= half:
        return weights
    padded = torch.nn.functional.pad(weights, (half, half), mode="reflect")
    return padded.unfold(-1, MEDIAN_WIDTH, 1).median(-1).values


def cheapest_path(
    cost: NDArray[np.float64], begins: NDArray[np.bool_], crossing: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Dynamic time warping: the monotonic path of least cost from the first corner to the last.

    cost: [n, m], n and m at least 1. crossing: [m], what it costs to enter a column, but for a path that
    enters it with the first cell of a row that `begins`, [n]. Returns row and column indices along the
    path, ascending; the diagonal step wins ties. Whole anti-diagonals are computed at once, in n + m
    steps.
    """
    n, m = cost.shape
    total = np.full((n + 1, m + 1), np.inf)
    total[0, 0] = 0.0
    step = np.zeros((n + 1, m + 1), np.int8)
    for diagonal in range(2, n + m + 1):
        i = np.arange(max(1, diagonal - m), min(n, diagonal - 1) + 1)
        j = diagonal - i
        entering = crossing[j - 1]
        before = np.stack(
            [
                total[i - 1, j - 1] + np.where(begins[i - 1], 0.0, entering),
                total[i - 1, j],
                total[i, j - 1] + entering,
            ]
        )
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
    """Words as (text, first token, token after the last); together they are the whole text.

    A word begins with a space; in languages without spaces every character is a word. Opening
    punctuation belongs to the word after it, other punctuation to the word before it.
    """
    words: list[tuple[str, int, int]] = []
    start = 0
    for stop in range(1, len(tokens) + 1):
        text = table.decode(tokens[start:stop])
        if "\ufffd" in text and stop < len(tokens):
            continue  # in the middle of a character
        begins = text.startswith(" ") or language in UNSPACED
        after_opening = bool(words) and _is_opening(words[-1][0])
        if words and (after_opening or not begins or _is_closing(text)):
            text = words[-1][0] + text
            start_of_word = words.pop()[1]
        else:
            start_of_word = start
        words.append((text, start_of_word, stop))
        start = stop
    return words


def _is_opening(text: str) -> bool:
    """Whether `text` is opening punctuation alone."""
    return all(unicodedata.category(c) in {"Ps", "Pi", "Zs"} or c in "\"'¿¡-" for c in text)


def _is_closing(text: str) -> bool:
    """Whether `text` is punctuation alone, and not opening."""
    marks = text.strip(" ")
    return all(unicodedata.category(c)[0] == "P" for c in marks) and not _is_opening(text)


def non_silent_states(audio: NDArray[np.float32]) -> NDArray[np.int64]:
    """Indices of the encoder states of `audio`, [samples], outside pauses; ascending, at least one.

    Loud noise hides pauses: all states count.
    """
    padded = np.pad(audio, (0, -len(audio) % SAMPLES_PER_STATE)).astype(np.float64)
    power = np.square(padded).reshape(-1, SAMPLES_PER_STATE).mean(1)
    loud = np.quantile(power, LOUD_QUANTILE)
    silent = power < loud * 10 ** (-PAUSE_DB / 10)
    smooth = np.convolve(np.pad(power, 1, mode="edge"), np.ones(3) / 3, "valid")
    noise = np.quantile(smooth, NOISE_QUANTILE)
    if noise < loud * 10 ** (-SPEECH_DB / 10):
        silent |= smooth < noise * 10 ** (NOISE_DB / 10)
    edges = np.flatnonzero(np.diff(silent, prepend=False, append=False)).reshape(-1, 2)
    for start, stop in edges:
        silent[start:stop] &= stop - start >= PAUSE_STATES
    return np.flatnonzero(~silent)


def timed_words(
    words: Sequence[tuple[str, int, int]],
    starts: NDArray[np.int64],
    states: NDArray[np.int64],
    probabilities: Sequence[float],
    seconds: float,
) -> tuple[WordTiming, ...]:
    """Words with their times, which ascend and lie within `seconds`.

    words: as `split_words` gives them. states: as `non_silent_states` gives them. starts: [tokens + 1], as
    `token_starts` gives them: indices into `states`. probabilities: [tokens].
    """
    assert all(a <= b for a, b in pairwise(starts))

    def word(text: str, first: int, stop: int) -> WordTiming:
        start = states[starts[first]]
        # The last state before the next word, which may begin after a pause.
        end = states[starts[stop] - 1] + 1 if starts[stop] > starts[first] else start
        return WordTiming(
            text=text.strip(),
            start=float(min(start * SECONDS_PER_STATE, seconds)),
            end=float(min(end * SECONDS_PER_STATE, seconds)),
            probability=float(np.mean(probabilities[first:stop])),
        )

    return tuple(word(*found) for found in words if found[0].strip())
