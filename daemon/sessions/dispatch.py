"""One session's work for the recogniser: requests out, results back, and whether they are late."""

from collections.abc import Callable
from functools import partial

from daemon.recognition import request_builder
from daemon.recognition.request_queue import Result, Work
from daemon.recognition.scheduler import Scheduler
from daemon.sessions.lag import LagReporter
from model.engine.requests import Failure
from streaming.hypothesis import Hypothesis
from streaming.utterance import Decode


class Dispatcher:
    """The decodes of session `name`. decoded: takes each result, with the milliseconds that it took."""

    def __init__(
        self,
        name: str,
        scheduler: Scheduler,
        lag: LagReporter,
        decoded: Callable[[Decode, Hypothesis | Failure, float], None],
    ) -> None:
        self._name = name
        self._scheduler = scheduler
        self._lag = lag
        self._decoded = decoded
        # The newest hypothesis and its utterance: nearly always a right draft of the next one.
        self._newest: tuple[int, tuple[int, ...]] = -1, ()

    def submit(self, decode: Decode) -> None:
        """Queue the request for `decode`."""
        utterance, tokens = self._newest
        previous = tokens if utterance == decode.utterance else ()
        work = Work(
            session=self._name,
            utterance=decode.utterance,
            final=decode.final,
            early=decode.early,
            request=request_builder.request(decode.options, decode, draft_tokens=previous),
            done=partial(self._done, decode),
        )
        if decode.final:
            self._lag.submitted(decode.utterance)
        self._scheduler.submit(work)

    def cancel(self) -> None:
        """Forget all that was submitted."""
        self._scheduler.cancel(self._name)
        self._lag.cancel()

    def _done(self, decode: Decode, result: Result, milliseconds: float) -> None:
        """The scheduler's answer."""
        if decode.final:
            self._lag.finished(decode.utterance)
        if isinstance(result, Failure):
            self._decoded(decode, result, milliseconds)
            return
        if decode.utterance >= self._newest[0]:
            self._newest = decode.utterance, result.tokens
        said = request_builder.hypothesis(result, lead=decode.lead)
        self._decoded(decode, said, milliseconds)
