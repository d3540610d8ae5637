from hypothesis import given
from hypothesis import strategies as st

from clients.replay import Replay

ITEMS = st.lists(st.binary(min_size=1, max_size=9) | st.just("flush"), max_size=12)


def said(items: list[bytes | str]) -> tuple[Replay, list[tuple[int, bytes | str]]]:
    """A replay that was told `items`, and their positions."""
    replay, places, position = Replay(), list[tuple[int, bytes | str]](), 0
    for item in items:
        places.append((position, item))
        if isinstance(item, bytes):
            replay.audio(item)
            position += len(item)
        else:
            replay.mark(item)
    return replay, places


@given(ITEMS, st.data())
def test_the_rest_is_what_was_not_heard(items: list[bytes | str], data: st.DataObject) -> None:
    """In order, from the very byte on, with every control message that may have been lost."""
    replay, places = said(items)
    audio = b"".join(item for item in items if isinstance(item, bytes))
    safe = data.draw(st.integers(0, len(audio)))
    heard = data.draw(st.integers(safe, len(audio)))
    replay.acknowledge(safe)
    assert replay.start <= safe
    rest = list(replay.rest(heard))
    assert b"".join(item for item in rest if isinstance(item, bytes)) == audio[heard:]
    marks = [item for place, item in places if isinstance(item, str) and place >= heard]
    assert [item for item in rest if isinstance(item, str)] == marks


def test_what_is_safe_is_forgotten() -> None:
    """Memory is bounded by what the daemon has not confirmed."""
    replay, _ = said([b"abc", "flush", b"def", "stop"])
    replay.acknowledge(4)
    assert replay.start == 3
    assert list(replay.rest(4)) == [b"ef", "stop"]
    replay.acknowledge(6)
    assert replay.start == 6
    assert list(replay.rest(6)) == ["stop"]
