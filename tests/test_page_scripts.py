"""The page's pure parts, run where they live: in Chromium, module by module."""

import random
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from clients.caption_formats import FORMATS
from streaming.protocol import Speech, encode
from tests.support.browser import needs_chromium, scripted
from tests.support.standin import final, partial

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


async def test_no_more_lines_are_kept_than_are_wanted(page: Page) -> None:
    """The overlay wants none, and stays open for days."""
    script = """
        const { Captions } = await import("/static/captions.js");
        const [none, one] = [new Captions(0), new Captions(1)];
        const said = argument.map((message) => [none.heard(message).text, one.heard(message).text]);
        return [said, none.lines, one.lines.map(({ text }) => text)];
    """
    messages = plain(final("One."), final("Two.", utterance=1))
    assert await run(page, script, messages) == [[["One."] * 2, ["Two."] * 2], [], ["Two."]]


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
    """Sound that ran off the tape without a final, sent or not, is lost."""
    steps = [["begin", 0], ["append", 2000], ["send", 2000], ["append", 3000], ["append", 3000]]
    *_, again = await run(page, COURSE, {"capacity": 3000, "steps": [*steps, ["begin", 0]]})
    assert again == [False, 5, 5000, 5]


CLIENT = """
    const { Client } = await import("/static/client.js");
    const { Tape } = await import("/static/tape.js");
    const { WebSocket, fetch, setTimeout, clearTimeout } = window;

    let now = 0; // milliseconds
    const tasks = [];
    const pass = async (ms) => {
        const end = now + ms;
        for (;;) {
            for (let turn = 0; turn < 50; turn++) await null; // what was promised is kept
            tasks.sort((one, other) => one.at - other.at);
            if (!tasks.length || tasks[0].at > end) break;
            const { at, task } = tasks.shift();
            now = at;
            task();
        }
        now = end;
    };

    const answer = (text, status, headers) => // a Response without any wait
        Promise.resolve({ status, headers: new Headers(headers), text: async () => text });

    const sockets = [];
    const asked = []; // when
    let refused = false;
    class Socket {
        bufferedAmount = 0;
        sent = []; // types of messages, and samples in frames
        constructor(address) {
            this.address = address;
            sockets.push(this);
            asked.push(now);
            const open = () => (refused ? this.onclose({ code: 1006 }) : this.onopen());
            tasks.push({ at: now, task: open });
        }
        send(data) { this.sent.push(typeof data === "string" ? JSON.parse(data).type : data.length); }
        close() {} // nothing comes of it, as where the connection is dead
        say(...messages) {
            for (const one of messages) this.onmessage({ data: JSON.stringify(one) });
        }
    }
    const ready = (heard, key = "secret") =>
        ({ type: "ready", session: "s1", key, heard, limits: { frame_bytes: 1 << 20 } });

    const said = [];
    const start = (tape) => {
        const client = new Client(tape, { language: "en", temperature: 0 }, {
            begun: (offset, lost) => said.push(["begun", offset, lost]),
            resumed: () => said.push("resumed"),
            heard: () => {},
            waiting: (problem) => said.push(problem.message),
        });
        const end = client.run().then(() => "done", (problem) => problem.message);
        return { client, end: () => Promise.race([end, pass(0).then(() => "goes on")]) };
    };

    window.WebSocket = Socket;
    window.setTimeout = (task, ms = 0) => {
        tasks.push({ at: now + ms, task, id: tasks.id = (tasks.id ?? 0) + 1 });
        return tasks.id;
    };
    window.clearTimeout = (id) => {
        const index = tasks.findIndex((one) => id && one.id === id);
        if (index >= 0) tasks.splice(index, 1);
    };
"""
BROKE_OFF = "The connection broke off."


async def meet(page: Page, scenario: str, argument: Any = None) -> Any:
    """What `scenario` returns, of a client whose daemon and whose time it makes up; see CLIENT."""
    end = "Object.assign(window, { WebSocket, fetch, setTimeout, clearTimeout });"
    return await run(page, f"{CLIENT} try {{ {scenario} }} finally {{ {end} }}", argument)


@pytest.mark.parametrize(
    ("key", "sockets", "said"),
    [
        ("secret", 2, [["begun", 0, 0], BROKE_OFF, "resumed"]),
        (None, 1, [["begun", 0, 0]]),
    ],
    ids=["kept", "not kept"],
)
async def test_a_connection_that_falls_silent_is_left(
    key: str | None, sockets: int, said: list[Any], page: Page
) -> None:
    """Where the daemon owes a word about the sound it has; one that keeps no session owes none."""
    scenario = """
        const tape = new Tape(16_000);
        const { client, end } = start(tape);
        await pass(0);
        sockets[0].say(ready(0, argument));
        tape.append(new Int16Array(5 * 16_000));
        client.advance();
        await pass(24_000);
        sockets[0].say({ type: "lag", seconds: 3 });
        await pass(24_000);
        sockets[0].say({ type: "heard", bytes: 4 * 32_000 });
        await pass(600_000); // nothing is owed
        tape.append(new Int16Array(2 * 16_000));
        client.advance();
        await pass(24_000);
        const before = sockets.length;
        await pass(1_500);
        sockets[1]?.say(ready(4 * 32_000, argument));
        client.abandon();
        const sent = sockets[1]?.sent.map((one) => one / 16_000 || one);
        return { before, said, sent, address: sockets[1]?.address.search, end: await end() };
    """
    seen = await meet(page, scenario, key)
    assert (seen["before"], seen["said"], seen["end"]) == (1, said, "done")
    if sockets == 2:
        assert seen["address"] == "?resume=s1"
        assert seen["sent"][0] == "resume"
        assert sum(seen["sent"][1:]) == pytest.approx(3)  # seconds


async def test_sound_that_ran_off_the_tape_before_it_was_sent_is_given_up(page: Page) -> None:
    """A daemon that reads nothing for so long loses the session; the new one begins with what is kept."""
    scenario = """
        const tape = new Tape(16_000, 3 * 16_000);
        const { client, end } = start(tape);
        await pass(0);
        sockets[0].bufferedAmount = 1 << 20;
        sockets[0].say(ready(0));
        for (let second = 0; second < 8; second++) {
            tape.append(new Int16Array(16_000));
            client.advance();
            await pass(100);
        }
        await pass(1_000);
        sockets[1].say(ready(0));
        client.abandon();
        return { said, sent: [sockets[0].sent, sockets[1].sent], end: await end() };
    """
    seen = await meet(page, scenario)
    assert seen["said"][0] == ["begun", 0, 0]
    assert seen["said"][1] == BROKE_OFF
    assert seen["said"][2] == ["begun", 5, 5]
    assert seen["sent"] == [["start"], ["start", 16_000, 16_000, 16_000]]
    assert seen["end"] == "done"


async def test_what_is_dropped_waits_for_no_connection(page: Page) -> None:
    """Though a mebibyte is under way, and the daemon reads nothing and says nothing."""
    scenario = """
        const tape = new Tape(16_000);
        tape.append(new Int16Array(16_000));
        const { client, end } = start(tape);
        await pass(0);
        sockets[0].bufferedAmount = 1 << 20;
        sockets[0].say(ready(0));
        const before = await end();
        client.abandon();
        return [before, await end(), tasks.length];
    """
    assert await meet(page, scenario) == ["goes on", "done", 0]


@pytest.mark.parametrize(
    ("retry_after", "seconds"),
    [
        (None, [0, 0.5, 1.5, 3.5, 7.5, 15.5, 23.5]),
        ("5", [0, 5, 10, 15, 20, 28]),
        ("3600", [0, 10, 20, 30]),
    ],
)
async def test_a_service_that_refuses_is_asked_less_and_less_often(
    retry_after: str | None, seconds: list[float], page: Page
) -> None:
    """As it wishes, within reason; and once it is ready, sound goes on."""
    scenario = """
        refused = true;
        const headers = { "Content-Type": "text/plain", ...(argument && { "Retry-After": argument }) };
        window.fetch = () => answer("all 2 sessions are taken", 503, headers);
        const { client, end } = start(new Tape(16_000));
        await pass(30_000);
        const seconds = asked.map((ms) => ms / 1000);
        refused = false;
        await pass(10_000);
        sockets.at(-1).say(ready(0));
        client.abandon();
        return { seconds, said, end: await end() };
    """
    seen = await meet(page, scenario, retry_after)
    assert seen["seconds"] == seconds
    said = "The service takes no session just now: all 2 sessions are taken."
    assert seen["said"] == [said] * len(seconds) + [["begun", 0, 0]]
    assert seen["end"] == "done"


async def test_a_way_back_that_leads_nowhere_is_left(page: Page) -> None:
    """In time for another: the session is not kept for long."""
    scenario = """
        const { client, end } = start(new Tape(16_000));
        await pass(0);
        sockets[0].say(ready(0));
        sockets[0].onclose({ code: 1006 });
        await pass(8_400); // half a second of it is a pause
        const before = sockets.length;
        await pass(1_200);
        client.abandon();
        return [before, sockets.length, await end()];
    """
    assert await meet(page, scenario) == [2, 3, "done"]


@pytest.mark.parametrize(
    ("key", "end", "sockets"),
    [("secret", "goes on", 9), (None, "The service fails again and again.", 5)],
    ids=["resumed", "new"],
)
async def test_a_session_that_is_resumed_may_be_cut_as_often_as_it_likes(
    key: str | None, end: str, sockets: int, page: Page
) -> None:
    """In silence, too, where no final tells that all is well; sessions that begin in vain are given up."""
    scenario = """
        const { client, end } = start(new Tape(16_000));
        for (let count = 0; count < 8; count++) {
            await pass(8_300);
            const socket = sockets.at(-1);
            socket.say(ready(0, argument));
            socket.onclose({ code: 1006 });
        }
        await pass(10_000);
        const seen = [await end(), sockets.length];
        client.abandon();
        return seen;
    """
    assert await meet(page, scenario, key) == [end, sockets]


@pytest.mark.parametrize(
    ("status", "kind", "text", "says", "again"),
    [
        (502, "text/html", "<h1>Bad Gateway</h1>", "The captioning service does not answer.", True),
        (504, "text/plain", "", "The captioning service does not answer.", True),
        (500, "text/html", "<h1>Oh</h1>", "The captioning service does not answer.", True),
        (503, "text/plain", "it stalls\n", "takes no session just now: it stalls.", True),
        (408, "text/plain", "too slow\n", "takes no session just now: too slow.", True),
        (403, "text/plain", "not from here\n", "refuses this session. not from here", False),
        (
            404,
            "text/html",
            "<h1>No</h1>",
            "refuses this session. It answers with status 404.",
            False,
        ),
    ],
)
async def test_a_refusal_is_told_in_the_services_words_and_no_proxys(
    status: int, kind: str, text: str, says: str, again: bool, page: Page
) -> None:
    """What may pass is tried again."""
    scenario = """
        const { obstacle } = await import("/static/client.js");
        const { status, kind, text } = argument;
        window.fetch = () => answer(text, status, { "Content-Type": kind });
        const words = ({ message, advice }) => `${message} ${advice}`;
        return obstacle().then((one) => [words(one), true], (one) => [words(one), false]);
    """
    said, seen = await meet(page, scenario, {"status": status, "kind": kind, "text": text})
    assert says in said
    assert "<" not in said
    assert seen == again


async def test_a_file_without_any_sound_is_read_to_its_end(page: Page) -> None:
    """Its progress is a number all the same."""
    scenario = """
        const { Run } = await import("/static/run.js");
        const { Captions } = await import("/static/captions.js");
        const seen = [];
        const view = { status: (...words) => seen.push(words), speak() {}, notice() {}, controls() {} };
        const tape = new Tape(16_000);
        tape.ended = true;
        const run = new Run(tape, {}, { view, captions: new Captions(), origin: 0 });
        const end = run.finish();
        await pass(0);
        sockets[0].say(ready(0), { type: "closed" });
        sockets[0].onclose({ code: 1000 });
        await end;
        return [sockets[0].sent, seen.at(-1)];
    """
    assert await meet(page, scenario) == [["start", "stop"], ["Reading", "0 %"]]


@pytest.mark.parametrize(
    ("failure", "says"),
    [
        ({"reading": "NotReadableError"}, "Your browser cannot read talk.mp3."),
        ({"reading": "NotFoundError", "size": 4096}, "Your browser cannot read talk.mp3."),
        ({"reading": "NotReadableError", "size": 3 << 30}, "talk.mp3 is too large"),
        ({"reading": "RangeError"}, "talk.mp3 is too large"),
        ({"decoding": "RangeError"}, "talk.mp3 is too large"),
        ({"decoding": "EncodingError"}, "no sound it knows in talk.mp3"),
    ],
)
async def test_a_file_that_cannot_be_read_is_told_from_one_that_is_too_large(
    failure: dict[str, Any], says: str, page: Page
) -> None:
    script = """
        const { readFile } = await import("/static/recording.js");
        const { OfflineAudioContext } = window;
        const fail = (name) => { if (name) throw new DOMException("", name); };
        window.OfflineAudioContext = class {
            async decodeAudioData() { fail(argument.decoding); }
        };
        const arrayBuffer = async () => fail(argument.reading);
        try {
            await readFile({ name: "talk.mp3", size: argument.size ?? 1000, arrayBuffer });
        } catch (problem) {
            return problem.message;
        } finally {
            window.OfflineAudioContext = OfflineAudioContext;
        }
    """
    assert says in await run(page, script, failure)


@pytest.mark.parametrize(
    ("tags", "languages"),
    [
        (["de-CH", "en-US@posix", "fr"], ["de", "fr"]),
        (["en-US@posix"], ["en"]),
        (["C"], ["en"]),
        ([], ["en"]),
    ],
)
async def test_a_locale_that_is_none_does_no_harm(
    tags: list[str], languages: list[str], page: Page
) -> None:
    """As browsers give them on some systems; languages have names all the same."""
    script = """
        Object.defineProperty(navigator, "languages", { value: argument, configurable: true });
        try {
            const { nameOf, preferred } = await import(`/static/languages.js?${argument}`);
            return [preferred(), nameOf("de")];
        } finally {
            delete navigator.languages;
        }
    """
    named = "Deutsch" if languages[0] == "de" else "German"
    assert await run(page, script, tags) == [languages, named]


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
