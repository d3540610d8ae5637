"""A recogniser that follows a script, for tests of the daemon: no weights, no computation."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from daemon.monitoring.health import Health
from daemon.recognition.request_queue import Result, Work
from daemon.recognition.scheduler import Engine, SchedulerStats
from model.engine.requests import Failure, Request, RequestOutput
from model.whisper.alignment import WordTiming

PATIENCE = 240.0  # seconds: far more than anything here takes on a busy machine; a test that waits longer has failed


class ScriptedEngine:
    """Satisfies `daemon.recognition.scheduler.Engine`; every request is finished by the first round after it.

    text: what a request is heard as; by default its number of samples. `hold` makes rounds wait
    until `release`, and so does `held`; a held round takes in all that the engine was given before it.
    warm: whether warm-up ends at once. What `text` raises, the round does. `admitted` and `cancelled` are in order; `occupied` is what is running.
    """

    name = "scripted"
    drafter: str | None = None
    languages = frozenset({"de", "en"})

    def __init__(
        self,
        *,
        slots: int = 4,
        text: Callable[[Request], str] | None = None,
        held: bool = False,
        warm: bool = True,
    ) -> None:
        self.slots = slots
        self.admitted: list[Request] = []
        self.cancelled: list[Request] = []
        self.occupied: list[Request] = []
        self.most_occupied = 0
        self.rounds = 0
        self.threads: set[str] = set()
        self.entered = threading.Event()  # a round waits for `release`
        self._text = text or (lambda request: str(len(request.audio)))
        self._open = threading.Event()
        if not held:
            self.release()
        self._warm = threading.Event()
        if warm:
            self.finish_warm_up()

    def hold(self) -> None:
        """Let the next round wait."""
        self.entered.clear()
        self._open.clear()

    def release(self) -> None:
        """Let rounds go on."""
        self._open.set()

    def finish_warm_up(self) -> None:
        """Let the warm-up end."""
        self._warm.set()

    def check(self, request: Request) -> None:
        language = request.language
        wanted = {language} if isinstance(language, str) else set(language or ())
        if not wanted <= self.languages:
            raise ValueError(f"unknown language; known are {', '.join(sorted(self.languages))}")

    def admit(self, request: Request) -> None:
        self.check(request)
        if len(self.occupied) >= self.slots:
            raise RuntimeError("no free slot")
        self.admitted.append(request)
        self.occupied.append(request)
        self.most_occupied = max(self.most_occupied, len(self.occupied))

    def cancel(self, request: Request) -> None:
        self.cancelled.append(request)
        if request in self.occupied:
            self.occupied.remove(request)

    def step(self) -> list[Result]:
        self.rounds += 1
        self.threads.add(threading.current_thread().name)
        if not self._open.is_set():
            self.entered.set()
            assert self._open.wait(PATIENCE), "the round was never released"
        results = [self._result(request) for request in self.occupied]
        self.occupied = []
        return results

    def warm_up(self) -> None:
        assert self._warm.wait(PATIENCE), "the warm-up was never ended"

    def _result(self, request: Request) -> Result:
        text = self._text(request)
        if text == "unspeakable":
            return Failure(request, "the script says so")
        language = request.language if isinstance(request.language, str) else "en"
        return RequestOutput(
            request=request,
            text=text,
            tokens=(1, 2, 3),
            certain=len(text),
            language=language,
            language_probability=None,
            no_speech=0.1,
            mean_logprob=-0.2,
            rounds=3,
            timed=_words(text) if request.words else None,
        )


def _words(text: str) -> tuple[WordTiming, ...]:
    """A tenth of a second for each word, from 0.3 s on."""
    return tuple(
        WordTiming(word, 0.3 + 0.1 * place, 0.4 + 0.1 * place, 0.9)
        for place, word in enumerate(text.split())
    )


def _is_an_engine(engine: ScriptedEngine) -> Engine:
    """For mypy alone: the script has not drifted from what the daemon needs."""
    return engine


STATS = SchedulerStats(
    waiting=1, running=2, lag=0.25, turn=1.0, idle=3.0, superseded=4, finals=5, partials=6, failed=7
)


def health(**changes: Any) -> Health:
    """A daemon that is well, but for `changes`."""
    fields: dict[str, Any] = {
        "status": "ok",
        "stats": STATS,
        "sessions": 2,
        "parked": 0,
        "finishing": 0,
        "model": "base",
        "drafter": None,
        "uptime": 9.0,
        "full": False,
        "late": False,
    }
    return Health(**fields | changes)


def work(name: str, done: Callable[[Result, float], None] = lambda *_: None) -> Work:
    """Work from a name such as "a1f": session a, utterance 1, final (or "p", partial; "e", early; "x", of a file)."""
    session, utterance, kind = tuple(name)
    request = Request(np.zeros(1600, np.float32), prompt=name)
    final, early, file = kind in "fx", kind == "e", kind == "x"
    return Work(session, int(utterance), final, request, done, early=early, file=file)
