"""The page's client, run in Chromium against a daemon and a clock that the test controls."""

from typing import Any

import pytest
from playwright.async_api import Page

from tests.support.browser import page_tests
from tests.support.page_modules import meet

pytestmark = page_tests


BROKE_OFF = "The connection broke off."


@pytest.mark.parametrize(
    ("key", "sockets", "said"),
    [("secret", 2, [["started", 0, 0], BROKE_OFF, "resumed"]), (None, 1, [["started", 0, 0]])],
    ids=["kept", "not kept"],
)
async def test_a_connection_that_falls_silent_is_left(
    key: str | None, sockets: int, said: list[Any], page: Page
) -> None:
    """The daemon owes an acknowledgement of sound, unless it keeps no session."""
    scenario = """
        const buffer = new ReplayBuffer(16_000);
        const { client, end } = start(buffer);
        await pass(0);
        sockets[0].say(ready(0, argument));
        buffer.append(new Int16Array(5 * 16_000));
        client.advance();
        await pass(24_000);
        sockets[0].say({ type: "lag", seconds: 3 });
        await pass(24_000);
        sockets[0].say({ type: "heard", bytes: 4 * 32_000 });
        await pass(600_000); // nothing is owed
        buffer.append(new Int16Array(2 * 16_000));
        client.advance();
        await pass(24_000);
        const before = sockets.length;
        await pass(1_500);
        sockets[1]?.say(ready(4 * 32_000, argument));
        client.abort();
        const sent = sockets[1]?.sent.map((one) => one / 16_000 || one);
        return { before, said, sent, address: sockets[1]?.address.search, end: await end() };
    """
    seen = await meet(page, scenario, key)
    assert (seen["before"], seen["said"], seen["end"]) == (1, said, "done")
    if sockets == 2:
        assert seen["address"] == "?resume=s1"
        assert seen["sent"][0] == "resume"
        assert sum(seen["sent"][1:]) == pytest.approx(3)  # seconds


async def test_a_buffer_that_overruns_ends_the_session(page: Page) -> None:
    """The daemon reads nothing meanwhile. The new session begins with the oldest samples kept."""
    scenario = """
        const buffer = new ReplayBuffer(16_000, 3 * 16_000);
        const { client, end } = start(buffer);
        await pass(0);
        sockets[0].bufferedAmount = 1 << 20;
        sockets[0].say(ready(0));
        for (let second = 0; second < 8; second++) {
            buffer.append(new Int16Array(16_000));
            client.advance();
            await pass(100);
        }
        await pass(1_000);
        sockets[1].say(ready(0));
        client.abort();
        return { said, sent: [sockets[0].sent, sockets[1].sent], end: await end() };
    """
    seen = await meet(page, scenario)
    assert seen["said"][0] == ["started", 0, 0]
    assert seen["said"][1] == BROKE_OFF
    assert seen["said"][2] == ["started", 5, 5]
    assert seen["sent"] == [["start"], ["start", 16_000, 16_000, 16_000]]
    assert seen["end"] == "done"


async def test_a_change_of_language_goes_behind_the_sound_of_before(page: Page) -> None:
    """Also where a full queue holds that up; and once more where it may have been lost."""
    scenario = """
        const buffer = new ReplayBuffer(16_000);
        const { client } = start(buffer);
        await pass(0);
        sockets[0].bufferedAmount = 1 << 20;
        sockets[0].say(ready(0));
        buffer.append(new Int16Array(100));
        client.changeLanguage("de");
        buffer.append(new Int16Array(50));
        client.advance();
        sockets[0].bufferedAmount = 0;
        await pass(100);
        client.changeLanguage(null);
        sockets[0].onclose({ code: 1006 });
        await pass(1_000);
        sockets[1].say(ready(2 * 120));
        client.abort();
        return sockets.map(({ sent }) => sent);
    """
    assert await meet(page, scenario) == [
        ["start", 100, "configure", 50, "configure"],
        ["resume", 30, "configure"],
    ]


async def test_what_is_dropped_waits_for_no_connection(page: Page) -> None:
    scenario = """
        const buffer = new ReplayBuffer(16_000);
        buffer.append(new Int16Array(16_000));
        const { client, end } = start(buffer);
        await pass(0);
        sockets[0].bufferedAmount = 1 << 20;
        sockets[0].say(ready(0));
        const before = await end();
        client.abort();
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
    """Retry-After counts, up to a limit. Once the service is ready, the session begins."""
    scenario = """
        refused = true;
        const headers = { "Content-Type": "text/plain", ...(argument && { "Retry-After": argument }) };
        window.fetch = () => answer("all 2 sessions are taken", 503, headers);
        const { client, end } = start(new ReplayBuffer(16_000));
        await pass(30_000);
        const seconds = asked.map((ms) => ms / 1000);
        refused = false;
        await pass(10_000);
        sockets.at(-1).say(ready(0));
        client.abort();
        return { seconds, said, end: await end() };
    """
    seen = await meet(page, scenario, retry_after)
    assert seen["seconds"] == seconds
    said = "The service takes no session just now: all 2 sessions are taken."
    assert seen["said"] == [said] * len(seconds) + [["started", 0, 0]]
    assert seen["end"] == "done"


@pytest.mark.parametrize(
    ("status", "served", "end"),
    [
        (404, True, "goes on"),
        (200, True, "goes on"),
        (502, True, "goes on"),
        (403, True, "The service refuses this session."),
        (404, False, "The service refuses this session."),
    ],
)
async def test_a_strange_answer_behind_a_session_is_no_refusal(
    status: int, served: bool, end: str, page: Page
) -> None:
    """A balancer or a tunnel gives it while the service is away: the session goes on afterwards."""
    scenario = """
        const { status, served } = argument;
        window.fetch = () => answer("none", status, { "Content-Type": "text/plain" });
        const { client, end } = start(new ReplayBuffer(16_000));
        refused = !served;
        await pass(0);
        if (served) {
            sockets[0].say(ready(0));
            refused = true;
            sockets[0].onclose({ code: 1006 });
        }
        await pass(20_000);
        const seen = await end();
        refused = false;
        await pass(10_000);
        if (seen === "goes on") sockets.at(-1).say(ready(0));
        client.abort();
        return [seen, said.at(-1)];
    """
    seen, said = await meet(page, scenario, {"status": status, "served": served})
    assert seen == end
    assert (said == "resumed") is (end == "goes on")


async def test_a_way_back_that_leads_nowhere_is_left(page: Page) -> None:
    """Soon enough for another attempt: the daemon does not keep the session for long."""
    scenario = """
        const { client, end } = start(new ReplayBuffer(16_000));
        await pass(0);
        sockets[0].say(ready(0));
        sockets[0].onclose({ code: 1006 });
        await pass(8_400); // half a second of it is a pause
        const before = sockets.length;
        await pass(1_200);
        client.abort();
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
    """Also without any final. After five new sessions in vain the client gives up."""
    scenario = """
        const { client, end } = start(new ReplayBuffer(16_000));
        for (let count = 0; count < 8; count++) {
            await pass(8_300);
            const socket = sockets.at(-1);
            socket.say(ready(0, argument));
            socket.onclose({ code: 1006 });
        }
        await pass(10_000);
        const seen = [await end(), sockets.length];
        client.abort();
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
    scenario = """
        const { serviceProblem } = await import("/static/protocol/client.js");
        const { status, kind, text } = argument;
        window.fetch = () => answer(text, status, { "Content-Type": kind });
        const words = ({ message, advice }) => `${message} ${advice}`;
        return serviceProblem().then((one) => [words(one), true], (one) => [words(one), false]);
    """
    said, seen = await meet(page, scenario, {"status": status, "kind": kind, "text": text})
    assert says in said
    assert "<" not in said
    assert seen == again
