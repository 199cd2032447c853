# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What people type reaches the tasks, and what hints say can be typed."""

from __future__ import annotations

import pytest

import tasks
from tools.rig.base import typed

LOG_FLAGS = ("--log", "--lang")
HERE = {"source": "/a b", "profile": "sample"}


@pytest.mark.parametrize(
    ("words", "parsed"),
    [
        (["doctor"], ["doctor"]),
        (["diagnose"], ["diagnose"]),
        (["diagnose", "a b", "-"], ["diagnose", "--log=a b", "--log=-"]),
        (
            ["diagnose", "--json", "--lang", "zh", "x"],
            ["diagnose", "--json", "--lang", "zh", "--log=x"],
        ),
        (["diagnose", "--json", "--", "-x"], ["diagnose", "--json", "--log=-x"]),
        (["diagnose", "--log", "x", "--lang=en"],) * 2,
    ],
)
def test_words_behind_a_task(words: list[str], parsed: list[str]) -> None:
    """Invoke knows no lists of words, so each becomes a flag."""
    assert typed.words_as_flags(words, "diagnose", "--log", LOG_FLAGS) == parsed


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("hint: invoke doctor", "hint: invoke doctor --profile sample --source '/a b'"),
        (
            "hint: mv 'S' x && invoke venv-local",
            "hint: mv 'S' x && invoke venv-local --profile sample --source '/a b'",
        ),
        (
            "hint: invoke build-sm70 --source /c",
            "hint: invoke build-sm70 --profile sample --source /c",
        ),
        ("hint: invoke in-use", "hint: invoke in-use --source '/a b'"),
        ("hint: invoke diagnose", "hint: invoke diagnose"),
        ("hint: invoke builds", "hint: invoke builds --source '/a b'"),
        ("hint: invoke report", "hint: invoke report"),
        ("hint: invoke --list", "hint: invoke --list"),
        (
            "    $ invoke shim-glibc",
            "    $ invoke shim-glibc --profile sample --source '/a b'",
        ),
        ("no invoke doctor here", "no invoke doctor here"),
    ],
)
def test_hints_are_about_the_same(line: str, said: str) -> None:
    """What was typed to say what it is about stands in the hint as well."""
    assert typed.hint(line, "", HERE) == said


def test_no_hint_is_refused() -> None:
    """Every task knows the flags that a hint gives it."""
    for name in tasks.namespace.task_names:
        known = {f"--{its.name}" for its in tasks.namespace[name].get_arguments()}
        words = typed.hint(f"hint: invoke {name}", "", HERE).split()
        assert {word for word in words if word.startswith("--")} <= known, name


def test_hints_with_nothing_typed() -> None:
    """Nothing is added that was not typed."""
    line = "hint: invoke doctor"
    assert typed.hint(line, "", {"source": "", "profile": "", "jobs": "3"}) == line


def test_hints_where_invoke_is_not_at_hand() -> None:
    """Every command of a hint goes through what runs tasks there."""
    line = "hint: invoke venv-local && invoke diagnose"
    runner = "tools/nox -s task --"
    assert typed.hint(line, runner, {}) == (
        f"hint: {runner} venv-local && {runner} diagnose"
    )
