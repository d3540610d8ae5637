"""Atomic writes: a file is whole or absent, written under another name and then renamed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

_MODE = 0o644  # safetensors makes files that only their owner can read


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path, renamed to `path` when the block has ended and the data are on the disk.

    A process killed in between leaves `path` as it was. A failed write, as on a full disk, raises an
    OSError that names `path`, and removes the temporary file.
    """
    temporary = path.with_name(f"{path.name}.partial")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.chmod(_MODE)
    except (OSError, SafetensorError, RuntimeError) as error:  # torch.save raises the last of them
        temporary.unlink(missing_ok=True)
        raise OSError(f"{path} cannot be written: {error}") from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    temporary.rename(path)


def replace_text(path: Path, text: str) -> None:
    """Replace the content of `path` by `text`. Raises OSError."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
