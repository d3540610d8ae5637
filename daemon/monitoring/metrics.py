"""What Prometheus sees of the daemon. The event loop alone touches it."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final as Constant

from prometheus_client import CollectorRegistry, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from daemon.monitoring.health import Health
from daemon.monitoring.totals import Totals
from streaming.protocol import SAMPLE_RATE, Final

CONTENT_TYPE: Constant = CONTENT_TYPE_LATEST

LATENCIES = (0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 40.0)  # seconds


class Metrics(Collector):
    """The histograms, and the registry that shows all. health: asked at each scrape."""

    def __init__(self, totals: Totals, health: Callable[[], Health]) -> None:
        self.totals = totals
        self._health = health
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)  # memory, CPU time and descriptors
        self._latency = Histogram(
            "captiond_decode_latency_seconds",
            "From the wish for a hypothesis to its text, waiting included",
            ["kind"],
            buckets=LATENCIES,
            registry=self._registry,
        )
        self._lag = Histogram(
            "captiond_lag_seconds",
            "Age of the oldest unfinished final, at each final",
            buckets=LATENCIES,
            registry=self._registry,
        )

    def partial(self, milliseconds: float) -> None:
        """A partial has come."""
        self._latency.labels("partial").observe(milliseconds / 1000)

    def final(self, final: Final) -> None:
        """A final is on its way to its client."""
        figures = final.decode
        self._latency.labels("final").observe(figures.ms / 1000)
        self._lag.observe(self._health().facts.lag)
        self.totals.final(figures)

    def text(self) -> bytes:
        """All of it in Prometheus' format."""
        return generate_latest(self._registry)

    def describe(self) -> Iterable[Metric]:
        """Nothing to check against at registration: the names below are ours alone."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """The plain figures. For the registry."""
        yield from self._gauges()
        yield from self._counters()

    def _gauges(self) -> Iterator[Metric]:
        health = self._health()
        facts = health.facts
        serves = {"model": health.model or "", "drafter": health.drafter or ""}
        yield InfoMetricFamily("captiond", "What decodes; empty while it loads", serves)
        for name, text, value in (
            ("captiond_live", "1 unless decoding has stalled", health.live),
            ("captiond_ready", "1 while new sessions are welcome", health.ready),
            ("captiond_sessions", "Sessions with a client, or about to begin", health.sessions),
            ("captiond_sessions_parked", "Sessions whose client is awaited back", health.parked),
            (
                "captiond_sessions_finishing",
                "Sessions that are over but for their transcripts",
                health.finishing,
            ),
            ("captiond_queue_waiting", "Utterances that wait for the model", facts.waiting),
            ("captiond_queue_running", "Utterances that the model works on", facts.running),
            ("captiond_oldest_final_seconds", "Age of the oldest unfinished final", facts.lag),
            ("captiond_no_progress_seconds", "Since decoding last got on, with work", facts.idle),
            ("captiond_alpha", "Share of drafted tokens accepted", self.totals.alpha),
            ("captiond_tau", "Tokens emitted in a pass of the model", self.totals.tau),
        ):
            yield GaugeMetricFamily(name, text, value=float(value))

    def _counters(self) -> Iterator[Metric]:
        totals, facts = self.totals, self._health().facts
        audio = totals.audio_samples / SAMPLE_RATE
        for name, text, value in (
            ("captiond_sessions_started", "Sessions begun", totals.started),
            ("captiond_sessions_resumed", "Returns of a lost client", totals.resumed),
            ("captiond_audio_seconds", "Audio taken", audio),
            ("captiond_finals", "Finals sent", totals.finals),
            ("captiond_partials", "Partials decoded, early finals included", facts.partials),
            ("captiond_shed", "Partials left out for newer ones or for finals", facts.superseded),
            ("captiond_failed", "Utterances that could not be decoded", facts.failed),
            ("captiond_rounds", "Passes of the model, of finals", totals.rounds),
            ("captiond_tokens_proposed", "Tokens drafted, of finals", totals.proposed),
            ("captiond_tokens_accepted", "Drafted tokens accepted, of finals", totals.accepted),
            ("captiond_tokens_reused", "Of them from the partial before", totals.reused),
            ("captiond_transcript_errors", "Writes that failed", totals.transcript_errors),
        ):
            yield CounterMetricFamily(name, text, value=float(value))
        yield _labelled("captiond_refused", "Clients not let in", "reason", totals.refused)
        yield _labelled("captiond_connections_ended", "Connections over", "code", totals.ended)


def _labelled(name: str, text: str, label: str, values: Counter[str]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for value, count in sorted(values.items()):
        family.add_metric([value], float(count))
    return family
