"""The tests keep to what is public, and stand each for itself."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

FILES = sorted(Path(__file__).parent.rglob("*.py"))
PUBLIC = {"os._exit"}  # of the standard library


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
    found = [
        one for one in private(ast.parse(path.read_text())) if one.split(": ")[1] not in PUBLIC
    ]
    assert not found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_test_is_imported(path: Path) -> None:
    """What tests share lies in helpers: whoever changes a test changes nothing else."""
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
