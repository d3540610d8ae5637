import os
import subprocess
import sys
from pathlib import Path

import pytest

from daemon import cli
from tests.support.python import ROOT


def test_ctrl_c_while_torch_is_imported_leaves_no_trace(tmp_path: Path) -> None:
    """Those seconds belong to no event loop yet."""
    (tmp_path / "torch.py").write_text("import signal; signal.raise_signal(signal.SIGINT)\n")
    command = [sys.executable, "-m", "daemon", "serve", "--port", "0"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (130, "")
    (line,) = done.stderr.splitlines()
    assert "starting with the model base" in line


def test_wrong_settings_are_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["serve", "--port", "many"]) == 2
    assert capsys.readouterr().err.startswith("captiond serve: --port is 'many'")
