"""Files that are whole or absent: written under another name, then renamed. Knows no format."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

_MODE = 0o644  # safetensors would have its files for the owner alone


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name to write to, which becomes `path` once the block has ended and all is on the disk.

    A process killed in between leaves `path` as it was. What cannot be written, as on a full disk,
    is an OSError that names `path`; nothing is left behind.
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
    """Put `text` in the place of what `path` holds. Raises OSError."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
