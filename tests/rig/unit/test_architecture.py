# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The house rules of CONTRIBUTING.md, read from the syntax trees of all files."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
RIG = ROOT / "tools" / "rig"
TASKS = RIG / "tasks"
HEAD = (
    "# SPDX-License-Identifier: Apache-2.0\n"
    "# SPDX-FileCopyrightText: Copyright contributors to the vLLM project\n"
)
FLOORS = ("base", "host", "diagnose", "guard", "builds", "serve", "steps", "tasks")
"""From the ground up: a floor imports from itself and from those before it."""

MOST_LINES = 320
MOST_LINES_OF_A_TASK = 25


def library() -> list[Path]:
    """Return the library's own files; the sample target is somebody else's house."""
    found = (p for p in RIG.rglob("*.py") if "sample_target" not in p.parts)
    return sorted(found)


def everything() -> list[Path]:
    """Return every Python file of the project."""
    tests = [*(ROOT / "tests" / "rig").rglob("*.py")]
    benchmarks = [*(ROOT / "benchmarks" / "rig").rglob("*.py")]
    tops = [ROOT / "tasks.py", ROOT / "noxfile.py"]
    sample = [*(RIG / "sample_target").rglob("*.py")]
    return sorted([*library(), *tests, *benchmarks, *tops, *sample])


def name_of(path: Path) -> str:
    """Return a file's place in the project, for the names of tests."""
    return path.relative_to(ROOT).as_posix()


def imports(path: Path) -> Iterator[str]:
    """Yield the full name of everything that a file imports, wherever it does."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", library(), ids=name_of)
def test_imports_point_downwards(path: Path) -> None:
    """A floor knows nothing of the floors above it."""
    inside = path.relative_to(RIG).parts
    if inside[0] not in FLOORS:
        return
    allowed = FLOORS[: FLOORS.index(inside[0]) + 1]
    ours = [name.split(".") for name in imports(path) if name.startswith("tools.rig.")]
    above = {".".join(words) for words in ours if words[2] not in allowed}
    assert not above


@pytest.mark.parametrize("path", library(), ids=name_of)
def test_library_is_alone(path: Path) -> None:
    """Below the tasks nothing knows of Invoke, and nothing at all of nox and tests."""
    tops = {name.split(".")[0] for name in imports(path)}
    strange = {"nox", "tasks", "noxfile", "tests", "pytest"}
    assert not tops & (strange if path.parent == TASKS else {*strange, "invoke"})


@pytest.mark.parametrize("path", library(), ids=name_of)
def test_processes_start_in_the_base(path: Path) -> None:
    """No process is started anywhere but in the base, and no shell ever."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    if path.parent.name != "base":
        names = set(imports(path))
        assert not {n for n in names if n.split(".")[0] in ("subprocess", "pty")}
        calls = {
            f"{node.value.id}.{node.attr}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        }
        started = ("os.system", "os.popen", "os.fork", "os.posix_spawn", "os.execv")
        assert not calls & set(started)
    words = [k for n in ast.walk(tree) if isinstance(n, ast.Call) for k in n.keywords]
    assert not [k for k in words if k.arg == "shell"]


@pytest.mark.parametrize("path", everything(), ids=name_of)
def test_host_rules(path: Path) -> None:
    """What the host repository refuses stays out: ``re``, pickle, a missing head."""
    assert path.stat().st_size == 0 or path.read_text(encoding="utf-8").startswith(HEAD)
    names = {name.split(".")[0] for name in imports(path)}
    assert not names & {"re", "pickle", "cloudpickle"}


@pytest.mark.parametrize("path", library(), ids=name_of)
def test_size(path: Path) -> None:
    """A file is one noun or one verb, and fits into a head."""
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MOST_LINES


@pytest.mark.parametrize("path", sorted(TASKS.glob("*.py")), ids=name_of)
def test_tasks_are_thin(path: Path) -> None:
    """A task finds the command and calls it; the work lies in the library."""
    tree = ast.parse(path.read_bytes())
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno is not None
            # options are declared one a line, and are no work
            lines = node.end_lineno - node.body[0].lineno
            assert lines < MOST_LINES_OF_A_TASK, node.name
            assert not [
                n for n in ast.walk(node) if isinstance(n, (ast.For, ast.While))
            ]


@pytest.mark.parametrize("path", [ROOT / "tasks.py", *sorted(TASKS.glob("*.py"))])
def test_listing_stays_fast(path: Path) -> None:
    """Reading the tasks imports nothing below them: ``invoke --list`` is at once."""
    tree = ast.parse(path.read_bytes())
    top = [n for n in tree.body if isinstance(n, (ast.Import, ast.ImportFrom))]
    names = [getattr(n, "module", None) or n.names[0].name for n in top]
    ours = [name for name in names if name.startswith("tools")]
    assert not [name for name in ours if not name.startswith("tools.rig.tasks")]
