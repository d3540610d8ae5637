import argparse
import importlib
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from daemon import cli

ROOT = Path(__file__).parent.parent


def verb(monkeypatch: pytest.MonkeyPatch, run: Callable[[argparse.Namespace], int]) -> None:
    """Make `captiond file` a verb with one flag that does `run`."""
    module = types.ModuleType("scripted_verb")
    vars(module).update(run=run, add_arguments=lambda parser: parser.add_argument("--flag"))
    monkeypatch.setitem(sys.modules, "scripted_verb", module)
    monkeypatch.setitem(cli.VERBS, "file", ("scripted_verb", "scripted_verb", "summary"))


def test_help_lists_every_verb_and_imports_none_of_them() -> None:
    """It must answer at once, and where torch is not installed."""
    script = (
        "import sys; from daemon.cli import main\n"
        "try: main(['--help'])\n"
        "finally:\n"
        "    heavy = {'torch', 'numpy', 'websockets', 'daemon.serve_flags', 'clients.file'}\n"
        "    assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name, (_, _, summary) in cli.VERBS.items():
        assert name in done.stdout
        assert summary in done.stdout


@pytest.mark.parametrize(
    ("name", "flag"), [("serve", "--max-sessions"), ("train", "--perturb"), ("bench", "--alpha")]
)
def test_help_of_a_verb_needs_no_torch(name: str, flag: str) -> None:
    script = (
        "import sys; from daemon.cli import main\n"
        f"try: main(['{name}', '--help'])\n"
        "finally: assert not {'torch', 'transformers', 'accelerate'} & sys.modules.keys()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert flag in done.stdout


def test_the_module_can_be_run() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "daemon", "--version"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("captiond ")


@pytest.mark.parametrize("name", sorted(cli.VERBS))
def test_every_verb_has_its_modules(name: str) -> None:
    flags, work, _ = cli.VERBS[name]
    if flags is not None:
        importlib.import_module(flags).add_arguments(argparse.ArgumentParser())
    assert callable(importlib.import_module(work).run)


def test_a_verb_gets_its_flags_and_gives_the_status(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def run(args: argparse.Namespace) -> int:
        seen.append(args.flag)
        return 7

    verb(monkeypatch, run)
    assert cli.main(["file", "--flag", "x"]) == 7
    assert seen == ["x"]


@pytest.mark.parametrize(
    ("missing", "extra"),
    [("torch", "daemon"), ("sounddevice", "mic"), ("transformers.models.whisper", "daemon")],
)
def test_a_missing_package_is_one_sentence_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], missing: str, extra: str
) -> None:
    def run(_args: argparse.Namespace) -> int:
        raise ModuleNotFoundError(name=missing)

    verb(monkeypatch, run)
    assert cli.main(["file"]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert missing.partition(".")[0] in error
    assert f"captiond[{extra}]" in error


def test_ctrl_c_is_a_status_and_no_trace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where a verb has no hand on it yet: while its modules are imported."""

    def run(_args: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    verb(monkeypatch, run)
    assert cli.main(["file"]) == 130
    assert capsys.readouterr().err == ""


def test_a_package_that_no_extra_brings_is_our_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_args: argparse.Namespace) -> int:
        raise ModuleNotFoundError(name="streaming.nonsense")

    verb(monkeypatch, run)
    with pytest.raises(ModuleNotFoundError):
        cli.main(["file"])


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ([], "VERB"),
        (["srve"], "choose from"),
        (["--nonsense"], "VERB"),
        (["--nonsense", "serve"], "nonsense"),
    ],
)
def test_wrong_usage_is_explained(
    capsys: pytest.CaptureFixture[str], argv: list[str], says: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(argv)
    assert caught.value.code == 2
    assert says in capsys.readouterr().err
