"""Values of flags, read by argparse. A wrong one raises argparse.ArgumentTypeError, or ValueError."""

import argparse


def natural(text: str) -> int:
    """A whole number from 0 on."""
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is less than 0")
    return number


def count(text: str) -> int:
    """A whole number from 1 on."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1 is wanted")
    return number


def counts(text: str) -> tuple[int, ...]:
    """Counts, divided by commas: ascending, each once."""
    return tuple(sorted({count(part) for part in text.split(",")}))


def numbers(text: str) -> tuple[int, ...]:
    """Whole numbers, divided by commas, as they are given."""
    return tuple(int(part) for part in text.split(","))


def positive(text: str) -> float:
    """A finite number above 0."""
    number = float(text)
    if not 0.0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not more than 0")
    return number


def amount(text: str) -> float:
    """A finite number from 0 on."""
    number = float(text)
    if not 0.0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is less than 0, or no number")
    return number


def share(text: str) -> float:
    """A number from 0 to 1."""
    number = float(text)
    if not 0.0 <= number <= 1.0:
        raise argparse.ArgumentTypeError(f"{text} is not within 0 … 1")
    return number


def coverage(text: str) -> float:
    """The share of a text's tokens that a vocabulary has: above 0, to 1."""
    number = share(text)
    if not number:
        raise argparse.ArgumentTypeError("a vocabulary of no tokens proposes nothing")
    return number
