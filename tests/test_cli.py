import argparse
import importlib
import sys
import types
from collections.abc import Callable

import pytest

from daemon import cli
from tests.support.python import python

HEAVY = {"torch", "numpy", "websockets", "daemon.serve", "daemon.serve_flags", "clients.file"}


def verb(monkeypatch: pytest.MonkeyPatch, run: Callable[[argparse.Namespace], int]) -> None:
    """Make `captiond file` a verb with one flag that does `run`."""
    module = types.ModuleType("scripted_verb")
    vars(module).update(run=run, add_arguments=lambda parser: parser.add_argument("--flag"))
    monkeypatch.setitem(sys.modules, "scripted_verb", module)
    monkeypatch.setitem(cli.VERBS, "file", ("scripted_verb", "scripted_verb", "summary"))


@pytest.mark.parametrize(
    ("words", "heavy", "says"),
    [
        (
            ["--help"],
            HEAVY,
            [text for name, (_, _, about) in cli.VERBS.items() for text in (name, about)],
        ),
        (["serve", "--help"], {"torch"}, ["--max-sessions"]),
        (["train", "--help"], {"torch", "accelerate"}, ["--perturb"]),
        (["bench", "--help"], {"torch", "transformers"}, ["--alpha"]),
    ],
)
def test_help_answers_at_once(words: list[str], heavy: set[str], says: list[str]) -> None:
    """Also where torch is not installed; the first imports no verb."""
    script = f"import sys; from daemon.cli import main\ntry: main({words})\n"
    script += f"finally: assert not {heavy} & set(sys.modules), set(sys.modules)\n"
    printed = python("-c", script)
    assert all(text in printed for text in says)


def test_the_module_can_be_run() -> None:
    assert python("-m", "daemon", "--version").startswith("captiond ")


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
def test_usage_is_explained(capsys: pytest.CaptureFixture[str], argv: list[str], says: str) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(argv)
    assert caught.value.code == 2
    assert says in capsys.readouterr().err
