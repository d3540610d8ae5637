import asyncio

from prometheus_client.parser import text_string_to_metric_families

from streaming.protocol import Final, Flush, Partial, Start, Stop
from tests.support.fakes import ScriptedEngine
from tests.support.wire import (
    FRAME,
    calling,
    frames,
    get,
    half_a_sentence,
    sentence,
    serving,
    talk,
    until,
)


def parsed(text: str) -> dict[str, float]:
    """Every sample by name and labels."""
    return {
        sample.name + "".join(f" {k}={v}" for k, v in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_prometheus_sees_what_happened() -> None:
    """One session with a partial and finals, and one client that was refused."""
    async with serving(ScriptedEngine(text=lambda _: "two words"), max_sessions=1) as daemon:
        async with calling(daemon) as client:
            await client.say(Start(language="en"), half_a_sentence())
            await client.hear_until(Partial)
            during = parsed((await get(daemon, "/metrics"))[2])
            await client.say(Flush(), Stop())
            await client.hear_all()
        await until(lambda: not daemon.admission.admitted)
        finals = await talk(daemon, Start(partials=False))
        await until(lambda: not daemon.admission.admitted)
        status, head, text = await get(daemon, "/metrics")
    after = parsed(text)
    assert status == 200
    assert "text/plain; version=" in head
    assert (during["captiond_sessions"], after["captiond_sessions"]) == (1, 0)
    assert after["captiond_info drafter= model=scripted"] == 1
    assert after["captiond_live"] == after["captiond_ready"] == 1
    assert after["captiond_sessions_started_total"] == 2
    assert after["captiond_connections_ended_total code=1000"] == 2
    assert after["captiond_audio_seconds_total"] == len(half_a_sentence() + sentence()) / 32_000
    assert after["captiond_finals_total"] == len(finals) + 1
    assert after["captiond_decode_latency_seconds_count kind=final"] == len(finals) + 1
    assert after["captiond_decode_latency_seconds_count kind=partial"] >= 1
    assert after["captiond_lag_seconds_count"] == len(finals) + 1
    assert after["captiond_rounds_total"] == 3 * (len(finals) + 1), "what the script says"
    assert after["captiond_tau"] == 1.0
    assert after["process_resident_memory_bytes"] > 1e6


async def test_a_final_that_was_decoded_early_counts_as_one() -> None:
    """However it came about: a client got it."""
    async with serving(ScriptedEngine()) as daemon, calling(daemon) as client:
        await client.say(Start(partials=False))
        for frame in frames(sentence(), FRAME):
            await client.say(frame)
        await client.say(Stop())
        await client.hear_all()
        finals = client.all(Final)
        figures = parsed((await get(daemon, "/metrics"))[2])
        assert figures["captiond_finals_total"] == len(finals) > 0


async def test_refusals_are_counted_by_their_reason() -> None:
    async with serving(ScriptedEngine(), max_sessions=1) as daemon, calling(daemon):
        (outcome,) = await asyncio.gather(talk(daemon), return_exceptions=True)
        assert "HTTP 503" in str(outcome)
        figures = parsed((await get(daemon, "/metrics"))[2])
        assert figures["captiond_refused_total reason=full"] == 1
        assert figures["captiond_ready"] == 0
