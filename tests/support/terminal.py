"""A pseudo-terminal, for what a program writes only where a person looks on."""

import fcntl
import os
import pty
import struct
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO


@dataclass
class Terminal:
    """`file` is what the program writes to, as its standard error or output."""

    file: TextIO
    master: int

    def resize(self, columns: int) -> None:
        size = struct.pack("HHHH", 24, columns, 0, 0)
        fcntl.ioctl(self.file.fileno(), termios.TIOCSWINSZ, size)

    def seen(self) -> str:
        """All that was written since the last call."""
        self.file.write("\x00")
        self.file.flush()
        data = b""
        while not data.endswith(b"\x00"):
            data += os.read(self.master, 4096)
        return data[:-1].decode()


@contextmanager
def terminal_of(columns: int) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    with os.fdopen(slave, "w") as file:
        terminal = Terminal(file, master)
        terminal.resize(columns)
        yield terminal
    os.close(master)
