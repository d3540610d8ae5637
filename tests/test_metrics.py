import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families
from websockets.exceptions import InvalidStatus

from daemon.monitoring.metrics import Metrics, total
from streaming.protocol import DecodeFigures, Final, Flush, Partial, Start
from tests.support.fakes import ScriptedEngine, health
from tests.support.wire import calling, get, half_a_sentence, sentence, serving, talk, until


def parsed(text: str) -> dict[str, float]:
    """Every sample by name and labels."""
    return {
        sample.name + "".join(f" {k}={v}" for k, v in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def final(rounds: int, proposed: int, accepted: int, reused: int) -> Final:
    figures = DecodeFigures(
        rounds=rounds, proposed=proposed, accepted=accepted, reused=reused, ms=1.0
    )
    return Final(
        utterance=0,
        start=0.0,
        end=1.0,
        text="",
        language="en",
        no_speech=0.0,
        mean_logprob=0.0,
        decode=figures,
    )


def test_shares_are_nought_before_anything_was_decoded() -> None:
    metrics = Metrics(health)
    assert (metrics.alpha, metrics.tau) == (0.0, 0.0)


def test_figures_add_up() -> None:
    """Each pass emits what it accepts and one token more."""
    metrics = Metrics(health)
    metrics.final(final(2, 10, 6, 4))
    metrics.final(final(2, 10, 2, 0))
    metrics.final(msgspec.structs.replace(final(0, 0, 0, 0), voiced=3.0, covered=1.75))
    counters = (metrics.rounds, metrics.proposed, metrics.accepted, metrics.reused)
    assert [total(counter) for counter in counters] == [4, 20, 8, 4]
    assert total(metrics.uncovered) == 1.25
    assert metrics.counts() == {
        "finals": 3,
        "started": 0,
        "resumed": 0,
        "refused": 0,
        "audio_seconds": 0.0,
        "alpha": 0.4,
        "tau": 3.0,
    }


def test_a_count_is_that_of_all_labels() -> None:
    metrics = Metrics(health)
    for reason in ("full", "token", "full"):
        metrics.refused.labels(reason).inc()
    assert total(metrics.refused) == 3
    assert total(metrics.refused.labels("full")) == 2


def test_what_the_scheduler_counts_is_shown_as_it_is() -> None:
    """At each scrape anew; and no counter tells when it was made."""
    metrics = Metrics(health)
    for _ in range(2):
        text = metrics.text().decode()
        figures = parsed(text)
        names = ("partials", "shed", "failed")
        assert [figures[f"captiond_{name}_total"] for name in names] == [6, 4, 7]
    assert "captiond_finals_created" not in text


async def test_prometheus_sees_what_happened() -> None:
    async with serving(ScriptedEngine(text=lambda _: "two words"), max_sessions=1) as daemon:
        async with calling(daemon) as client:
            await client.say(Start(language="en"), half_a_sentence())
            await client.receive_until(Partial)
            with pytest.raises(InvalidStatus, match="HTTP 503"):
                await talk(daemon)
            during = parsed((await get(daemon, "/metrics"))[2])
            await client.finish(Flush())
        await until(lambda: not daemon.health.sessions)
        finals = await talk(daemon, Start(partials=False))
        await until(lambda: not daemon.health.sessions)
        status, head, text = await get(daemon, "/metrics")
    after = parsed(text)
    assert status == 200
    assert "text/plain; version=" in head
    assert (during["captiond_sessions"], after["captiond_sessions"]) == (1, 0)
    assert after["captiond_info drafter= model=scripted"] == 1
    assert (during["captiond_ready"], after["captiond_refused_total reason=full"]) == (0, 1)
    assert after["captiond_live"] == after["captiond_ready"] == 1
    assert after["captiond_sessions_started_total"] == 2
    assert after["captiond_connections_ended_total code=1000"] == 2
    assert after["captiond_audio_seconds_total"] == pytest.approx(
        len(half_a_sentence() + sentence()) / 32_000
    )
    assert after["captiond_finals_total"] == len(finals) + 1
    assert after["captiond_decode_latency_seconds_count kind=final"] == len(finals) + 1
    assert after["captiond_decode_latency_seconds_count kind=partial"] >= 1
    assert after["captiond_lag_seconds_count"] == len(finals) + 1
    assert after["captiond_rounds_total"] == 3 * (len(finals) + 1), "what the script says"
    assert after["captiond_tau"] == 1.0
    assert after["process_resident_memory_bytes"] > 1e6
