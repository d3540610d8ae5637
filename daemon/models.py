"""The verb `models`: what `--model` accepts, and where each model would come from. Loads nothing."""

import argparse
import sys

from model.checkpoints.load import catalogue


def run(_args: argparse.Namespace) -> int:
    """Print the table."""
    rows = [("model", "here", "source")]
    rows += [(row.name, "yes" if row.available else "no", row.where) for row in catalogue()]
    name_width, here_width = (max(len(row[column]) for row in rows) for column in (0, 1))
    for name, here, source in rows:
        sys.stdout.write(f"{name:{name_width}}  {here:{here_width}}  {source}\n")
    sys.stdout.write("A directory or a Hub id such as openai/whisper-small is accepted, too.\n")
    return 0
