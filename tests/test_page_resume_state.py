"""The page's replay buffer and resume state, run in Chromium."""

import math

import pytest
from playwright.async_api import Page

from tests.support.browser import page_tests
from tests.support.page_modules import run

pytestmark = page_tests


BUFFER = """
    const { ReplayBuffer } = await import("/static/protocol/replay-buffer.js");
    const buffer = new ReplayBuffer(16000, argument.capacity);
    const fill = (from, count) => Int16Array.from({ length: count }, (_, index) => from + index);
    const seen = [];
    for (const [verb, value, most] of argument.steps) {
        if (verb === "append") buffer.append(fill(buffer.length, value));
        if (verb === "discard") buffer.discard(value);
        if (verb === "read") seen.push([...buffer.read(value, most)]);
    }
    return { seen, start: buffer.start, length: buffer.length };
"""


async def test_a_buffer_returns_what_was_appended(page: Page) -> None:
    """By position, chunk by chunk, to the end; a chunk is discarded as a whole."""
    steps = [
        ["append", 3],
        ["append", 0],
        ["append", 4],
        ["read", 0, 100],
        ["read", 2, 100],
        ["read", 3, 2],
        ["read", 7, 100],
        ["discard", 2],
        ["read", 2, 1],
        ["discard", 3],
        ["read", 3, 1],
        ["discard", 99],
    ]
    said = await run(page, BUFFER, {"capacity": 100, "steps": steps})
    assert said["seen"] == [[0, 1, 2], [2], [3, 4], [], [2], [3]]
    assert (said["start"], said["length"]) == (7, 7)


async def test_a_buffer_drops_its_oldest_samples_beyond_its_capacity(page: Page) -> None:
    steps = [["append", 4], ["append", 4], ["append", 4]]
    said = await run(page, BUFFER, {"capacity": 8, "steps": steps})
    assert (said["start"], said["length"]) == (4, 12)


STATE = """
    const { ResumeState } = await import("/static/protocol/resume-state.js");
    const { ReplayBuffer } = await import("/static/protocol/replay-buffer.js");
    const buffer = new ReplayBuffer(1000, argument.capacity);
    const state = new ResumeState(buffer, { language: "en", temperature: 0 });
    const ready = { session: "s", key: argument.key ?? null };
    const seen = [state.hello()];
    for (const [verb, value] of argument.steps) {
        if (verb === "append") buffer.append(new Int16Array(value));
        if (verb === "send") state.cursor += value;
        if (verb === "language") state.changeLanguage(value);
        if (verb === "until") seen.push(state.untilChange);
        if (verb === "take") seen.push(state.takeChange().language);
        if (verb === "final") state.update({ type: "final", end: value });
        if (verb === "end") state.endSession();
        if (verb === "hello") seen.push(state.hello());
        if (verb === "begin") {
            const { resumed, lost } = state.begin({ ...ready, heard: value });
            seen.push([resumed, lost, state.cursor, state.offset]);
        }
    }
    return seen;
"""


async def test_a_new_session_begins_after_the_last_final(page: Page) -> None:
    steps = [
        ["append", 4000],
        ["begin", 0],
        ["send", 4000],
        ["final", 1.5],
        ["begin", 0],
        ["send", 2500],
        ["final", 0.25],
        ["begin", 0],
    ]
    hello, *begun = await run(page, STATE, {"capacity": 100_000, "steps": steps})
    assert hello == {
        "type": "start",
        "encoding": "s16le",
        "rate": 1000,
        "resumable": True,
        "language": "en",
        "temperature": 0,
    }
    assert begun == [[False, 0, 0, 0], [False, 0, 1500, 1.5], [False, 0, 1750, 1.75]]


async def test_a_session_that_is_there_is_resumed_where_it_stopped_hearing(page: Page) -> None:
    """With its name and key, the number of finals, and the first byte still kept; its times go on."""
    steps = [
        *(["append", 1000] for _ in range(4)),
        ["begin", 0],
        ["send", 4000],
        ["final", 1.5],
        ["hello", None],
        ["begin", 5000],
        ["final", 2.0],
        ["end", None],
        ["hello", None],
        ["begin", 0],
    ]
    first, new, resume, resumed, again, anew = await run(
        page, STATE, {"capacity": 100_000, "steps": steps, "key": "secret"}
    )
    assert (first["type"], new) == ("start", [False, 0, 0, 0])
    assert resume == {"type": "resume", "session": "s", "key": "secret", "finals": 1, "heard": 2000}
    assert resumed == [True, 0, 2500, 0]
    assert (again["type"], anew) == ("start", [False, 0, 2000, 2.0])


async def test_what_no_session_will_hear_is_said(page: Page) -> None:
    """The buffer dropped sound without a final; whether it was sent does not matter."""
    steps = [["begin", 0], ["append", 2000], ["send", 2000], ["append", 3000], ["append", 3000]]
    *_, again = await run(page, STATE, {"capacity": 3000, "steps": [*steps, ["begin", 0]]})
    assert again == [False, 5, 5000, 5]


@pytest.mark.parametrize(
    ("place", "rest"),
    [(400, [600, "de"]), (1_000, [0, "de"]), (1_001, [math.inf])],
    ids=["before", "at", "behind"],
)
async def test_a_change_of_language_is_sent_again_where_it_may_be_lost(
    place: int, rest: list[object], page: Page
) -> None:
    """It belongs behind the samples that were there when the user chose."""
    said = await run(
        page,
        STATE,
        {
            "key": "k",
            "steps": [
                ["append", 1000],
                ["begin", 0],
                ["send", 500],
                ["language", "de"],
                ["append", 1000],
                ["until"],
                ["send", 500],
                ["until"],
                ["take"],
                ["until"],
                ["begin", 2 * place],
                ["until"],
                *([["take"]] if len(rest) == 2 else []),
            ],
        },
    )
    assert said[2:6] == [500, 0, "de", math.inf]
    assert said[7:] == rest


async def test_a_new_session_starts_in_the_language_of_its_place(page: Page) -> None:
    steps = [
        ["append", 1000],
        ["begin", 0],
        ["language", "de"],
        ["append", 1000],
        ["language", "fr"],
        ["final", 1.0],
        ["end", 0],
        ["hello", 0],
        ["begin", 0],
        ["until"],
        ["final", 0.5],
        ["end", 0],
        ["hello", 0],
        ["begin", 0],
        ["until"],
    ]
    said = await run(page, STATE, {"key": "k", "steps": steps})
    assert [said[0]["language"], said[2]["language"], said[4], said[5]["language"], said[7]] == [
        "en",
        "de",
        1000,
        "de",
        500,
    ]
