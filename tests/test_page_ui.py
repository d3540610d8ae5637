"""The page's ui modules, run in Chromium: captions, subtitles, languages, the overlay's options."""

import random
from typing import Any

import pytest
from playwright.async_api import Page

from clients.caption_formats import FORMATS
from streaming.protocol import ServerMessage, Speech, Word
from tests.support.browser import page_tests
from tests.support.page_modules import meet, plain, run
from tests.support.standin import final, partial, spoken

pytestmark = page_tests


ALPHABETS = (
    "abc def ghi. jkl! mno? pqr…",
    "<&>\"' ",
    "漢字かな。한국어\uff01",
    "e\u0301a\u0308 \u200b",
    "\n\t\u2028",
)


def random_finals(seed: int, count: int = 60) -> list[Any]:
    """Finals of all lengths in several scripts, in order of time; some have no words."""
    choose = random.Random(seed)
    finals, at = [final("\u00ad", end=2.0)], 2.0  # a word without any width
    for number in range(1, count):
        words = "".join(
            choose.choice(choose.choice(ALPHABETS)) for _ in range(choose.randrange(400))
        )
        length = choose.choice([0.0, 0.001, 0.5, 7.123, 30.0])
        timed = timed_words(choose, words, at, length) if number % 2 else None
        finals.append(final(words, start=at, end=at + length, utterance=number, words=timed))
        at = round(at + length + choose.choice([0.0, 0.2, 3600.0]), 3)
    return finals


def timed_words(choose: random.Random, text: str, at: float, length: float) -> list[Word]:
    """The words of `text` in order, at random times within `length` seconds."""
    parts = text.split()
    edges = sorted(round(at + choose.random() * length, 3) for _ in range(2 * len(parts)))
    return spoken(*zip(parts, edges[::2], edges[1::2], strict=True))


@pytest.mark.parametrize("name", ["text", "srt", "vtt"])
async def test_files_equal_those_of_the_command(name: str, page: Page) -> None:
    finals = random_finals(seed=5)
    command = FORMATS[name]()
    wanted = command.header + "".join(command.render(message) for message in finals)
    script = """
        const { Captions } = await import("/static/ui/captions.js");
        const formats = await import("/static/ui/subtitles.js");
        const captions = new Captions();
        for (const message of argument.finals) captions.receive(message);
        return formats[argument.name](captions.lines);
    """
    assert await run(page, script, {"finals": plain(*finals), "name": name}) == wanted


async def test_no_captions_are_an_empty_file(page: Page) -> None:
    script = """
        const { text, srt, vtt } = await import("/static/ui/subtitles.js");
        return [text([]), srt([]), vtt([])];
    """
    assert await run(page, script) == ["", "", "WEBVTT\n\n"]


CAPTIONS = """
    const { Captions } = await import("/static/ui/captions.js");
    const captions = new Captions();
    const seen = [];
    for (const message of argument) {
        if (message.begin !== undefined) captions.startSession(message.begin);
        else captions.receive(message);
        seen.push(captions.partials.map(({ stable, tentative }) => [stable, tentative]));
    }
    return { seen, lines: captions.lines };
"""


async def test_settled_words_are_told_from_those_that_may_change(page: Page) -> None:
    """The count is in code points. The space between is not underlined."""
    messages = plain(
        partial("a 😀 b c", stable=3), partial("Gut", stable=0), partial("Gut so", stable=3)
    )
    said = await run(page, CAPTIONS, messages)
    assert said["seen"] == [[["a 😀 ", "b c"]], [["", "Gut"]], [["Gut ", "so"]]]


async def test_a_final_takes_the_place_of_its_partial_alone(page: Page) -> None:
    messages = plain(
        partial("one", utterance=0),
        partial("two", utterance=1),
        final("One.", utterance=0),
        final(" ", utterance=1),
    )
    said = await run(page, CAPTIONS, messages)
    assert said["seen"] == [[["", "one"]], [["", "one"], ["", "two"]], [["", "two"]], []]
    assert [line["text"] for line in said["lines"]] == ["One."]


async def test_a_new_session_goes_on_in_time_and_hears_again(page: Page) -> None:
    """Partials are dropped, because their sound is sent again; times are those of the recording."""
    messages = plain(final("One.", end=1.0), partial("two", utterance=1))
    again = [{"begin": 1.0}, *plain(partial("two", utterance=0), final("Two.", start=0.5, end=2.0))]
    said = await run(page, CAPTIONS, [*messages, *again])
    assert said["seen"][2] == []
    assert [(line["start"], line["end"]) for line in said["lines"]] == [(0.0, 1.0), (1.5, 3.0)]


async def test_a_resumed_session_may_repeat_what_it_said(page: Page) -> None:
    begun: list[ServerMessage] = [
        Speech(event="start", utterance=number, at=float(number)) for number in (0, 1)
    ]
    said = [*begun, final("One.", utterance=0), partial("two", utterance=1), *begun]
    seen = (await run(page, CAPTIONS, plain(*said)))["seen"]
    assert seen[-3:] == [[["", "two"]]] * 3


async def test_no_more_lines_are_kept_than_are_wanted(page: Page) -> None:
    """The overlay keeps none, because it stays open for days."""
    script = """
        const { Captions } = await import("/static/ui/captions.js");
        const [none, one] = [new Captions(0), new Captions(1)];
        const said = argument.map((message) => [none.receive(message).text, one.receive(message).text]);
        return [said, none.lines, one.lines.map(({ text }) => text)];
    """
    messages = plain(final("One."), final("Two.", utterance=1))
    assert await run(page, script, messages) == [[["One."] * 2, ["Two."] * 2], [], ["Two."]]


async def test_a_file_without_any_sound_is_read_to_its_end(page: Page) -> None:
    """Its progress is still a number."""
    scenario = """
        const { Controller } = await import("/static/ui/controller.js");
        const { Captions } = await import("/static/ui/captions.js");
        const seen = [];
        const view = { status: (...words) => seen.push(words), showPartials() {}, notice() {}, controls() {} };
        const buffer = new ReplayBuffer(16_000);
        buffer.ended = true;
        const controller = new Controller(buffer, {}, { view, captions: new Captions(), origin: 0 });
        const end = controller.run();
        await pass(0);
        sockets[0].say(ready(0), { type: "closed" });
        sockets[0].onclose({ code: 1000 });
        await end;
        return [sockets[0].sent, seen.at(-1)];
    """
    assert await meet(page, scenario) == [["start", "stop"], ["Reading", "0 %"]]


@pytest.mark.parametrize(
    ("tags", "languages"),
    [
        (["de-CH", "en-US@posix", "fr"], ["de", "fr"]),
        (["en-US@posix"], ["en"]),
        (["C"], ["en"]),
        ([], ["en"]),
    ],
)
async def test_a_wrong_locale_is_no_harm(tags: list[str], languages: list[str], page: Page) -> None:
    """Browsers return such tags on some systems; languages still have names."""
    script = """
        Object.defineProperty(navigator, "languages", { value: argument, configurable: true });
        try {
            const { nameOf, preferred } = await import(`/static/ui/languages.js?${argument}`);
            return [preferred(), nameOf("de")];
        } finally {
            delete navigator.languages;
        }
    """
    named = "Deutsch" if languages[0] == "de" else "German"
    assert await run(page, script, tags) == [languages, named]


OPTIONS = """
    const { parseOptions } = await import("/static/ui/overlay-options.js");
    try {
        return parseOptions(new URLSearchParams(argument), "de");
    } catch (problem) {
        return problem.message;
    }
"""


async def test_the_overlay_reads_its_options(page: Page) -> None:
    usual = {"size": 48, "lines": 2, "align": "center", "language": "de"}
    assert await run(page, OPTIONS, "") == usual
    wanted = {"size": 60, "lines": 3, "align": "left", "language": "en"}
    assert await run(page, OPTIONS, "size=60&lines=3&align=left&language=en") == wanted
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
async def test_the_overlay_says_what_its_address_lacks(query: str, says: str, page: Page) -> None:
    assert await run(page, OPTIONS, query) == f"The address is wrong: {says}."
