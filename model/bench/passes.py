"""Times of each pass on this machine, by rows and tokens: the section `passes`.

Times depend on shapes alone: weights may be random, and the audio is silence. Passes of decoder and drafter
are captured on devices that capture them, as in decoding.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from model.checkpoints.load import Checkpoint
from model.drafting.parallel import Architecture, ParallelDrafter, SlotDrafter, spread_aux_layers
from model.engine.engine import Engine
from model.engine.graphs import Graphs, PhaseInputs
from model.engine.runner import Runner
from model.whisper.measure import median_seconds
from model.whisper.mel import SAMPLE_RATE, SAMPLES_PER_STATE, LogMel
from model.whisper.quantised import Precision
from model.whisper.tokens import TokenTable
from model.whisper.window import WindowKind

ROWS = (1, 4, 8)
TOKENS = (1, 2, 5, 9, 17)
CLIPS_S = (1, 4, 7, 15, 30)  # audio to encode, each in its window
PAST = 32  # cached positions before the new tokens: the middle of a typical utterance
KV_LEN = 64
CUT_VOCABULARY = 4096  # ids of the smaller draft vocabulary
SHORT_PASS_REPEATS = 7  # repeats of a decoder's pass for one of the longer encoder's
_DRAFTER_LAYERS, _DRAFTER_BLOCK = 2, 8

Ms = Callable[[Callable[[], object]], float]


@dataclass(frozen=True, slots=True)
class Tokens(PhaseInputs):
    """New tokens [rows, n] int64 of the sequences in slots 0, 1, 2 …"""

    tokens: Tensor


def passes(
    checkpoint: Checkpoint,
    *,
    device: str,
    repeats: int,
    warm_ups: int,
    tell: Callable[[str], None],
    precision: Precision = "float32",
    window: WindowKind = "speech",
) -> dict[str, Any]:
    """Medians in ms. Raises torch.OutOfMemoryError where eight slots do not fit."""
    engine = Engine(checkpoint, device=device, slots=max(ROWS), precision=precision, window=window)

    def ms(work: Callable[[], object], times: int = 1) -> float:
        return 1e3 * median_seconds(work, repeats=repeats * times, warm_ups=warm_ups)

    short = partial(ms, times=SHORT_PASS_REPEATS)
    tell(f"passes of {checkpoint.name}")
    with torch.inference_mode():
        return {
            "repeats": repeats,
            "warm_ups": warm_ups,
            "precision": precision,
            "window": window,
            "encode_ms": _encode(engine.runner, ms),
            "target_ms": _target(engine.runner, short),
            "head_ms": _head(engine.runner, short),
            "draft_ms": _draft(engine.runner, engine.tokens, short),
        }


def _encode(runner: Runner, ms: Ms) -> list[dict[str, float]]:
    """Front end, encoder, and cross-attention keys and values, for each window of clips.

    window_s: what its states would be, all computed one by one.
    """
    most = runner.window * SAMPLES_PER_STATE
    fitting = [runner.windows.fitting(min(s * SAMPLE_RATE, most)) for s in CLIPS_S]
    cache = runner.state.cache.rows(0, 1)
    front_end = LogMel(runner.whisper.config.num_mel_bins).to(cache.cross_keys.device)
    rows = []
    for window in dict.fromkeys(fitting):
        audio = np.zeros(window.own * SAMPLES_PER_STATE, np.float32)
        mel = front_end([audio], window.convolved).to(runner.whisper.decoder.positions.dtype)
        encoded = runner.whisper.encoder(mel, window)
        rows.append(
            {
                "window_s": window.states * SAMPLES_PER_STATE / SAMPLE_RATE,
                "mel": ms(partial(front_end, [audio], window.convolved)),
                "encoder": ms(partial(runner.whisper.encoder, mel, window)),
                "cross": ms(partial(runner.whisper.decoder.write_cross, encoded, cache)),
            }
        )
    return rows


def _mid_utterance(runner: Runner, rows: int) -> None:
    """Give every row the cached positions of a typical utterance's middle."""
    runner.state.lengths[:rows] = PAST
    runner.state.audio_len[:rows] = runner.window
    runner.state.weights[:rows] = 0.0


def _target(runner: Runner, ms: Ms) -> list[dict[str, Any]]:
    """Passes of the target, output head included, by rows and new tokens."""
    state, whisper = runner.state, runner.whisper
    graphs = Graphs(state.lengths.device)
    graphs.begin()

    def forward(inputs: Tokens) -> Tensor:
        tokens, rows = inputs.tokens, len(inputs.tokens)
        cache, encoder_lens = state.cache.rows(0, rows), (runner.window,) * rows
        hidden, _ = whisper.decoder(
            tokens, state.lengths[:rows], state.weights[:rows], cache, KV_LEN, encoder_lens
        )
        logits: Tensor = whisper.decoder.logits(hidden)
        return logits

    table = []
    for rows in ROWS:
        _mid_utterance(runner, rows)
        times = {}
        for count in TOKENS:
            tokens = torch.zeros(rows, count, dtype=torch.int64, device=state.lengths.device)
            times[str(count)] = ms(partial(graphs.call, forward, Tokens(tokens)))
        table.append({"rows": rows, "tokens": times, "nine_to_one": times["9"] / times["1"]})
    return table


def _head(runner: Runner, ms: Ms) -> dict[str, float]:
    """The output head alone, by new tokens of one row."""
    decoder = runner.whisper.decoder
    times = {}
    for count in TOKENS:
        hidden = decoder.positions.new_zeros(1, count, decoder.positions.shape[1])
        times[str(count)] = ms(partial(decoder.logits, hidden))
    return times


def _draft(runner: Runner, tokens: TokenTable, ms: Ms) -> list[dict[str, Any]]:
    """Passes of an untrained parallel drafter of two layers, with the whole and a cut vocabulary."""
    size = tokens.vocabulary
    table = []
    for vocabulary in (None, tuple(range(min(CUT_VOCABULARY, size)))):
        drafter = _fresh_drafter(runner, tokens, vocabulary)
        graphs = Graphs(runner.state.lengths.device)
        graphs.begin()

        def forward(inputs: Tokens, *, drafter: SlotDrafter = drafter) -> Tensor:
            named = []

            def choose(logits: Tensor, ids: Tensor | None, at: int) -> Tensor:  # noqa: ARG001
                best = logits.argmax(-1)
                named.append(best if ids is None else ids[best])
                return named[-1]

            rows = len(inputs.tokens)
            drafter.draft(runner.state, rows, drafter.block, KV_LEN, runner.window, choose)
            return torch.cat(named, 1)

        times = {}
        for rows in ROWS:
            _mid_utterance(runner, rows)
            anchors = runner.state.anchors[:rows]
            times[str(rows)] = ms(partial(graphs.call, forward, Tokens(anchors[:, None])))
        table.append({"vocabulary": size if vocabulary is None else len(vocabulary), "rows": times})
    return table


def _fresh_drafter(
    runner: Runner, tokens: TokenTable, vocabulary: tuple[int, ...] | None
) -> SlotDrafter:
    device, config = runner.state.lengths.device, runner.whisper.config
    aux_layers = spread_aux_layers(config.decoder_layers)
    network = ParallelDrafter(
        config, Architecture(_DRAFTER_LAYERS, _DRAFTER_BLOCK, aux_layers, vocabulary)
    )
    bias = tokens.bias(first=False).to(device)
    packed = device.type == "cpu"
    return SlotDrafter(network, runner.whisper, bias, max(ROWS), packed=packed)
