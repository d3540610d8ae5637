"""What the tiny target says of a request, decoded once and alone; and proposers that know it."""

from collections.abc import Callable
from functools import cache

from model.drafting.interface import Proposer
from model.drafting.previous_text import PreviousText
from model.engine.engine import Engine
from model.engine.requests import Request, RequestOutput
from tests.support.oracles import Adversary, Guesser, Oracle
from tests.support.tiny import CHECKPOINT
from tests.support.utterances import GREEDY

EOT = CHECKPOINT.tokens.eot


@cache
def alone(request: Request) -> RequestOutput:
    """By an engine that has nothing else to do."""
    (result,) = Engine(CHECKPOINT, slots=1).transcribe([request])
    return result


@cache
def plain(request: Request) -> tuple[int, ...]:
    """Its tokens, one target pass a token."""
    (result,) = Engine(CHECKPOINT, slots=1, proposer=lambda _: None).transcribe([request])
    return result.tokens


PROPOSERS: dict[str, Callable[[Request], Proposer | None]] = {
    "none": lambda _: None,
    "oracle": lambda request: Oracle(plain(request), acceptance=0.575),
    "perfect": lambda request: Oracle(plain(request), acceptance=1.0),
    "random": lambda _: Guesser(EOT),
    "adversarial": lambda request: Adversary(plain(request), EOT),
    "reuse": lambda request: PreviousText(plain(GREEDY[len(request.audio) // 1200 // 2])),
}


def one_second(work: Callable[[], object]) -> float:
    """Every pass takes as long as any other: what is measured on a busy machine is anything."""
    work()
    return 1.0
