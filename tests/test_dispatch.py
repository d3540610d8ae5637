from typing import cast

from daemon.recognition.request_queue import Work
from daemon.recognition.scheduler import Scheduler
from daemon.sessions.dispatch import Dispatcher
from daemon.sessions.lag import LagReporter
from model.engine.requests import Failure
from streaming.hypothesis import Hypothesis
from streaming.utterance import Decode
from tests.support.fakes import ScriptedEngine
from tests.support.streams import RATE, quiet


class Works:
    """In place of the scheduler: notes what is submitted and cancelled."""

    def __init__(self) -> None:
        self.submitted: list[Work] = []
        self.cancelled: list[str] = []

    def submit(self, work: Work) -> None:
        self.submitted.append(work)

    def cancel(self, session: str) -> None:
        self.cancelled.append(session)


def decode(utterance: int, *, final: bool) -> Decode:
    return Decode(utterance, 0, RATE, quiet(1), final=final, language="en")


async def test_the_last_hypothesis_of_an_utterance_is_the_draft_of_its_next() -> None:
    """A final is awaited from its submission to its result."""
    works, results = Works(), list[tuple[Decode, Hypothesis | Failure, float]]()
    lag = LagReporter(lambda: None, sheds_partials=True)
    dispatcher = Dispatcher(
        "s1", cast(Scheduler, works), lag, lambda *result: results.append(result)
    )
    engine = ScriptedEngine(text=lambda _: "two words")
    for one in (decode(0, final=False), decode(0, final=True), decode(1, final=True)):
        dispatcher.submit(one)
        work = works.submitted[-1]
        assert lag.outstanding == one.final
        assert (work.session, work.utterance, work.final) == ("s1", one.utterance, one.final)
        engine.admit(work.request)
        (result,) = engine.step()
        work.done(result, 5.0)
        answered, said, took = results[-1]
        assert (answered, took) == (one, 5.0)
        assert isinstance(said, Hypothesis)
        assert said.text == "two words"
        assert lag.outstanding == 0
    assert [work.request.draft_tokens for work in works.submitted] == [(), (1, 2, 3), ()]
    dispatcher.cancel()
    assert works.cancelled == ["s1"]
