from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from model.engine.engine import Engine
from model.engine.offline import transcribe
from model.engine.requests import Request
from model.whisper import alignment
from tests.support.tiny import CHECKPOINT, tiny_tokens
from tests.support.utterances import noise

TOKENS = tiny_tokens()


def warp(cost: np.ndarray, begins: np.ndarray, crossing: np.ndarray) -> float:
    """Dynamic time warping by its definition, cell by cell."""
    n, m = cost.shape
    total = np.full((n + 1, m + 1), np.inf)
    total[0, 0] = 0.0
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            toll = crossing[j - 1]
            diagonal = total[i - 1, j - 1] + (0 if begins[i - 1] else toll)
            least = min(diagonal, total[i - 1, j], total[i, j - 1] + toll)
            total[i, j] = cost[i - 1, j - 1] + least
    return float(total[n, m])


def paths(shape: tuple[int, int]) -> st.SearchStrategy[tuple[np.ndarray, ...]]:
    """A cost for each cell; the rows that begin a word, and what it costs to enter a column."""
    costs = arrays(np.float64, shape, elements=st.floats(-5, 5, width=16))
    tolls = arrays(np.float64, shape[1], elements=st.sampled_from([0.0, 7.0]))
    return st.tuples(costs, arrays(np.bool_, shape[0]), tolls)


@given(st.tuples(st.integers(1, 6), st.integers(1, 9)).flatmap(paths))
def test_the_path_is_monotonic_and_the_cheapest(given_path: tuple[np.ndarray, ...]) -> None:
    cost, begins, crossing = given_path
    crossing[0] = 0  # nothing lies before it
    rows, columns = alignment.cheapest_path(cost, begins, crossing)
    assert (rows[0], columns[0]) == (0, 0)
    assert (rows[-1] + 1, columns[-1] + 1) == cost.shape
    steps = {*zip(np.diff(rows), np.diff(columns), strict=True)}
    assert steps <= {(0, 1), (1, 0), (1, 1)}
    stepped, began = np.diff(columns) > 0, np.diff(rows) * begins[rows[1:]] > 0
    tolls = (crossing[columns[1:]] * (stepped & ~began)).sum()
    assert cost[rows, columns].sum() + tolls == pytest.approx(warp(cost, begins, crossing))


def test_tokens_begin_where_the_attention_turns_to_them() -> None:
    """Three tokens listen to 20, 30 and 50 states in turn; one of the heads is deaf."""
    edges = [0, 20, 50, 100]
    weights = torch.full((2, 3, 100), 0.01)
    for row, (start, stop) in enumerate(pairwise(edges)):
        weights[0, row, start:stop] = 0.5
    starts = alignment.token_starts(weights, np.ones(3, np.bool_), np.zeros(100, np.bool_))
    assert starts.shape == (3,)
    assert np.abs(starts - edges[:3]).max() <= 3


def test_a_word_begins_behind_the_pause_that_it_is_near_to() -> None:
    """The attention turns to the second word, of two tokens, too soon; a pause was left out at 30."""
    weights = torch.full((1, 4, 60), 0.01)
    for row, (start, stop) in enumerate([(0, 24), (24, 40), (40, 58), (58, 60)]):
        weights[0, row, start:stop] = 0.5
    pauses = np.arange(60) == 30
    begins = np.array([True, True, False, True])
    assert alignment.token_starts(weights, begins, pauses)[1] == 30
    assert alignment.token_starts(weights, begins, pauses & False)[1] == pytest.approx(24, abs=3)


@given(st.integers(1, 8), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_starts_ascend_whatever_the_attention(tokens: int, states: int, seed: int) -> None:
    weights = torch.rand(3, tokens, states, generator=torch.Generator().manual_seed(seed))
    begins = np.arange(tokens) % 2 == 0
    starts = alignment.token_starts(weights, begins, np.arange(states) % 7 == 3)
    assert starts.shape == (tokens,)
    assert (np.diff(starts) >= 0).all()
    assert starts[0] == 0
    assert starts[-1] < states


@pytest.mark.parametrize(
    ("text", "language", "words"),
    [
        (" It's so, isn't it?", "en", [" It's", " so,", " isn't", " it?"]),
        (' He said: "No (never)."', "en", [" He", " said:", ' "No', ' (never)."']),
        (" one - two", "en", [" one", " - two"]),
        ("so", "en", ["so"]),
        ("今日は。", "ja", ["今", "日", "は。"]),
        (" Straße", "de", [" Straße"]),
        ("", "en", []),
    ],
)
def test_words_have_marks_and_are_all_the_text(text: str, language: str, words: list[str]) -> None:
    """A byte is a token here: characters of several bytes are kept whole."""
    tokens = TOKENS.encode(text)
    found = alignment.split_words(tokens, TOKENS, language)
    assert [word for word, _, _ in found] == words
    spans = [(first, stop) for _, first, stop in found]
    assert [edge for span in spans for edge in span][1:-1:2] == [a for a, _ in spans][1:]
    assert not spans or (spans[0][0], spans[-1][1]) == (0, len(tokens))


@given(st.lists(st.integers(0, 255), max_size=12))
def test_any_tokens_make_words_that_are_the_whole_text(tokens: list[int]) -> None:
    found = alignment.split_words(tokens, TOKENS, "en")
    assert [n for _, first, stop in found for n in range(first, stop)] == list(range(len(tokens)))


def test_times_lie_within_the_utterance() -> None:
    """The last state may reach a little behind the last sample."""
    tokens = TOKENS.encode(" ab c")
    starts = np.array([0, 10, 20, 40, 50, 51])
    probabilities = [0.5, 0.7, 0.9, 0.2, 0.4]
    words = alignment.split_words(tokens, TOKENS, "en")
    first, second = alignment.timed_words(words, starts, np.arange(51), probabilities, 1.01)
    assert (first.text, first.start, first.end) == ("ab", 0.0, 0.8)
    assert (second.text, second.start, second.end) == ("c", 0.8, 1.01)
    assert first.probability == pytest.approx(0.7)


@pytest.mark.parametrize("given_heads", [[[0, 5]], [[9, 0]], [], "all", [[0, 0, 0]]])
def test_heads_that_the_decoder_lacks_are_refused(given_heads: object) -> None:
    with pytest.raises(ValueError, match="alignment_heads must be pairs"):
        alignment.read_heads(given_heads, 4, 2)


def test_heads_are_the_checkpoints_own_or_those_of_the_upper_layers() -> None:
    assert alignment.read_heads([[3, 1], [2, 0]], 4, 2) == ((3, 1), (2, 0))
    assert alignment.read_heads(None, 4, 2) == ((2, 0), (2, 1), (3, 0), (3, 1))


@pytest.mark.parametrize("static", [False, True])
def test_asking_for_words_changes_no_token_of_anybody(static: bool) -> None:
    """The extra pass writes to its own slot alone; words come in any batch as alone."""
    requests = [
        Request(noise(i, 6000 + 3000 * i), language="en", words=i % 2 == 0, prefix="ab" * (i == 4))
        for i in range(6)
    ]
    together = transcribe(Engine(CHECKPOINT, slots=3, static=static), requests)
    for request, result in zip(requests, together, strict=True):
        (alone,) = transcribe(Engine(CHECKPOINT, slots=1), [request])
        (plain,) = transcribe(Engine(CHECKPOINT, slots=1), [replace(request, words=False)])
        assert result.tokens == plain.tokens
        if not request.words:
            assert result.timed is None
            continue
        assert result.timed is not None
        assert alone.timed is not None
        assert (
            "".join(word.text for word in result.timed).split()
            == "".join(result.text.split()).split()
        )
        edges = [edge for word in result.timed for edge in (word.start, word.end)]
        assert edges == sorted(edges)
        assert edges[-1] <= len(request.audio) / 16_000
        assert [word.start for word in result.timed] == pytest.approx(
            [word.start for word in alone.timed], abs=0.02
        )


def test_attention_weights_are_those_of_the_pass() -> None:
    """Rows sum to one over the audio; the hooks leave nothing behind."""
    engine = Engine(CHECKPOINT, slots=1)
    engine.admit(Request(noise(1), language="en"))
    engine.step()
    decoder = engine.runner.whisper.decoder
    weights, hidden = alignment.attention(
        decoder, [257, 5, 6, 7], CHECKPOINT.heads, engine.runner.state.cache.rows(0, 1), 100, 25
    )
    assert weights.shape == (len(CHECKPOINT.heads), 4, 25)
    assert torch.allclose(weights.sum(-1), torch.ones(len(CHECKPOINT.heads), 4), atol=1e-5)
    assert hidden.shape == (4, 32)
    asked = []
    for layer in decoder.layers:
        q = layer.get_submodule("cross.q")
        q.register_forward_hook(lambda *_: asked.append(1))
    zero = torch.zeros(1, dtype=torch.int64)
    cache = engine.runner.state.cache.rows(0, 1)
    decoder(torch.tensor([[257]]), zero, zero + 100, cache, 64, 100)
    assert len(asked) == len(decoder.layers), "a hook that was left would ask once more"


def test_pauses_are_in_no_word() -> None:
    """States 10 to 29 are silent, and eight at either end: words meet around them."""
    audio = np.zeros(56 * 320, np.float32)
    audio[8 * 320 : 13 * 320] = audio[33 * 320 : 48 * 320] = 0.1
    sound = alignment.non_silent_states(audio)
    assert sound.tolist() == [*range(8, 13), *range(33, 48)]
    words = alignment.split_words(TOKENS.encode(" a b"), TOKENS, "en")
    found = alignment.timed_words(words, np.array([0, 2, 5, 12, 19]), sound, [0.9] * 4, 1.0)
    edges = [edge for word in found for edge in (word.start, word.end)]
    assert edges == pytest.approx([0.16, 0.26, 0.66, 0.94])
    assert len(alignment.non_silent_states(audio + 0.05)) == 56, "loud noise hides pauses"


def test_pauses_are_heard_in_noise_and_closures_are_none() -> None:
    """0.4 s of pause under noise 20 dB below the speech; 0.1 s of silence within a word."""
    audio = noise(1, 100 * 320) * 0.02
    audio[10 * 320 : 40 * 320] += 0.2 * noise(2, 30 * 320)
    audio[60 * 320 : 90 * 320] += 0.2 * noise(3, 30 * 320)
    states = alignment.non_silent_states(audio)
    assert {*range(11, 39), *range(61, 89)} <= {*states.tolist()}
    assert not {*range(43, 57)} & {*states.tolist()}
    closure = noise(4, 50 * 320) * 0.2
    closure[20 * 320 : 25 * 320] = 0
    assert len(alignment.non_silent_states(closure)) == 50


def test_a_bump_makes_no_pause_of_soft_speech() -> None:
    audio = np.full(100 * 320, 0.01, np.float32)
    audio[60 * 320 : 61 * 320] = 0.9
    assert len(alignment.non_silent_states(audio)) == 100


@given(arrays(np.float32, st.integers(1, 3_000), elements=st.floats(-1, 1, width=32)))
def test_some_state_sounds_whatever_the_audio(audio: np.ndarray) -> None:
    sound = alignment.non_silent_states(audio)
    assert 1 <= len(sound) <= -(-len(audio) // 320)
    assert (np.diff(sound) > 0).all()
