"""The verb `models`: what `--model` accepts, and where each model would come from. Loads nothing."""

import argparse
import sys

SUMMARY = "list the models and where each would come from"


def add_arguments(_parser: argparse.ArgumentParser) -> None:
    """No flags."""


def run(_args: argparse.Namespace) -> int:
    """Print the table."""
    # The import takes seconds (torch), and help needs none of it.
    from model.checkpoints.load import catalogue  # noqa: PLC0415

    rows = [("model", "here", "source")]
    rows += [(row.name, "yes" if row.available else "no", row.where) for row in catalogue()]
    name_width, here_width = (max(len(row[column]) for row in rows) for column in (0, 1))
    for name, here, source in rows:
        sys.stdout.write(f"{name:{name_width}}  {here:{here_width}}  {source}\n")
    sys.stdout.write("A directory or a Hub id such as openai/whisper-small is accepted, too.\n")
    return 0
