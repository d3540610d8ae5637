"""The shape of the source: rooms, floors, arrows, and how long functions and classes are. Reads, never imports.

    python -m tests.support.architecture [FOLDER]

prints the figures of the checkout in FOLDER, by default this one. A room is a folder of a top-level
package, or a module that lies in none; an arrow is an import from one room to another; the floors are the
longest chain of arrows.
"""

import ast
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("clients", "daemon", "model", "streaming")


def sources(root: Path, package: str) -> list[Path]:
    """The package's modules, its folders' `__init__` aside."""
    return sorted(p for p in (root / package).rglob("*.py") if not p.stem.startswith("__"))


def imports(path: Path) -> set[str]:
    """Every module that a file imports, at its head or inside a function, and what it takes from each."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: absolute imports only"
            assert node.module is not None
            names.add(node.module)
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def room_of(name: str) -> str:
    """The room of a module by its dotted name: its folder, or itself where it lies in the package's own."""
    return ".".join(name.split(".")[:2])


def arrows(root: Path, package: str) -> dict[str, set[str]]:
    """From each room of the package to the rooms of the same package that it imports."""
    found: dict[str, set[str]] = {}
    for path in sources(root, package):
        name = ".".join(path.relative_to(root).with_suffix("").parts)
        room = room_of(name)
        others = {room_of(one) for one in imports(path) if one.startswith(f"{package}.")}
        known = {one for one in others if _exists(one, root)}
        found.setdefault(room, set()).update(known - {room})
    return found


def _exists(room: str, root: Path) -> bool:
    place = root.joinpath(*room.split("."))
    return place.is_dir() or place.with_suffix(".py").is_file()


def floors(found: dict[str, set[str]]) -> int | None:
    """Rooms in the longest chain of arrows; None where they run in a circle."""
    depth: dict[str, int] = {}
    try:
        for room in TopologicalSorter(found).static_order():
            depth[room] = 1 + max((depth[one] for one in found.get(room, ())), default=0)
    except CycleError:
        return None
    return max(depth.values())


@dataclass(frozen=True, slots=True)
class Length:
    """Lines of a function or class, its name and its file."""

    lines: int
    name: str
    path: Path


def lengths(paths: list[Path], *kinds: type[ast.AST]) -> Iterator[Length]:
    """Of every definition of one of the `kinds`."""
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, kinds) and isinstance(
                node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
            ):
                assert node.end_lineno is not None
                yield Length(node.end_lineno - node.lineno + 1, node.name, path)


def main(root: Path) -> None:
    """Print the figures."""
    for package in ("model", "daemon"):
        found = arrows(root, package)
        count = sum(map(len, found.values()))
        sys.stdout.write(f"{package}: {len(found)} rooms, {floors(found)} floors, {count} arrows\n")
    paths = [path for package in PACKAGES for path in sources(root, package)]
    functions = sorted(
        lengths(paths, ast.FunctionDef, ast.AsyncFunctionDef), key=lambda one: one.lines
    )
    longest, widest = functions[-1], max(lengths(paths, ast.ClassDef), key=lambda one: one.lines)
    p90 = statistics.quantiles([one.lines for one in functions], n=10)[-1]
    tests = list((root / "tests").rglob("*.py"))
    total, tested = (sum(len(p.read_bytes().splitlines()) for p in ps) for ps in (paths, tests))
    sys.stdout.write(
        f"longest function: {longest.name} {longest.lines}; longest class: {widest.name} "
        f"{widest.lines}; p90 function: {p90:.0f}\nlines: {total} of source, {tested} of tests\n"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT)
