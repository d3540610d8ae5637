"""What is changed in mid-session, and for which utterances."""

import asyncio
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.stream import connect
from streaming.configuration import MOST, Configurations, changed
from streaming.protocol import (
    Closed,
    Configure,
    Configured,
    Error,
    Final,
    ProtocolError,
    ServerMessage,
    Start,
    Stop,
)
from streaming.session import Session
from streaming.settings import Settings
from tests.support import standin
from tests.support.fakes import ScriptedEngine
from tests.support.relay import relaying
from tests.support.streams import (
    RATE,
    GoodHypothesis,
    answer,
    cut,
    decodes,
    feed,
    feed_all,
    finals,
    loud,
    quiet,
    s16,
    session,
)
from tests.support.wire import calling, half_a_sentence, sentence, serving, until


def configure(stream: Session, **fields: Any) -> float:
    """Where it holds from, in seconds."""
    (answer,) = stream.configure(Configure(**fields))
    assert isinstance(answer, Configured)
    return answer.at


FIELDS: list[dict[str, Any]] = [
    {},
    {"language": None},
    {"language": ["de", "en"], "task": "translate"},
    {"prompt": "", "hot_words": None},
    {"prompt": "before", "hot_words": ["Ada"]},
]


@pytest.mark.parametrize("fields", FIELDS)
def test_what_a_configure_leaves_out_stays(fields: dict[str, Any]) -> None:
    asked: dict[str, Any] = {"language": "en", "prompt": "names", "hot_words": ["Byron"]}
    start = Start(rate=8_000, temperature=0.5, **asked)
    assert changed(start, Configure(**fields)) == Start(
        rate=8_000, temperature=0.5, **asked | fields
    )


def test_an_utterance_ends_as_it_began() -> None:
    """The change is for those whose speech begins behind it."""
    stream = session(prompt="one")
    outputs = feed_all(stream, loud(2))
    assert configure(stream, prompt="two", task="translate") == 2.0
    outputs += feed_all(stream, loud(1), quiet(1), loud(1), quiet(1))
    assert configure(stream, prompt="three") == 6.0
    outputs += feed_all(stream, loud(1), quiet(1))
    assert {(one.utterance, one.options.prompt, one.options.task) for one in decodes(outputs)} == {
        (0, "one", "transcribe"),
        (1, "two", "translate"),
        (2, "three", "translate"),
    }


def test_the_rest_behind_a_cut_is_speech_of_before() -> None:
    """The cut lies before the change, though it is made behind it."""
    stream = session(Settings(cap_ms=10_000))
    feed_all(stream, loud(7), quiet(0.2), loud(2))
    configure(stream, prompt="new")
    outputs = feed_all(stream, loud(3), quiet(1), loud(1), quiet(1))
    works = finals(outputs + answer(stream, outputs))
    works.sort(key=lambda one: one.utterance)
    assert [(one.utterance, one.options.prompt) for one in works] == [(0, ""), (1, ""), (2, "new")]
    assert works[0].stop == works[1].start


@given(
    at=st.integers(0, 6 * RATE),
    sizes=st.lists(st.integers(1, 65_536), min_size=1, max_size=4),
    rate=st.sampled_from([8_000, 16_000, 44_100]),
)
@hypothesis.settings(deadline=None, max_examples=40)
def test_how_audio_is_cut_into_frames_changes_nothing(at: int, sizes: list[int], rate: int) -> None:
    audio = s16(np.concatenate([loud(0.7), quiet(0.9), loud(1.1), quiet(1.0), loud(0.5)]))
    at = min(2 * at, len(audio))
    hypothesis.assume(len(audio) // min(sizes) < 20_000)
    seen = []
    for frames in ([audio[:at]], cut(audio[:at], sizes)):
        stream = session(rate=rate, partials=False)
        outputs = [output for frame in frames for output in feed(stream, frame)]
        outputs += stream.configure(Configure(prompt="new"))
        outputs += feed(stream, audio[at:]) + stream.stop()
        works = finals(outputs)
        seen.append([(one.start, one.stop, one.options.prompt) for one in works])
    assert seen[0] == seen[1]


def test_what_was_detected_counts_for_the_languages_that_allow_it() -> None:
    stream = session(language=None)
    (one,) = finals(feed_all(stream, loud(1.5), quiet(1)))
    stream.accept(one, GoodHypothesis("guten Tag", language="de", language_probability=0.9), 1.0)
    asked: list[object] = [["en", "de"], ["en", "fr"], "en", None]
    seen = []
    for language in asked:
        configure(stream, language=language)
        works = finals(feed_all(stream, loud(1.5), quiet(3), loud(0.3), quiet(3)))
        seen += [(one.language, one.language_hint) for one in works]
    assert seen == [
        (("en", "de"), "de"),
        (("en", "de"), "de"),
        (("en", "fr"), None),
        (("en", "fr"), None),
        ("en", None),
        ("en", None),
        (None, None),
        (None, None),
    ]


def test_what_is_kept_is_bounded() -> None:
    """A client that configures all the time, and never speaks."""
    kept = Configurations(Start())
    for since in range(1, 10 * MOST):
        kept.change(Configure(prompt=str(since)), since)
    assert kept.newest.options.prompt == kept.at(10 * MOST).options.prompt == str(10 * MOST - 1)


async def test_a_session_is_changed_over_the_wire() -> None:
    """A wrong value is told as for `start`; the session goes on as it was."""
    engine = ScriptedEngine(text=lambda request: f"{request.language} {request.prompt}")
    async with serving(engine) as daemon, calling(daemon) as client:
        await client.say(Start(language="en", prompt="one", partials=False), sentence())
        await client.say(Configure(language="xx"), '{"type": "configure", "task": "sing"}')
        await client.say(Configure(language="de", hot_words=["Ada"]))
        await client.finish(sentence())
        errors = [(error.code, error.fatal) for error in client.all(Error)]
        assert errors == [("bad_request", False), ("bad_message", False)]
        assert [one.at for one in client.all(Configured)] == [4.0]
        texts = [one.text for one in client.all(Final) if one.text]
        assert texts[0] == "en one"
        assert next(text for text in texts if text.startswith("de")) == "de Ada one"
        assert client.all(Closed)[0].received == len(sentence())


async def test_there_is_nothing_to_change_before_start_and_behind_stop() -> None:
    engine = ScriptedEngine(held=True)
    async with serving(engine) as daemon, calling(daemon) as client:
        await client.say(Configure(), Start(), sentence(), Stop(), Configure())
        for _ in range(2):
            assert (await client.receive_until(Error)).code == "bad_order"
        engine.release()
        await client.hear_all()
        assert not client.all(Configured)


async def test_the_library_changes_a_session() -> None:
    async def script(peer: standin.Peer) -> None:
        await peer.open()
        await peer.until(Configure)
        await peer.send(Configured(at=0.0))
        await peer.until(Stop)
        await peer.send(standin.closed(0))

    change = Configure(language=None, prompt="names")
    async with standin.standin(script) as server, connect(server.url) as captions:
        with pytest.raises(ProtocolError, match="`task` of `configure` must be one of"):
            await captions.configure(Configure(task="sing"))  # type: ignore[arg-type]  # the point
        await captions.configure(change)
        await captions.stop()
        with pytest.raises(RuntimeError):
            await captions.configure(change)
        assert [message async for message in captions] == [Configured(at=0.0), standin.closed(0)]
        assert server.peers[0].messages[1:] == [change, Stop()]


@pytest.mark.parametrize("heard", [False, True])
async def test_a_change_survives_a_lost_connection(heard: bool) -> None:
    """Also where it was lost on the way; then one answer may count for both."""
    engine = ScriptedEngine(text=lambda request: request.prompt or "-")
    messages: list[ServerMessage] = []
    async with (
        serving(engine) as daemon,
        relaying(daemon.port) as relay,
        connect(f"ws://127.0.0.1:{relay.port}", Start(language="en")) as captions,
    ):
        reading = asyncio.create_task(standin.collect(aiter(captions), messages))
        await captions.send(half_a_sentence())
        await until(lambda: bool(messages))
        if not heard:
            relay.cut()
        await captions.configure(Configure(prompt="new"))
        if heard:
            await until(lambda: any(isinstance(one, Configured) for one in messages))
            relay.cut()
        await captions.configure(Configure(hot_words=["Ada"]))
        await captions.flush()
        await captions.send(sentence())
        await captions.stop()
        await reading
    at = len(half_a_sentence()) / 2 / RATE
    answers = [one.at for one in messages if isinstance(one, Configured)]
    assert answers == [at] * (2 if heard else 1)
    texts = [one.text for one in messages if isinstance(one, Final)]
    assert texts[0] == "-"
    assert texts[1] == "Ada new"
    assert all(text.startswith("Ada new") for text in texts[1:]), "behind it the text before"
