"""Counters, and their form for Prometheus. Any thread may count.

α is the share of draft tokens that were accepted; τ, the tokens of a pass, is (accepted + passes) /
passes: each pass emits the accepted tokens and one of the target's own.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final as Constant

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from daemon.monitoring.health import Health
from daemon.recognition.scheduler import SchedulerStats
from streaming.protocol import SAMPLE_RATE, Final

CONTENT_TYPE: Constant = CONTENT_TYPE_LATEST

LATENCIES = (0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 40.0)  # seconds

GAUGES: Constant[tuple[tuple[str, str, Callable[[Health], float]], ...]] = (
    ("live", "1 unless decoding has stalled", lambda health: health.live),
    ("ready", "1 while new sessions are welcome", lambda health: health.ready),
    ("sessions", "Sessions with a client, or about to begin", lambda health: health.sessions),
    ("sessions_parked", "Sessions whose client is awaited back", lambda health: health.parked),
    (
        "sessions_finishing",
        "Sessions that are over but for their transcripts",
        lambda health: health.finishing,
    ),
    ("queue_waiting", "Utterances that wait for the model", lambda health: health.stats.waiting),
    ("queue_running", "Utterances that the model works on", lambda health: health.stats.running),
    ("oldest_final_seconds", "Age of the oldest unfinished final", lambda health: health.stats.lag),
    (
        "no_progress_seconds",
        "Since decoding last got on, with work",
        lambda health: health.stats.idle,
    ),
)
# The scheduler counts these in its thread; each scrape takes them over.
SCHEDULED: Constant[tuple[tuple[str, str, Callable[[SchedulerStats], float]], ...]] = (
    ("partials", "Partials decoded, early finals included", lambda stats: stats.partials),
    ("shed", "Partials left out for newer ones or for finals", lambda stats: stats.superseded),
    ("failed", "Utterances that could not be decoded", lambda stats: stats.failed),
)
DIALECT_COUNTERS: Constant = {
    "sessions": "Sessions begun, by wire protocol",
    "finals": "Finals told, by wire protocol",
    "errors": "Errors of clients, by wire protocol",
}


@dataclass(frozen=True, slots=True)
class DialectCounts:
    """What is counted of one dialect."""

    sessions: Counter
    finals: Counter
    errors: Counter


class Metrics(Collector):
    """The counters, and the registry that shows all. health: called at each scrape."""

    def __init__(self, health: Callable[[], Health]) -> None:
        self._health = health
        self._registry = registry = CollectorRegistry()
        counter = partial(Counter, namespace="captiond", registry=registry)
        gauge = partial(Gauge, namespace="captiond", registry=registry)
        histogram = partial(Histogram, namespace="captiond", buckets=LATENCIES, registry=registry)
        self.started = counter("sessions_started", "Sessions begun")
        self.resumed = counter("sessions_resumed", "Returns of a lost client")
        self.audio = counter("audio_seconds", "Audio taken")
        self.finals = counter("finals", "Finals sent")
        self.uncovered = counter("uncovered_seconds", "Speech without words, of finals")
        self.rounds = counter("rounds", "Passes of the model, of finals")
        self.proposed = counter("tokens_proposed", "Tokens drafted, of finals")
        self.accepted = counter("tokens_accepted", "Drafted tokens accepted, of finals")
        self.reused = counter("tokens_reused", "Of them from the partial before")
        self.transcript_errors = counter("transcript_errors", "Writes that failed")
        self.refused = counter("refused", "Clients not let in", ["reason"])
        self.ended = counter("connections_ended", "Connections over", ["code"])
        self._dialects = {
            name: counter(f"dialect_{name}", text, ["dialect"])
            for name, text in DIALECT_COUNTERS.items()
        }
        self.files = counter("files", "Recordings over HTTP, by how they ended", ["outcome"])
        self.files_running = gauge("files_running", "Recordings that are being transcribed")
        self.files_waiting = gauge("files_waiting", "Recordings that wait for their turn")
        self.file_audio = counter("file_audio_seconds", "Audio of recordings transcribed")
        self._scheduled = [(counter(name, text), value) for name, text, value in SCHEDULED]
        self._gauges = [(gauge(name, text), value) for name, text, value in GAUGES]
        gauge("alpha", "Share of drafted tokens accepted").set_function(lambda: self.alpha)
        gauge("tau", "Tokens emitted in a pass of the model").set_function(lambda: self.tau)
        self._serves = Info("captiond", "What decodes; empty while it loads", registry=registry)
        self._latency = histogram(
            "decode_latency_seconds",
            "From the wish for a hypothesis to its text, waiting included",
            ["kind"],
        )
        self._lag = histogram("lag_seconds", "Age of the oldest unfinished final, at each final")
        ProcessCollector(registry=registry)  # memory, CPU time and descriptors

    @property
    def alpha(self) -> float:
        """The share of draft tokens that were accepted; 0 where there was none."""
        proposed = total(self.proposed)
        return total(self.accepted) / proposed if proposed else 0.0

    @property
    def tau(self) -> float:
        """The tokens of a pass; 0 where there was none."""
        rounds = total(self.rounds)
        return (total(self.accepted) + rounds) / rounds if rounds else 0.0

    def partial(self, milliseconds: float) -> None:
        """Count a partial."""
        self._latency.labels("partial").observe(milliseconds / 1000)

    def final(self, final: Final) -> None:
        """Count a final, decoded at its end or early, when its silence began."""
        figures = final.decode
        self._latency.labels("final").observe(figures.ms / 1000)
        self._lag.observe(self._health().stats.lag)
        self.finals.inc()
        self.uncovered.inc(max(final.voiced - final.covered, 0.0))
        self.rounds.inc(figures.rounds)
        self.proposed.inc(figures.proposed)
        self.accepted.inc(figures.accepted)
        self.reused.inc(figures.reused)

    def of_dialect(self, name: str) -> "DialectCounts":
        """The counters of one dialect."""
        return DialectCounts(**{key: one.labels(name) for key, one in self._dialects.items()})

    def counts(self) -> dict[str, float]:
        """The counters of /healthz."""
        return {
            "finals": int(total(self.finals)),
            "started": int(total(self.started)),
            "resumed": int(total(self.resumed)),
            "refused": int(total(self.refused)),
            "audio_seconds": round(total(self.audio), 1),
            "alpha": round(self.alpha, 3),
            "tau": round(self.tau, 2),
        }

    def text(self) -> bytes:
        """All metrics in Prometheus' format."""
        health = self._health()
        for gauge, value in self._gauges:
            gauge.set(value(health))
        for counter, count in self._scheduled:
            counter.reset()
            counter.inc(count(health.stats))
        self._serves.info({"model": health.model or "", "drafter": health.drafter or ""})
        return generate_latest(self)

    def collect(self) -> Iterator[Metric]:
        """All metrics but the counters' creation times: they are the daemon's start."""
        for metric in self._registry.collect():
            if metric.type == "counter":
                metric.samples = [one for one in metric.samples if one.name.endswith("_total")]
            yield metric


class AudioMeter:
    """Counts one session's audio."""

    def __init__(self, metrics: Metrics) -> None:
        self._audio = metrics.audio
        self._counted = 0  # samples

    def reached(self, received: int) -> None:
        """So many samples have come. It may be fewer than before: what seemed sound was a header."""
        received = max(received, self._counted)
        self._audio.inc((received - self._counted) / SAMPLE_RATE)
        self._counted = received


def total(counter: Counter) -> float:
    """The counter's sum over its labels."""
    samples = (sample for metric in counter.collect() for sample in metric.samples)
    return sum(sample.value for sample in samples if sample.name.endswith("_total"))
