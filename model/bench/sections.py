"""The benchmark's sections over recordings: engines, blocks, temperature, share.

Each returns its figures as plain JSON.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.bench.benchmark import DRAFTED_IN_PREFILL, ENGINES, OTHER_TARGET, Benchmark, conditions
from model.bench.clips import Clip
from model.bench.contenders import Captiond, EngineUnderTest, greedy, reference_tokens, simulated
from model.bench.other_engines import Unavailable
from model.bench.paired_runs import (
    Contender,
    Measurement,
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
    """Every engine at every batch size, relative to captiond's greedy decoding of the same batches."""
    batches = {}
    for batch in run.plan.batches:
        contenders, absent = _contenders(run, batch)
        units = units_of(run.clips, batch)
        encoder, *measurements = run.run_paired([run.encoder_only, *contenders], units)
        base = next(measurement for measurement in measurements if measurement.name == "greedy")
        rows = [_row(run.clips, measurement, base, encoder) for measurement in measurements]
        rows += [{"engine": name, "absent": reason} for name, reason in absent.items()]
        batches[str(batch)] = {
            "units": len(units),
            "encode_seconds": encoder.seconds.round(5).tolist(),
            "rows": sorted(rows, key=lambda row: ENGINES.index(row["engine"])),
        }
    return {**conditions(run), "batches": batches}


def _contenders(run: Benchmark, batch: int) -> tuple[list[Contender], dict[str, str]]:
    contenders, absent = [], {}
    # Greedy decoding always runs.
    for name in [n for n in ENGINES if n == "greedy" or n in run.plan.engines]:
        try:
            contenders.append(run.contender(name, batch))
        except Unavailable as reason:
            absent[name] = str(reason)
    return contenders, absent


def _row(
    clips: Sequence[Clip], measurement: Measurement, base: Measurement, encoder: Measurement
) -> dict[str, Any]:
    row: dict[str, Any] = {"engine": measurement.name, **_speed(clips, measurement)}
    row["unit_seconds"] = measurement.seconds.round(5).tolist()
    row["gain"] = _gain(base.seconds, measurement.seconds)
    rounds = rounds_of(
        measurement.transcriptions, drafted_in_prefill=measurement.name in DRAFTED_IN_PREFILL
    )
    if rounds is not None:
        row |= asdict(rounds)
    if rounds is not None and measurement.name not in OTHER_TARGET:
        row["decoder_gain"] = _gain(
            base.seconds - encoder.seconds, measurement.seconds - encoder.seconds
        )
    row |= _differences(measurement.transcriptions, base.transcriptions)
    row["unsteady"] = measurement.unsteady
    known = [(c.transcript, r.text) for c, r in zip(clips, measurement.transcriptions, strict=True)]
    pairs = [(wanted, got) for wanted, got in known if wanted is not None]
    if pairs:
        row["words"] = word_errors([w for w, _ in pairs], [g for _, g in pairs])
    return row


def _gain(slow: NDArray[np.float64], fast: NDArray[np.float64]) -> dict[str, Any] | None:
    found = gain(slow, fast)
    return None if found is None else asdict(found)


def _speed(clips: Sequence[Clip], measurement: Measurement) -> dict[str, float]:
    spent = float(measurement.seconds.sum())
    return {
        "seconds": spent,
        "audio_s_per_s": sum(clip.seconds for clip in clips) / spent,
        "tokens_per_s": sum(
            transcription.text_tokens for transcription in measurement.transcriptions
        )
        / spent,
    }


def _differences(ours: Sequence[Transcription], base: Sequence[Transcription]) -> dict[str, int]:
    """Clips with other token ids, for contenders with captiond's ids, else with other normalised texts."""
    if all(transcription.exact for transcription in ours):
        return {"token_mismatches": token_mismatches(ours, base)}
    texts = [(normalised(a.text), normalised(b.text)) for a, b in zip(ours, base, strict=True)]
    return {"text_mismatches": sum(a != b for a, b in texts)}


def blocks(run: Benchmark) -> dict[str, Any]:
    """Draft lengths: the same drafter, with the first k candidates of each block verified."""
    plan, language = run.plan, run.plan.language
    units = units_of(run.clips, 1)
    by_length: dict[int, Contender] = {}
    for k in BLOCKS:
        if plan.drafter is None:
            by_length[k] = simulated(
                run.engine_under_test, language, run.reference, plan.chance, min(k, plan.block)
            )
        else:
            engine = run.drafted_engine(block=k, adaptive=False)
            by_length[k] = Captiond("drafter", engine, language)
    contenders = [run.encoder_only, run.contender("greedy", 1), *by_length.values()]
    encoder, base, *measurements = run.run_paired(contenders, units)
    rows = [
        {"k": k, **_row(run.clips, measurement, base, encoder)}
        for k, measurement in zip((0, *by_length), (base, *measurements), strict=True)
    ]
    return {**conditions(run), "rows": rows}


def temperature(run: Benchmark) -> dict[str, Any]:
    """Drafting relative to plain sampling at the same temperature, with the same seeds.

    The simulated drafter keeps its rate at every temperature; a trained one does not.
    """
    units = units_of(run.clips, 1)
    drafted = None
    if run.plan.drafter is not None:
        drafted = run.drafted_engine(block=run.plan.block, adaptive=False)
    rows = []
    for heat in TEMPERATURES:
        run.tell(f"temperature {heat}")
        base, measurement = run.run_paired(_sampling(run, drafted, heat), units)
        rounds = rounds_of(measurement.transcriptions)
        assert rounds is not None
        rows.append(
            {
                "temperature": heat,
                "plain": _speed(run.clips, base),
                "drafted": _speed(run.clips, measurement),
                "gain": _gain(base.seconds, measurement.seconds),
                **asdict(rounds),
            }
        )
    return {**conditions(run), "rows": rows}


def _sampling(run: Benchmark, drafted: EngineUnderTest | None, heat: float) -> list[Captiond]:
    language = run.plan.language
    plain = greedy(run.engine_under_test, language, heat)
    if drafted is not None:
        return [plain, Captiond("drafter", drafted, language, temperature=heat)]
    # For a seed, sampling draws the same tokens with and without proposals.
    reference = reference_tokens(plain, run.clips)
    return [
        plain,
        simulated(
            run.engine_under_test, language, reference, run.plan.chance, run.plan.block, heat
        ),
    ]


def share(run: Benchmark) -> dict[str, Any]:
    """The encoder's part of the time, one clip at a time, by quartiles of length."""
    units = units_of(run.clips, 1)
    fast = "oracle" if run.plan.drafter is None else "drafter"
    contenders = [run.encoder_only, run.contender("greedy", 1), run.contender(fast, 1)]
    encode, plain, drafted = (one.seconds for one in run.run_paired(contenders, units))
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
    return {**conditions(run), "drafted_by": fast, "rows": rows}


SECTIONS: dict[str, Callable[[Benchmark], dict[str, Any]]] = {
    "engines": engines,
    "blocks": blocks,
    "temperature": temperature,
    "share": share,
}
