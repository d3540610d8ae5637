"""The benchmark's sections over recordings: engines, blocks, temperature, share.

Each returns figures as JSON holds them, of what was run and nothing else.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.bench.benchmark import ENGINES, IN_PREFILL, OTHER_TARGET, Benchmark, about
from model.bench.clips import Clip
from model.bench.contenders import Captiond, EngineUnderTest, greedy, simulated, truth_of
from model.bench.other_engines import Absent
from model.bench.paired_runs import (
    Contender,
    Track,
    Transcription,
    gain,
    rounds_of,
    token_mismatches,
    units_of,
)
from model.bench.word_errors import normalised, word_errors

BLOCKS = (1, 2, 4, 8)
TEMPERATURES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


def engines(run: Benchmark) -> dict[str, Any]:
    """Every engine at every batch size, against captiond's greedy decoding of the same batches."""
    batches = {}
    for batch in run.plan.batches:
        contenders, absent = _lined_up(run, batch)
        units = units_of(run.clips, batch)
        encoding, *tracks = run.run_paired([run.encoding, *contenders], units)
        base = next(track for track in tracks if track.name == "greedy")
        rows = [_row(run.clips, track, base, encoding) for track in tracks]
        rows += [{"engine": name, "absent": reason} for name, reason in absent.items()]
        batches[str(batch)] = {
            "units": len(units),
            "encode_seconds": encoding.seconds.round(5).tolist(),
            "rows": sorted(rows, key=lambda row: ENGINES.index(row["engine"])),
        }
    return {**about(run), "batches": batches}


def _lined_up(run: Benchmark, batch: int) -> tuple[list[Contender], dict[str, str]]:
    contenders, absent = [], {}
    # Whatever is asked for, greedy decoding runs beside it.
    for name in [n for n in ENGINES if n == "greedy" or n in run.plan.engines]:
        try:
            contenders.append(run.contender(name, batch))
        except Absent as reason:
            absent[name] = str(reason)
    return contenders, absent


def _row(clips: Sequence[Clip], track: Track, base: Track, encoding: Track) -> dict[str, Any]:
    row: dict[str, Any] = {"engine": track.name, **_speed(clips, track)}
    row["unit_seconds"] = track.seconds.round(5).tolist()
    row["gain"] = _gain(base.seconds, track.seconds)
    rounds = rounds_of(track.transcriptions, drafted_in_prefill=track.name in IN_PREFILL)
    if rounds is not None:
        row |= asdict(rounds)
    if rounds is not None and track.name not in OTHER_TARGET:
        row["decoder_gain"] = _gain(
            base.seconds - encoding.seconds, track.seconds - encoding.seconds
        )
    row |= _differences(track.transcriptions, base.transcriptions)
    row["unsteady"] = track.unsteady
    known = [(c.transcript, r.text) for c, r in zip(clips, track.transcriptions, strict=True)]
    pairs = [(wanted, got) for wanted, got in known if wanted is not None]
    if pairs:
        row["words"] = word_errors([w for w, _ in pairs], [g for _, g in pairs])
    return row


def _gain(slow: NDArray[np.float64], fast: NDArray[np.float64]) -> dict[str, Any] | None:
    found = gain(slow, fast)
    return None if found is None else asdict(found)


def _speed(clips: Sequence[Clip], track: Track) -> dict[str, float]:
    spent = float(track.seconds.sum())
    return {
        "seconds": spent,
        "audio_s_per_s": sum(clip.seconds for clip in clips) / spent,
        "tokens_per_s": sum(transcription.text_tokens for transcription in track.transcriptions)
        / spent,
    }


def _differences(ours: Sequence[Transcription], base: Sequence[Transcription]) -> dict[str, int]:
    """Token ids where the contender has captiond's, else normalised texts."""
    if all(transcription.exact for transcription in ours):
        return {"token_mismatches": token_mismatches(ours, base)}
    texts = [(normalised(a.text), normalised(b.text)) for a, b in zip(ours, base, strict=True)]
    return {"text_mismatches": sum(a != b for a, b in texts)}


def blocks(run: Benchmark) -> dict[str, Any]:
    """How many candidates of a round pay: the same drafter, of whose block only k are verified."""
    plan, language = run.plan, run.plan.language
    units = units_of(run.clips, 1)
    ways: dict[int, Contender] = {}
    for k in BLOCKS:
        if plan.drafter is None:
            way = simulated(
                run.engine_under_test, language, run.truth, plan.chance, min(k, plan.block)
            )
        else:
            way = Captiond("drafter", run.drafted_engine(block=k, adaptive=False), language)
        ways[k] = way
    field = [run.encoding, run.contender("greedy", 1), *ways.values()]
    encoding, base, *tracks = run.run_paired(field, units)
    rows = [
        {"k": k, **_row(run.clips, track, base, encoding)}
        for k, track in zip((0, *ways), (base, *tracks), strict=True)
    ]
    return {**about(run), "rows": rows}


def temperature(run: Benchmark) -> dict[str, Any]:
    """Drafting against plain sampling at the same temperature, with the same seeds.

    The pretended drafter is right at its rate at every temperature; a trained one is not.
    """
    units = units_of(run.clips, 1)
    drafted = None
    if run.plan.drafter is not None:
        drafted = run.drafted_engine(block=run.plan.block, adaptive=False)
    rows = []
    for heat in TEMPERATURES:
        run.tell(f"temperature {heat}")
        base, track = run.run_paired(_sampling(run, drafted, heat), units)
        rounds = rounds_of(track.transcriptions)
        assert rounds is not None
        rows.append(
            {
                "temperature": heat,
                "plain": _speed(run.clips, base),
                "drafted": _speed(run.clips, track),
                "gain": _gain(base.seconds, track.seconds),
                **asdict(rounds),
            }
        )
    return {**about(run), "rows": rows}


def _sampling(run: Benchmark, drafted: EngineUnderTest | None, heat: float) -> list[Captiond]:
    language = run.plan.language
    plain = greedy(run.engine_under_test, language, heat)
    if drafted is not None:
        return [plain, Captiond("drafter", drafted, language, temperature=heat)]
    # Whatever a text proposes, what is drawn for a seed is what plain sampling draws.
    truth = truth_of(plain, run.clips)
    return [
        plain,
        simulated(run.engine_under_test, language, truth, run.plan.chance, run.plan.block, heat),
    ]


def share(run: Benchmark) -> dict[str, Any]:
    """The encoder's part of the time, one clip at a time, by quartiles of length."""
    units = units_of(run.clips, 1)
    fast = "oracle" if run.plan.drafter is None else "drafter"
    field = [run.encoding, run.contender("greedy", 1), run.contender(fast, 1)]
    (encode, plain, drafted) = (track.seconds for track in run.run_paired(field, units))
    order = np.argsort([clip.seconds for clip in run.clips], kind="stable")
    rows = []
    for quarter in (part for part in np.array_split(order, 4) if len(part)):
        lengths = [run.clips[one].seconds for one in quarter]
        rows.append(
            {
                "clips": len(quarter),
                "shortest_s": min(lengths),
                "longest_s": max(lengths),
                "encode_s": float(encode[quarter].mean()),
                "greedy": float(encode[quarter].sum() / plain[quarter].sum()),
                fast: float(encode[quarter].sum() / drafted[quarter].sum()),
                "gain": _gain(plain[quarter], drafted[quarter]),
            }
        )
    return {**about(run), "drafted_by": fast, "rows": rows}


SECTIONS: dict[str, Callable[[Benchmark], dict[str, Any]]] = {
    "engines": engines,
    "blocks": blocks,
    "temperature": temperature,
    "share": share,
}
