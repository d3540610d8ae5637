"""Runs modules of the page in Chromium, with a scripted daemon and a clock that the test moves."""

from typing import Any

import msgspec
from playwright.async_api import Page

from streaming.protocol import ServerMessage, encode

CLIENT = """
    const { Client } = await import("/static/protocol/client.js");
    const { ReplayBuffer } = await import("/static/protocol/replay-buffer.js");
    const { WebSocket, fetch, setTimeout, clearTimeout } = window;

    let now = 0; // milliseconds
    const tasks = [];
    const pass = async (ms) => {
        const end = now + ms;
        for (;;) {
            for (let turn = 0; turn < 50; turn++) await null; // settles the promises
            tasks.sort((one, other) => one.at - other.at);
            if (!tasks.length || tasks[0].at > end) break;
            const { at, task } = tasks.shift();
            now = at;
            task();
        }
        now = end;
    };

    const answer = (text, status, headers) => // a Response that is there at once
        Promise.resolve({ status, headers: new Headers(headers), text: async () => text });

    const sockets = [];
    const asked = []; // times of the connections
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
        close() {} // without an answer, as on a dead connection
        say(...messages) {
            for (const one of messages) this.onmessage({ data: JSON.stringify(one) });
        }
    }
    const ready = (heard, key = "secret") =>
        ({ type: "ready", session: "s1", key, heard, limits: { frame_bytes: 1 << 20 } });

    const said = [];
    const start = (buffer) => {
        const client = new Client(buffer, { language: "en", temperature: 0 }, {
            started: (offset, lost) => said.push(["started", offset, lost]),
            resumed: () => said.push("resumed"),
            message: () => {},
            waiting: (problem) => said.push(problem.message),
        });
        const end = client.run().then(() => "done", (problem) => problem.message);
        return { client, end: () => Promise.race([end, pass(0).then(() => "goes on")]) };
    };

    window.WebSocket = Socket;
    performance.now = () => now;
    window.setTimeout = (task, ms = 0) => {
        tasks.push({ at: now + ms, task, id: tasks.id = (tasks.id ?? 0) + 1 });
        return tasks.id;
    };
    window.clearTimeout = (id) => {
        const index = tasks.findIndex((one) => id && one.id === id);
        if (index >= 0) tasks.splice(index, 1);
    };
"""


async def run(page: Page, script: str, argument: Any = None) -> Any:
    """What `script`, the body of a function of `argument`, returns; it may import modules of the page."""
    return await page.evaluate(f"async (argument) => {{ {script} }}", argument)


def plain(*messages: ServerMessage) -> list[Any]:
    """`messages` as the page's JSON.parse returns them."""
    return [msgspec.json.decode(encode(message)) for message in messages]


async def meet(page: Page, scenario: str, argument: Any = None) -> Any:
    """What `scenario`, the body of a function of `argument`, returns; CLIENT is what it may use."""
    end = "Object.assign(window, { WebSocket, fetch, setTimeout, clearTimeout }); delete performance.now;"
    return await run(page, f"{CLIENT} try {{ {scenario} }} finally {{ {end} }}", argument)
