"""The page's pure parts, run where they live: in Chromium, module by module."""

import random
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from clients.subtitles import FORMATS
from streaming.protocol import Speech, encode
from tests.browser import needs_chromium, scripted
from tests.standin import final, partial

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="session")]

ALPHABETS = (
    "abc def ghi. jkl! mno? pqr…",
    "<&>\"' ",
    "漢字かな。한국어\uff01",
    "e\u0301a\u0308 \u200b",
    "\n\t\u2028",
)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def page(browser: Browser) -> AsyncIterator[Page]:
    """A page on which the modules can be imported."""
    async with scripted(browser) as (_, page):
        yield page


async def run(page: Page, script: str, argument: Any = None) -> Any:
    """What `script`, the body of a function of `argument`, returns; it may import the page's modules."""
    return await page.evaluate(f"async (argument) => {{ {script} }}", argument)


def plain(*messages: Any) -> list[Any]:
    return [msgspec.json.decode(encode(message)) for message in messages]


def random_finals(seed: int, count: int = 60) -> list[Any]:
    """Finals of all lengths in several scripts, in order of time; some have no words."""
    choose = random.Random(seed)
    finals, at = [final("\u00ad", end=2.0)], 2.0  # a word without any width
    for number in range(1, count):
        words = "".join(
            choose.choice(choose.choice(ALPHABETS)) for _ in range(choose.randrange(400))
        )
        length = choose.choice([0.0, 0.001, 0.5, 7.123, 30.0])
        finals.append(final(words, start=at, end=at + length, utterance=number))
        at = round(at + length + choose.choice([0.0, 0.2, 3600.0]), 3)
    return finals


@pytest.mark.parametrize("name", ["text", "srt", "vtt"])
async def test_files_equal_those_of_the_command(name: str, page: Page) -> None:
    """Whatever was said: the page's downloads are those that `captiond file` writes."""
    finals = random_finals(seed=5)
    command = FORMATS[name]()
    wanted = command.opening + "".join(command.render(message) for message in finals)
    script = """
        const { Captions } = await import("/static/captions.js");
        const formats = await import("/static/export.js");
        const captions = new Captions();
        for (const message of argument.finals) captions.heard(message);
        return formats[argument.name](captions.lines);
    """
    assert await run(page, script, {"finals": plain(*finals), "name": name}) == wanted


async def test_no_captions_are_an_empty_file(page: Page) -> None:
    script = """
        const { text, srt, vtt } = await import("/static/export.js");
        return [text([]), srt([]), vtt([])];
    """
    assert await run(page, script) == ["", "", "WEBVTT\n\n"]


CAPTIONS = """
    const { Captions } = await import("/static/captions.js");
    const captions = new Captions();
    const seen = [];
    for (const message of argument) {
        if (message.begin !== undefined) captions.begin(message.begin);
        else captions.heard(message);
        seen.push(captions.spoken.map(({ settled, tentative }) => [settled, tentative]));
    }
    return { seen, lines: captions.lines };
"""


async def test_settled_words_are_told_from_those_that_may_change(page: Page) -> None:
    """Counted in code points, whatever the script; the space between belongs to neither's dots."""
    messages = plain(
        partial("a 😀 b c", stable=3), partial("Gut", stable=0), partial("Gut so", stable=3)
    )
    said = await run(page, CAPTIONS, messages)
    assert said["seen"] == [[["a 😀 ", "b c"]], [["", "Gut"]], [["Gut ", "so"]]]


async def test_a_final_takes_the_place_of_its_partial_alone(page: Page) -> None:
    """The next utterance may have begun before."""
    messages = plain(
        partial("one", utterance=0),
        partial("two", utterance=1),
        final("One.", utterance=0),
        final(" ", utterance=1),
    )
    said = await run(page, CAPTIONS, messages)
    assert said["seen"] == [
        [["", "one"]],
        [["", "one"], ["", "two"]],
        [["", "two"]],
        [],
    ]
    assert [line["text"] for line in said["lines"]] == ["One."]


async def test_a_new_session_goes_on_in_time_and_hears_again(page: Page) -> None:
    """What had no final is dropped, for it comes again; times are those of the tape."""
    messages = plain(final("One.", end=1.0), partial("two", utterance=1))
    again = [{"begin": 1.0}, *plain(partial("two", utterance=0), final("Two.", start=0.5, end=2.0))]
    said = await run(page, CAPTIONS, [*messages, *again])
    assert said["seen"][2] == []
    assert [(line["start"], line["end"]) for line in said["lines"]] == [(0.0, 1.0), (1.5, 3.0)]


async def test_a_resumed_session_may_repeat_what_it_said(page: Page) -> None:
    """The beginnings of utterances come again: those with words, or with their final, stay as they are."""
    begun = [Speech(event="start", utterance=number, at=float(number)) for number in (0, 1)]
    said = [*begun, final("One.", utterance=0), partial("two", utterance=1), *begun]
    seen = (await run(page, CAPTIONS, plain(*said)))["seen"]
    assert seen[-3:] == [[["", "two"]]] * 3


TAPE = """
    const { Tape } = await import("/static/tape.js");
    const tape = new Tape(16000, argument.capacity);
    const fill = (from, count) => Int16Array.from({ length: count }, (_, index) => from + index);
    const seen = [];
    for (const [verb, value, most] of argument.steps) {
        if (verb === "append") tape.append(fill(tape.length, value));
        if (verb === "forget") tape.forget(value);
        if (verb === "read") seen.push([...tape.read(value, most)]);
    }
    return { seen, start: tape.start, length: tape.length };
"""


async def test_a_tape_gives_back_what_it_was_given(page: Page) -> None:
    """By position, block by block, until the end; forgetting keeps what is only partly settled."""
    steps = [
        ["append", 3],
        ["append", 0],
        ["append", 4],
        ["read", 0, 100],
        ["read", 2, 100],
        ["read", 3, 2],
        ["read", 7, 100],
        ["forget", 2],
        ["read", 2, 1],
        ["forget", 3],
        ["read", 3, 1],
        ["forget", 99],
    ]
    said = await run(page, TAPE, {"capacity": 100, "steps": steps})
    assert said["seen"] == [[0, 1, 2], [2], [3, 4], [], [2], [3]]
    assert (said["start"], said["length"]) == (7, 7)


async def test_a_tape_drops_its_oldest_beyond_its_capacity(page: Page) -> None:
    steps = [["append", 4], ["append", 4], ["append", 4]]
    said = await run(page, TAPE, {"capacity": 8, "steps": steps})
    assert (said["start"], said["length"]) == (4, 12)


COURSE = """
    const { Course } = await import("/static/course.js");
    const { Tape } = await import("/static/tape.js");
    const tape = new Tape(1000, argument.capacity);
    const course = new Course(tape, { language: "en", temperature: 0 });
    const ready = { session: "s", key: argument.key ?? null };
    const seen = [course.hello()];
    for (const [verb, value] of argument.steps) {
        if (verb === "append") tape.append(new Int16Array(value));
        if (verb === "send") course.cursor += value;
        if (verb === "final") course.heard({ type: "final", end: value });
        if (verb === "drop") course.drop();
        if (verb === "hello") seen.push(course.hello());
        if (verb === "begin") {
            const { resumed, lost } = course.begin({ ...ready, heard: value });
            seen.push([resumed, lost, course.cursor, course.offset]);
        }
    }
    return seen;
"""


async def test_a_new_session_begins_after_the_last_final(page: Page) -> None:
    """Sent or not, what has no final is heard again, and nothing else is."""
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
    hello, *begun = await run(page, COURSE, {"capacity": 100_000, "steps": steps})
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
    """By its name and key, with what came and what can still be sent; its times stay as they are."""
    steps = [
        *(["append", 1000] for _ in range(4)),
        ["begin", 0],
        ["send", 4000],
        ["final", 1.5],
        ["hello", None],
        ["begin", 5000],
        ["final", 2.0],
        ["drop", None],
        ["hello", None],
        ["begin", 0],
    ]
    first, new, resume, resumed, again, anew = await run(
        page, COURSE, {"capacity": 100_000, "steps": steps, "key": "secret"}
    )
    assert (first["type"], new) == ("start", [False, 0, 0, 0])
    assert resume == {"type": "resume", "session": "s", "key": "secret", "finals": 1, "heard": 2000}
    assert resumed == [True, 0, 2500, 0]
    assert (again["type"], anew) == ("start", [False, 0, 2000, 2.0])


async def test_what_no_session_will_hear_is_said(page: Page) -> None:
    """Sound that ran off the tape before it was sent is lost; what was sent before is not counted."""
    steps = [["begin", 0], ["append", 2000], ["send", 2000], ["append", 3000], ["append", 3000]]
    *_, again = await run(page, COURSE, {"capacity": 3000, "steps": [*steps, ["begin", 0]]})
    assert again == [False, 3, 5000, 5]


OPTIONS = """
    const { options } = await import("/static/options.js");
    try {
        return options(new URLSearchParams(argument), "de");
    } catch (problem) {
        return problem.message;
    }
"""


async def test_the_overlay_reads_its_options(page: Page) -> None:
    usual = {"size": 48, "lines": 2, "align": "center", "language": "de"}
    assert await run(page, OPTIONS, "") == usual
    assert await run(page, OPTIONS, "size=60&lines=3&align=left&language=en") == {
        "size": 60,
        "lines": 3,
        "align": "left",
        "language": "en",
    }
    assert await run(page, OPTIONS, "language=auto") == usual | {"language": None}


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("size=1", "size is a whole number from 12 to 200"),
        ("size=big", "size is a whole number from 12 to 200"),
        ("lines=2.5", "lines is a whole number from 1 to 8"),
        ("lines=", "lines is a whole number from 1 to 8"),
        ("align=top", "align is one of left, center, right"),
        ("colour=red", "colour is unknown; known are size, lines, align, language"),
    ],
)
async def test_the_overlay_says_what_is_wrong_with_its_address(
    query: str, says: str, page: Page
) -> None:
    assert await run(page, OPTIONS, query) == f"The address is wrong: {says}."
