"""Proposers that know the answer, or take care not to, and random arrival: to try the engine with."""

import random
from collections import Counter
from collections.abc import Callable, Sequence

import torch

from model.drafting.interface import Proposer
from model.drafting.previous_text import PreviousText
from model.engine.engine import Engine
from model.engine.requests import Failure, Request, RequestOutput


class Oracle:
    """Proposes the true continuation; each token is right with probability `acceptance`."""

    def __init__(self, truth: Sequence[int], acceptance: float, seed: int = 0) -> None:
        self._truth = truth
        self._acceptance = acceptance
        self._random = random.Random(seed)
        self._done = 0

    def observe(self, tokens: Sequence[int]) -> None:
        self._done += len(tokens)

    def propose(self, limit: int) -> list[int]:
        block = []
        for token in self._truth[self._done : self._done + limit]:
            right = self._random.random() < self._acceptance
            block.append(token if right else (token + 1) % 200)
        return block


class Guesser:
    """Proposes noise, the end of transcript included, in blocks of any size."""

    def __init__(self, eot: int, seed: int = 0) -> None:
        self._eot = eot
        self._random = random.Random(seed)

    def observe(self, tokens: Sequence[int]) -> None:
        pass

    def propose(self, limit: int) -> list[int]:
        return [self._random.randint(0, self._eot) for _ in range(self._random.randint(0, limit))]


class Adversary(Oracle):
    """Right up to the last token of each block, which is the end of transcript: always too soon."""

    def __init__(self, truth: Sequence[int], eot: int) -> None:
        super().__init__(truth, acceptance=1.0)
        self._eot = eot

    def propose(self, limit: int) -> list[int]:
        block = super().propose(limit)
        return [*block[:-1], self._eot] if block else []


def proposers(
    plain: Callable[[Request], Sequence[int]], requests: list[Request], eot: int
) -> dict[str, Callable[[Request], Proposer | None]]:
    """Every kind of proposer, each with what plain decoding says of the request, or of the one before."""

    def previous_text(request: Request) -> Proposer | None:
        if request not in requests:  # a part of one
            return None
        return PreviousText(plain(requests[requests.index(request) - 1]))

    return {
        "none": lambda _: None,
        "oracle": lambda request: Oracle(plain(request), acceptance=0.575),
        "perfect": lambda request: Oracle(plain(request), acceptance=1.0),
        "random": lambda _: Guesser(eot),
        "adversarial": lambda request: Adversary(plain(request), eot),
        "reuse": previous_text,
    }


def chi_square(
    one: Counter[tuple[int, ...]], other: Counter[tuple[int, ...]], least: int
) -> tuple[float, int]:
    """Of equally many draws each: the p-value that they are of one distribution, and the outcomes.

    Outcomes seen fewer than `least` times count as one.
    """
    common = [outcome for outcome, n in (one + other).items() if n >= least]
    pairs = [(one[outcome], other[outcome]) for outcome in common]
    rest = (one.total() - sum(a for a, _ in pairs), other.total() - sum(b for _, b in pairs))
    pairs += [rest] if any(rest) else []
    chi2 = torch.tensor(sum((a - b) ** 2 / (a + b) for a, b in pairs))
    p = torch.special.gammaincc(torch.tensor((len(pairs) - 1) / 2), chi2 / 2)
    return float(p), len(pairs)


def drain(engine: Engine) -> list[RequestOutput | Failure]:
    """All that comes of the requests that are under way."""
    results: list[RequestOutput | Failure] = []
    while engine.occupied:
        results += engine.step()
    return results


def run_shuffled(
    engine: Engine, requests: list[Request], order: random.Random
) -> list[RequestOutput]:
    """Everything decoded, arriving in random order while others are under way."""
    waiting, results = order.sample(requests, k=len(requests)), []
    while waiting or engine.occupied:
        while waiting and engine.occupied < engine.slots and order.random() < 0.8:
            engine.admit(waiting.pop())
        for one in engine.step():
            assert isinstance(one, RequestOutput)
            results.append(one)
    assert len(results) == len(requests)
    return results
