"""The engine: utterances in, hypotheses out, many at a time.

`admit` takes a slot, `step` runs one round for every occupied slot and returns what finished;
`transcribe` wraps the two for offline use. Rows join and leave between rounds. Occupied rows are
kept compact: the last row moves into a freed one. An engine belongs to one thread.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model import load as loading
from model.decode import choose
from model.load import Checkpoint
from model.mel import SAMPLE_RATE, SAMPLES_PER_STATE, LogMel
from model.whisper import Cache, Whisper

# A fitted window ends this long after the audio: with less, Whisper loops (3 of 50 test-other
# utterances at 2 or 3 s, none at 5 s). Windows are rounded up to a multiple of it.
_WINDOW_STEP = 5 * SAMPLE_RATE // SAMPLES_PER_STATE  # encoder states
_REACH_STEP = 64  # cached positions: attention looks at a multiple of this many


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One utterance to recognise.

    audio: float32 [samples], 16 kHz mono in [-1, 1]; at least two samples, at most 30 s.
    language: a code; several to choose from; None to detect among all.
    prompt: text that came before; the last 223 tokens of it count, as in Whisper.
    temperature: 0 is greedy; above 0 samples from the target's distribution, reproducibly by seed.
    fitted_window: encode the audio and 5 s of silence instead of Whisper's full 30 s.
    """

    audio: NDArray[np.float32]
    language: str | tuple[str, ...] | None = None
    task: Literal["transcribe", "translate"] = "transcribe"
    prompt: str = ""
    temperature: float = 0.0
    seed: int = 0
    fitted_window: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Hypothesis:
    """What the target says of an utterance.

    tokens: as emitted, the end of transcript included when it was reached.
    language_probability: among the languages asked for; None when the language was given.
    no_speech: probability of silence after the start token. mean_logprob: over `tokens`, natural.
    rounds: target passes after prefill; proposed, accepted, reused: drafted tokens.
    """

    request: Request
    text: str
    tokens: tuple[int, ...]
    language: str
    language_probability: float | None
    no_speech: float
    mean_logprob: float
    rounds: int
    proposed: int = 0
    accepted: int = 0
    reused: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Failure:
    """A request that could not be decoded; the others went on."""

    request: Request
    message: str


@dataclass(slots=True, eq=False)
class _Row:
    """The host's side of an occupied slot."""

    request: Request
    language: str | None
    language_probability: float | None = None
    no_speech: float = 0.0
    opening: list[int] = field(default_factory=list)
    budget: int = 0
    tokens: list[int] = field(default_factory=list)
    logprob: float = 0.0
    rounds: int = 0


class Engine:
    """Whisper behind slots.

    slots: how many utterances are decoded at once; their caches are allocated here, once.
    Raises torch.OutOfMemoryError when the caches do not fit the device.
    """

    drafter: str | None = None

    def __init__(self, checkpoint: Checkpoint, *, device: str = "cpu", slots: int = 4) -> None:
        self.name = checkpoint.name
        self.slots = slots
        self.device = torch.device(device)
        config = checkpoint.config
        on_cpu = self.device.type == "cpu"
        dtype = torch.float32 if on_cpu else torch.float16
        self.whisper = Whisper.from_weights(
            config, checkpoint.weights, self.device, dtype, packed=on_cpu
        )
        self.mel = LogMel(config.num_mel_bins).to(self.device)
        self.tokens = checkpoint.tokens
        self.languages = frozenset(checkpoint.tokens.languages) or frozenset({"en"})
        self.cache = Cache.allocate(config, slots, self.device, dtype)
        self._bias = self.tokens.bias(first=False).to(self.device)
        self._first_bias = self.tokens.bias(first=True).to(self.device)
        # The device's side of the rows, by slot.
        self._lengths = torch.zeros(slots, dtype=torch.int64, device=self.device)
        self._states = torch.zeros_like(self._lengths)
        self._anchors = torch.zeros_like(self._lengths)
        self._seeds = torch.zeros_like(self._lengths)
        self._temperatures = torch.zeros(slots, device=self.device)
        self._rows: list[_Row] = []
        self._arrived: list[Request] = []

    @property
    def occupied(self) -> int:
        """Slots taken, requests that wait for their first step included."""
        return len(self._rows) + len(self._arrived)

    def check(self, request: Request) -> None:
        """Raises ValueError, in words for the client, for a request that cannot be served."""
        wanted = _as_tuple(request.language)
        unknown = sorted(set(wanted) - self.languages)
        if unknown:
            raise ValueError(
                f"the model {self.name} does not know the language {', '.join(unknown)}; "
                f"it knows {', '.join(sorted(self.languages))}"
            )
        if request.task not in ("transcribe", "translate"):
            raise ValueError(f"task is transcribe or translate, not {request.task!r}")
        if request.task == "translate" and not self.tokens.languages:
            raise ValueError(f"the model {self.name} knows English only and cannot translate")
        if not 0.0 <= request.temperature <= 2.0:  # NaN fails, too
            raise ValueError(f"temperature lies in 0 … 2, not {request.temperature}")
        if not -(2**63) <= request.seed < 2**63:
            raise ValueError("seed is a 64-bit integer")
        audio, limit = request.audio, self._most_samples
        if audio.ndim != 1 or audio.dtype != np.float32 or not 2 <= len(audio) <= limit:
            raise ValueError(
                f"an utterance is 2 to {limit} float32 samples at {SAMPLE_RATE} Hz, "
                f"not {audio.dtype} {list(audio.shape)}"
            )
        if not np.isfinite(audio).all():
            raise ValueError("the utterance holds NaN or infinite samples")

    def admit(self, request: Request) -> None:
        """Take a slot. Raises ValueError as `check` does, RuntimeError when none is free."""
        self.check(request)
        if self.occupied >= self.slots:
            raise RuntimeError(f"all {self.slots} slots are occupied")
        self._arrived.append(request)

    def cancel(self, request: Request) -> None:
        """Free the request's slot, if it has one; no result follows."""
        if request in self._arrived:
            self._arrived.remove(request)
        for index, row in enumerate(self._rows):
            if row.request is request:
                self._free(index)
                return

    @torch.inference_mode()
    def step(self) -> list[Hypothesis | Failure]:
        """Prefill what was admitted, then one round for every row; returns what finished."""
        arrived, self._arrived = self._arrived, []
        finished: list[Hypothesis | Failure] = []
        for states in sorted({self._window(request) for request in arrived}):
            group = [request for request in arrived if self._window(request) == states]
            finished += self._prefill(group, states)
        if self._rows:
            finished += self._round()
        return finished

    def transcribe(self, requests: Iterable[Request]) -> list[Hypothesis]:
        """Decode all, as many at a time as there are slots; results in the order of requests.

        Raises ValueError for the first request that cannot be decoded.
        """
        order = list(requests)
        waiting, done = deque(order), dict[Request, Hypothesis]()
        while waiting or self.occupied:
            while waiting and self.occupied < self.slots:
                self.admit(waiting.popleft())
            for result in self.step():
                if isinstance(result, Failure):
                    raise ValueError(result.message)
                done[result.request] = result
        return [done[request] for request in order]

    def warm_up(self) -> None:
        """Run every phase once, so that the first client does not pay for it."""
        audio = np.zeros(SAMPLE_RATE, np.float32)
        self.transcribe(Request(audio, fitted_window=fitted) for fitted in (False, True))

    @property
    def _most_samples(self) -> int:
        return int(self.whisper.config.max_source_positions) * SAMPLES_PER_STATE

    def _window(self, request: Request) -> int:
        """Encoder states that the request is decoded with."""
        full = int(self.whisper.config.max_source_positions)
        if not request.fitted_window:
            return full
        heard = -(-len(request.audio) // SAMPLES_PER_STATE)
        return min(full, (-(-heard // _WINDOW_STEP) + 1) * _WINDOW_STEP)

    def _prefill(self, requests: list[Request], states: int) -> list[Hypothesis | Failure]:
        """Give `requests` the slots behind the last row and emit the first token of each."""
        first, last = len(self._rows), len(self._rows) + len(requests)
        rows = [_Row(request, _fixed_language(request, self.languages)) for request in requests]
        self._rows += rows
        cache = self.cache.rows(first, last)
        audios = [request.audio for request in requests]
        mel = self.mel(audios, states).to(self.cache.self_keys.dtype)
        self.whisper.decoder.write_cross(self.whisper.encoder(mel), cache)
        self._states[first:last] = states
        self._seeds[first:last] = torch.tensor([request.seed for request in requests])
        self._temperatures[first:last] = torch.tensor([r.temperature for r in requests])
        self._detect_languages(rows, states)

        half = int(self.whisper.config.max_target_positions) // 2
        for row in rows:
            context = self.tokens.encode(" " + row.request.prompt.strip())
            row.opening = self.tokens.opening(
                context[1 - half :] if row.request.prompt.strip() else [],
                row.language,
                row.request.task,
            )
            # As in Whisper: half the context, or what the opening leaves of it. The last token
            # is emitted but never processed, so that it needs no position.
            row.budget = min(half, 2 * half - len(row.opening) + 1)
        openings = [len(row.opening) for row in rows]
        length = max(openings)
        padded = [row.opening + [self.tokens.eot] * (length - len(row.opening)) for row in rows]
        self._lengths[first:last] = 0
        hidden = self._pass(torch.tensor(padded, device=self.device), first, last, length, states)
        index = torch.arange(len(rows), device=self.device)
        # Whisper reads the probability of silence where it would read the language.
        starts = [row.opening.index(self.tokens.sot) for row in rows]
        opened = self.whisper.decoder.logits(hidden[index, torch.tensor(starts)])
        silences = opened.float().softmax(-1)[:, self.tokens.no_speech].tolist()
        for row, silence in zip(rows, silences, strict=True):
            row.no_speech = silence
        # What was written behind a shorter opening is forgotten with its length.
        self._lengths[first:last] = torch.tensor(openings)
        ends = torch.tensor(openings) - 1
        logits = self.whisper.decoder.logits(hidden[index, ends]) + self._first_bias
        return self._emit(logits, first, last)

    def _detect_languages(self, rows: list[_Row], states: int) -> None:
        """Fill in the language of the rows that have none, from a pass over the start token."""
        if all(row.language is not None for row in rows):
            return
        first = len(self._rows) - len(rows)
        self._lengths[first:] = 0
        start = torch.full((len(rows), 1), self.tokens.sot, device=self.device)
        hidden = self._pass(start, first, len(self._rows), 1, states)
        for row, logits in zip(rows, self.whisper.decoder.logits(hidden[:, 0]), strict=True):
            if row.language is None:
                among = sorted(_as_tuple(row.request.language) or self.languages)
                numbers = torch.tensor([self.tokens.languages[code] for code in among])
                probabilities = logits[numbers.to(self.device)].float().softmax(-1)
                best = int(probabilities.argmax())
                row.language = among[best]
                row.language_probability = float(probabilities[best])

    def _round(self) -> list[Hypothesis | Failure]:
        """One target pass over every row's anchor."""
        count = len(self._rows)
        for row in self._rows:
            row.rounds += 1
        longest = max(len(row.opening) + len(row.tokens) for row in self._rows)
        heard = max(self._window(row.request) for row in self._rows)
        hidden = self._pass(self._anchors[:count, None], 0, count, longest, heard)
        self._lengths[:count] += 1
        return self._emit(self.whisper.decoder.logits(hidden[:, 0]) + self._bias, 0, count)

    def _pass(self, tokens: Tensor, first: int, last: int, longest: int, heard: int) -> Tensor:
        """The target over new tokens of rows first … last - 1 → hidden [rows, n, width]."""
        reach = min(-(-longest // _REACH_STEP) * _REACH_STEP, self.cache.self_keys.shape[3])
        hidden: Tensor = self.whisper.decoder(
            tokens,
            self._lengths[first:last],
            self._states[first:last],
            self.cache.rows(first, last),
            reach,
            heard,
        )
        return hidden

    def _emit(self, logits: Tensor, first: int, last: int) -> list[Hypothesis | Failure]:
        """Choose one token for each of the rows, and free those that are finished."""
        tokens, logprobs = choose(
            logits,
            self._temperatures[first:last],
            self._seeds[first:last],
            self._lengths[first:last],
        )
        self._anchors[first:last] = tokens
        rows = self._rows[first:last]
        finished: list[Hypothesis | Failure] = []
        pairs = zip(tokens.tolist(), logprobs.tolist(), strict=True)
        for row, (token, logprob) in zip(rows, pairs, strict=True):
            row.tokens.append(token)
            row.logprob += logprob
            if not np.isfinite(logprob):
                message = "the model's output is not finite for this utterance"
                finished.append(Failure(row.request, message))
            elif token == self.tokens.eot or len(row.tokens) == row.budget:
                finished.append(self._hypothesis(row))
            else:
                continue
            self._free(self._rows.index(row))
        return finished

    def _hypothesis(self, row: _Row) -> Hypothesis:
        assert row.language is not None
        return Hypothesis(
            request=row.request,
            text=self.tokens.decode(row.tokens).strip(),
            tokens=tuple(row.tokens),
            language=row.language,
            language_probability=row.language_probability,
            no_speech=row.no_speech,
            mean_logprob=row.logprob / len(row.tokens),
            rounds=row.rounds,
        )

    def _free(self, index: int) -> None:
        """Forget row `index`; the last row takes its slot."""
        last = len(self._rows) - 1
        if index != last:
            self.cache.move(last, index)
            for tensor in (
                self._lengths,
                self._states,
                self._anchors,
                self._seeds,
                self._temperatures,
            ):
                tensor[index] = tensor[last]
            self._rows[index] = self._rows[last]
        self._rows.pop()


def load(name: str, *, device: str = "auto", threads: int = 0, slots: int = 4) -> Engine:
    """An engine for the model called `name`.

    device: "cpu", "cuda", or "auto" for CUDA where there is one. threads: of the CPU; 0 leaves
    torch's choice. Raises model.load.ModelError, also when the device or its memory is missing.
    """
    if threads:
        torch.set_num_threads(threads)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise loading.ModelError(
            "no CUDA device can be used here: start with device = cpu, or check the driver"
        )
    checkpoint = loading.load(name)
    try:
        return Engine(checkpoint, device=device, slots=slots)
    except torch.OutOfMemoryError as error:
        raise loading.ModelError(
            f"the model {name} with {slots} slots does not fit the device's memory: take fewer "
            f"slots or a smaller model ({str(error).splitlines()[0]})"
        ) from None


def _as_tuple(language: str | Sequence[str] | None) -> tuple[str, ...]:
    if language is None:
        return ()
    return (language,) if isinstance(language, str) else tuple(language)


def _fixed_language(request: Request, known: frozenset[str]) -> str | None:
    """The language, where there is nothing to detect."""
    wanted = _as_tuple(request.language) or tuple(known)
    return wanted[0] if len(wanted) == 1 else None
