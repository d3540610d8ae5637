"""The decoder's process by itself: what it says, where, and what it may not do."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from tests.support.recordings import encoded, spoken

ROOT = Path(__file__).resolve().parent.parent


async def decode(data: bytes, before: str = "") -> tuple[int | None, bytes, str]:
    """Exit status, output and errors. before: what the process does first."""
    program = f"{before}\nimport runpy; runpy.run_module('daemon.files.decoder_process', run_name='__main__')"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        program,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    out, err = await process.communicate(data)
    return process.returncode, out, err.decode()


async def test_a_line_and_the_samples_come() -> None:
    status, out, err = await decode(encoded("flac"))
    line, _, samples = out.partition(b"\n")
    assert (status, err) == (0, "")
    about = json.loads(line)
    assert (about["encoding"], about["rate"], about["channels"]) == ("s16le", 16_000, 1)
    assert samples == spoken().tobytes()


@pytest.mark.parametrize("data", [b"", b"nothing" * 99])
async def test_a_failure_is_one_line(data: bytes) -> None:
    status, out, err = await decode(data)
    assert (status, out, err.count("\n")) == (1, b"", 1)


async def test_it_can_write_no_file_and_has_little_memory(tmp_path: Path) -> None:
    """Its limits hold, whatever libav does."""
    probe = (
        "import av, resource, streaming.containers\n"
        "def grasp(*_):\n"
        f"    try: open({str(tmp_path / 'x')!r}, 'w').write('x' * 99999)\n"
        "    except OSError: pass\n"
        "    bytearray(2**31)\n"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "streaming.containers.recording = grasp"
    )
    status, out, err = await decode(b"", probe)
    assert (status, out, err) == (1, b"", "the file needs too much memory\n")
    assert (tmp_path / "x").stat().st_size == 0
