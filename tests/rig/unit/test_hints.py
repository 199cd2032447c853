# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a message says to type, read from the syntax trees of the library."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

RIG = Path(__file__).parents[3] / "tools" / "rig"
FAILURES = frozenset({"StepFailed", "CannotError", "UsageError", "InUseError"})


def library() -> list[Path]:
    """Return the library's own files; the sample target is somebody else's house."""
    return sorted(p for p in RIG.rglob("*.py") if "sample_target" not in p.parts)


def name_of(path: Path) -> str:
    """Return a file's place in the library, for the names of tests."""
    return path.relative_to(RIG).as_posix()


def hints(tree: ast.AST) -> Iterator[ast.JoinedStr]:
    """Yield the filled texts that are given or kept as a hint."""
    for node in ast.walk(tree):
        given = isinstance(node, ast.keyword) and node.arg == "hint"
        kept = isinstance(node, ast.Assign) and any(
            isinstance(one, ast.Name) and one.id == "hint" for one in node.targets
        )
        if given or kept:
            for part in ast.walk(node):
                if isinstance(part, ast.JoinedStr):
                    yield part


@pytest.mark.parametrize("path", library(), ids=name_of)
def test_paths_in_hints_are_quoted_as_a_shell_does(path: Path) -> None:
    """Marks around a path by hand break where an apostrophe is in it."""
    tree = ast.parse(path.read_bytes())
    broken = []
    for text in hints(tree):
        before = [value for value in text.values if isinstance(value, ast.Constant)]
        if any(str(value.value).endswith(" '") for value in before):
            broken.append(text.lineno)
    assert not broken


# no command mends what a model's own files say
OURS = [path for path in library() if path.parent != RIG / "serve"]


@pytest.mark.parametrize("path", OURS, ids=name_of)
def test_failures_end_in_a_hint(path: Path) -> None:
    """Whoever meets an expected failure is told what to type."""
    silent = []
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            words = {keyword.arg for keyword in node.keywords}
            if node.func.id in FAILURES and not words & {"hint", None}:
                silent.append(node.lineno)
    assert not silent
