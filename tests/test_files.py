import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from model.training.data.files import replace_text, replacing
from tests.support.python import ROOT

KILLED = """
import os, signal, sys
from pathlib import Path
from model.training.data.files import replacing
with replacing(Path(sys.argv[1])) as temporary:
    temporary.write_text("half of the n")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_the_old_file(tmp_path: Path) -> None:
    """And nothing in the way of the next one."""
    path = tmp_path / "facts.json"
    replace_text(path, "old")
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_text() == "old"
    replace_text(path, "new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_an_exception_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("old")

    def write() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_others_may_read_what_was_written(tmp_path: Path) -> None:
    """A daemon, say, that runs as a user of its own."""
    with replacing(tmp_path / "x") as temporary:
        save_file({"a": torch.ones(1)}, temporary)
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("form", ["text", "torch"])
def test_a_full_disk_is_said_and_leaves_no_rest(tmp_path: Path, form: str) -> None:
    """Here the limit on the size of a file stands for the disk's end."""
    path = tmp_path / "big"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def write() -> None:
        if form == "text":
            replace_text(path, "x" * 100_000)
        else:
            with replacing(path) as temporary:
                torch.save(torch.ones(100_000), temporary)

    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError, match="big cannot be written: "):
            write()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []
