# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What people type, brought into a form that Invoke's parser takes."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NoReturn

import regex as re

from tools.rig.base.errors import UsageError

SHARED = frozenset({"source", "profile"})
"""Flags that say what a command is about: without them a hint is about others."""

_TASK = re.compile(
    r"\binvoke (?P<task>doctor|cuda-toolkit|shim-glibc|git-safe|venv-local|plan"
    r"|build-sm70|in-use|verify|install-wheel|activate|rollback|builds|report"
    r"|capacity|serve-tp2|serve-unit|serve-router|bundle)\b(?P<rest>[^&|;]*)"
)
_MARK = re.compile(r".*?hint: |\s*\$ ")
_INVOKE = re.compile(r"\binvoke (?=[a-z][a-z0-9-]*\b)")
_WITHOUT = {
    "source": frozenset({"report", "capacity"}),
    "profile": frozenset({"git-safe", "in-use", "builds", "report"}),
}
"""Tasks that know no such flag, and would refuse it."""


def words_as_flags(
    words: list[str], task: str, flag: str, with_value: Collection[str]
) -> list[str]:
    """Turn the plain words behind a task into a repeated flag.

    Invoke's tasks take no list of words, and it takes a single ``-``, by which people
    mean standard input, for a flag.

    Parameters
    ----------
    words
        The command line behind Invoke's own options.
    task
        The task whose words these are; it is the last one of the line.
    flag
        The flag that each word becomes.
    with_value
        The task's flags whose next word is their value.
    """
    if task not in words:
        return words
    behind = words.index(task) + 1
    out = words[:behind]
    is_value = False
    rest = words[behind:]
    ended = False
    for word in rest:
        if word == "--" and not ended:
            # what follows is a name, whatever it begins with
            ended = True
            continue
        plain = ended or word == "-" or not word.startswith("-")
        out.append(f"{flag}={word}" if plain and not is_value else word)
        is_value = word in with_value
    return out


def rest_as_flag(
    words: list[str], argv: list[str], tasks: Collection[str], flag: str
) -> list[str]:
    """Turn the words behind ``--`` into one flag, as a JSON list: Invoke joins them.

    Parameters
    ----------
    words
        The command line as Invoke has split it.
    argv
        The command line as it was typed.
    tasks, flag
        The tasks that take them, and the flag that they become.
    """
    if "--" not in argv or not any(word in tasks for word in words):
        return words
    return [*words, f"{flag}={json.dumps(argv[argv.index('--') + 1 :])}"]


def empty_options(tasks: Iterable[Any]) -> dict[str, list[str]]:
    """Return the options that were given with nothing in them, by their task.

    Parameters
    ----------
    tasks
        What Invoke made of the command line: each has a name and its arguments.
    """
    found: dict[str, list[str]] = {}
    for task in tasks:
        for one in task.args.values():
            listed = one.value if isinstance(one.value, list) else ()
            if one.raw_value == "" or "" in listed:
                found.setdefault(str(task.name), []).append(f"--{one.names[0]}")
    return found


def refuse_empty(empty: Mapping[str, Sequence[str]]) -> NoReturn:
    """Refuse options that were given with nothing in them.

    Raises
    ------
    UsageError
        Always.
    """
    task, names = next(iter(empty.items()))
    raise UsageError(
        f"{task}: nothing is given for {' and '.join(dict.fromkeys(names))}",
        usual="A variable that is not set, perhaps.",
        hint=f"invoke --help {task}",
    )


def hint(line: str, runner: str, flags: Mapping[str, str]) -> str:
    """Return a line with a command to type so that it can be typed as it stands.

    A command stands behind ``hint:`` or a dollar sign; other lines stay as they are.

    Parameters
    ----------
    line
        The line; its hint may name several commands.
    runner
        What runs a task where ``invoke`` is not at hand; empty where it is.
    flags
        ``source`` and ``profile`` as the user typed them, where they were typed.
    """
    found = _MARK.match(line)
    if found is None:
        return line
    head, said = line[: found.end()], line[found.end() :]

    def whole(match: re.Match[str]) -> str:
        task, rest = match["task"], match["rest"]
        more = "".join(
            f" --{name} {shlex.quote(value)}"
            for name, value in sorted(flags.items())
            if name in SHARED
            and value
            and f"--{name}" not in rest
            and task not in _WITHOUT[name]
        )
        return f"invoke {task}{more}{rest}"

    said = _TASK.sub(whole, said)
    if runner:
        # not as a pattern of its own: a path may hold backslashes
        said = _INVOKE.sub(lambda _: f"{runner} ", said)
    return head + str(said)
