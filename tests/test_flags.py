import argparse
from collections.abc import Callable

import pytest

from model import flags


@pytest.mark.parametrize(
    ("read", "good", "value", "bad"),
    [
        (flags.natural, "0", 0, "-1"),
        (flags.count, "1", 1, "0"),
        (flags.counts, "4,1,4", (1, 4), "1,0"),
        (flags.numbers, "2,0", (2, 0), "2,x"),
        (flags.positive, "0.5", 0.5, "inf"),
        (flags.amount, "0", 0.0, "-1"),
        (flags.share, "1", 1.0, "nan"),
        (flags.coverage, "1", 1.0, "0"),
    ],
)
def test_a_flag_takes_what_lies_within_its_bounds(
    read: Callable[[str], object], good: str, value: object, bad: str
) -> None:
    assert read(good) == value
    with pytest.raises((argparse.ArgumentTypeError, ValueError)):
        read(bad)
