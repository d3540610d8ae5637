from typing import get_args

import msgspec
import pytest

from streaming.protocol import Start
from streaming.settings import RANGES, Settings, bounds


@pytest.mark.parametrize("name", RANGES)
def test_a_setting_out_of_range_is_refused_naming_the_range(name: str) -> None:
    low, high = RANGES[name]
    for value in (low - 1, high + 1):
        with pytest.raises(ValueError, match=rf"{name} is {value}: .* {low} … {high}"):
            Settings(**{name: value})  # type: ignore[arg-type]  # any of them


def test_what_a_start_may_ask_for_is_what_can_be_set() -> None:
    asked = {
        field.name: bounds(get_args(field.type)[0])
        for field in msgspec.structs.fields(Start)
        if field.name in RANGES
    }
    assert asked == {
        name: RANGES[name] for name in ("endpoint_silence_ms", "minimum_speech_ms", "cap_ms")
    }


def test_the_shortest_endpoint_silence_holds_the_longest_post_roll() -> None:
    assert RANGES["post_roll_ms"][1] <= RANGES["endpoint_silence_ms"][0]
