"""Utterances that are all there from the start: as many at a time as the engine has slots."""

from collections import deque
from collections.abc import Iterable

from model.engine.engine import Engine
from model.engine.requests import Failure, Request, RequestOutput


def transcribe(engine: Engine, requests: Iterable[Request]) -> list[RequestOutput]:
    """Decode all; results in the order of requests.

    Raises ValueError for the first request that cannot be decoded.
    """
    order = list(requests)
    for request in order:
        engine.check(request)
    waiting, done = deque(order), dict[Request, RequestOutput]()
    while waiting or engine.occupied:
        while waiting and engine.occupied < engine.slots:
            engine.admit(waiting.popleft())
        for result in engine.step():
            if isinstance(result, Failure):
                for request in order:
                    engine.cancel(request)
                raise ValueError(result.message)
            done[result.request] = result
    return [done[request] for request in order]
