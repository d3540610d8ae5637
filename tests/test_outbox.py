import asyncio

import pytest

from daemon.sessions.outbox import FULL, Outbox
from streaming.dialects.dialect import Told
from streaming.protocol import Error, Lag, Partial, ServerMessage, Speech
from tests.support.fakes import PATIENCE


def partial(text: str) -> Partial:
    return Partial(utterance=0, start=0.0, end=1.0, text=text, stable=0)


def speech(utterance: int) -> Speech:
    return Speech(event="start", utterance=utterance, at=0.0)


async def drain(outbox: Outbox) -> list[Told]:
    messages = []
    while (message := await asyncio.wait_for(outbox.get(), PATIENCE)) is not None:
        messages.append(message)
    return messages


async def test_messages_leave_in_order_and_the_end_comes_last() -> None:
    outbox = Outbox()
    sent: list[ServerMessage] = [
        speech(0),
        Error(code="bad_json", message="", fatal=False),
        speech(1),
    ]
    for message in sent:
        outbox.put(message)
    outbox.end()
    assert await drain(outbox) == sent


async def test_a_newer_partial_takes_the_place_of_an_older_one() -> None:
    outbox = Outbox()
    lags = [Lag(seconds=seconds, shedding="nothing") for seconds in (1.0, 2.0)]
    for message in (partial("a"), lags[0], speech(0), partial("b"), lags[1]):
        outbox.put(message)
    outbox.end()
    assert await drain(outbox) == [speech(0), partial("b"), lags[1]]


@pytest.mark.parametrize("message", [speech(0), None])
async def test_get_waits_for_a_message_or_the_end(message: ServerMessage | None) -> None:
    outbox = Outbox()
    getting = asyncio.create_task(outbox.get())
    await asyncio.sleep(0)
    assert not getting.done()
    outbox.end() if message is None else outbox.put(message)
    assert await asyncio.wait_for(getting, PATIENCE) == message


async def test_full_is_said_at_the_bound() -> None:
    outbox = Outbox()
    for number in range(FULL - 1):
        outbox.put(speech(number))
    assert not outbox.full
    outbox.put(speech(FULL))
    assert outbox.full
    await outbox.get()
    assert not outbox.full


async def test_nothing_follows_the_end() -> None:
    outbox = Outbox()
    outbox.end()
    with pytest.raises(AssertionError, match="after the last message"):
        outbox.put(speech(0))
