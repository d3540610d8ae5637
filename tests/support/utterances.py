"""Requests for the tiny model: seeded noise, with prompts, languages, temperatures and seeds of their own."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from model.engine.requests import Request


def noise(seed: int, samples: int = 8000) -> NDArray[np.float32]:
    return np.random.default_rng(seed).uniform(-1, 1, samples).astype(np.float32)


REQUESTS = [
    Request(
        noise(i, 2 + 1500 * i),
        language=("en", None, ("de", "es"))[i % 3],
        prompt=("", "as before")[i % 2],
        temperature=(0.0, 0.8)[i % 4 == 3],
        seed=i,
    )
    for i in range(12)
]


GREEDY = [
    Request(noise(100 + i, 2 + 1200 * i), language="en", prompt=("", "before")[i % 2])
    for i in range(12)
]


WARM = [replace(request, temperature=0.7, seed=i) for i, request in enumerate(GREEDY[::2])]
