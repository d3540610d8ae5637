"""What the tiny target says of a request, decoded once and alone; and proposers that know it."""

from collections.abc import Callable
from functools import cache

from model.engine.engine import Engine
from model.engine.offline import transcribe
from model.engine.requests import Request, RequestOutput
from tests.support.oracles import proposers
from tests.support.tiny import CHECKPOINT
from tests.support.utterances import GREEDY, WARM


@cache
def alone(request: Request) -> RequestOutput:
    """By an engine that has nothing else to do."""
    (result,) = transcribe(Engine(CHECKPOINT, slots=1), [request])
    return result


@cache
def plain(request: Request) -> tuple[int, ...]:
    """Its tokens, one target pass a token."""
    (result,) = transcribe(Engine(CHECKPOINT, slots=1, proposer=lambda _: None), [request])
    return result.tokens


PROPOSERS = proposers(plain, [*GREEDY, *WARM], CHECKPOINT.tokens.eot)


def one_second(work: Callable[[], object]) -> float:
    """Every pass takes as long as any other: what is measured on a busy machine is anything."""
    work()
    return 1.0
