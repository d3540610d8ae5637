"""The tests keep to what is public, and stand each for itself."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

FILES = sorted(Path(__file__).parent.rglob("*.py"))
PUBLIC = {"os._exit"}  # of the standard library
NOT_YET: set[str] = {
    "bench_exact",
    "bench_robust",
    "test_align",
    "test_connection",
    "test_connection_input",
    "test_engine",
    "test_engine_policies",
    "test_history",
    "test_limits",
    "test_page_browser",
    "test_page_troubles",
    "test_phases",
    "test_promises",
    "test_reading",
    "test_runner",
    "test_seats",
    "test_server",
    "test_transcripts",
    "wire",
}


def private(tree: ast.Module) -> Iterator[str]:
    """Attributes with an underscore of anything but `self` and `cls`, and such names imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            text = ast.unparse(node)
            own = isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}
            if node.attr.startswith("_") and not node.attr.endswith("__") and not own:
                yield f"line {node.lineno}: {text}"
        if isinstance(node, ast.ImportFrom):
            for name in (alias.name for alias in node.names):
                if name.startswith("_"):
                    yield f"line {node.lineno}: {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_nothing_private_is_touched(path: Path) -> None:
    if path.stem in NOT_YET:
        pytest.skip("to be done")
    found = [
        one for one in private(ast.parse(path.read_text())) if one.split(": ")[1] not in PUBLIC
    ]
    assert not found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_test_is_imported(path: Path) -> None:
    """What tests share lies in helpers: whoever changes a test changes nothing else."""
    if path.stem in NOT_YET:
        pytest.skip("to be done")
    modules = {
        module
        for node in ast.walk(ast.parse(path.read_text()))
        for module in (
            [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else []
        )
    }
    assert not {module for module in modules if module.startswith("tests.test_")}
