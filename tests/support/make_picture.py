"""Makes docs/captions.svg: one moment of a real run of `captiond file` in a terminal.

Never imported by captiond or its tests, and nothing in it makes up a caption. Run by hand from the
repository's root, beside a daemon (`make run`); CAPTIOND_URL names one elsewhere:

    python tests/support/make_picture.py

The moment shown is, of those with enough finals, the one whose live line has most of both kinds of
words: stable ones and, dim, tentative ones.
"""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent.parent
PICTURE = ROOT / "docs" / "captions.svg"
COMMAND = ("captiond", "file", "clients/sample.flac", "--pace", "realtime", "--language", "en")
ROWS, COLUMNS = 24, 80
FINALS = 3  # captions that stand above the live line, at least
LIVE = "\r\x1b[K"  # with this `captiond file` begins to draw its live line anew
DIM = "\x1b[2m"

# rich's own frame fetches its typeface from the web. The reader's own will do: rich sets the width
# of every piece of text.
SVG = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
    <title>captiond in a terminal: finished captions, and below them the words being spoken</title>
    <style>
    .{unique_id}-matrix {{
        font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
        font-size: {char_height}px;
        line-height: {line_height}px;
    }}
    .{unique_id}-title {{
        font-size: 16px;
        font-family: system-ui, "DejaVu Sans", sans-serif;
    }}
    {styles}
    </style>
    <defs>
    <clipPath id="{unique_id}-clip-terminal">
      <rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
    </clipPath>
    {lines}
    </defs>
    {chrome}
    <g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
    {backgrounds}
    <g class="{unique_id}-matrix">
    {matrix}
    </g>
    </g>
</svg>
"""


def record() -> str:
    """All that the command writes to a terminal. Raises CalledProcessError when it fails."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    with subprocess.Popen(
        COMMAND,
        cwd=ROOT,
        env=os.environ | {"PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=slave,
        stderr=slave,
    ) as program:
        os.close(slave)
        written = b""
        try:
            while block := os.read(master, 4096):
                written += block
        except OSError:
            pass  # EIO is how Linux says that the program has closed its terminal
        finally:
            os.close(master)
    if program.returncode:
        raise subprocess.CalledProcessError(program.returncode, COMMAND, written)
    return written.decode().replace("\r\n", "\n")


def moments(written: str) -> list[str]:
    """What stood on the terminal each time just before the live line was drawn anew."""
    return [written[: clear.start()] for clear in re.finditer(re.escape(LIVE), written)]


def worth(moment: str) -> int:
    """Tentative or stable letters on the live line, whichever are fewer.

    0 with too few finals, and where the live line says that the daemon is behind.
    """
    *finals, live = moment.split("\n")
    stable, _, tentative = live.rpartition(LIVE)[2].partition(DIM)
    if len(finals) < FINALS or stable.startswith("("):
        return 0
    return min(len(stable), len(tentative))


def main() -> None:
    """Record, choose the moment, write the picture."""
    moment = max(moments(record()), key=worth)
    if not worth(moment):
        sys.exit("no moment had both stable and tentative words: is the daemon's machine busy?")
    with Path(os.devnull).open("w") as nowhere:
        console = Console(
            record=True, width=COLUMNS, file=nowhere, force_terminal=True, color_system="truecolor"
        )
        console.print(Text.assemble(("$ ", "green"), " ".join(COMMAND)))
        console.print(Text.from_ansi(moment))
        console.save_svg(str(PICTURE), title="captiond", code_format=SVG, unique_id="captions")


if __name__ == "__main__":
    main()
