# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The file of ``--config``, taken apart into the options that vLLM would read in it.

So they are looked at like those that are typed: an address, a key or a number of ranks
in a file would slip by otherwise. The server gets the options and not the file.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.rig.base import redact, run
from tools.rig.base.errors import UsageError
from tools.rig.base.regular_file import opened
from tools.rig.serve import flags
from tools.rig.serve.flags import Given
from tools.rig.serve.parser import Parser

LARGEST = 1 << 20
"""Bytes of the largest file that is read."""

ENDINGS = (".yaml", ".yml")
"""vLLM takes no others (``vllm/utils/argparse_utils.py``)."""

_READ_S = 60.0
_CHILD = Path(__file__).with_name("config_child.py")


@dataclass(frozen=True)
class Typed:
    """Words for vLLM: those in a file, and those that were typed, which win.

    ``file`` is None, and `words` are empty, where none was named.
    """

    rest: tuple[str, ...]
    words: tuple[str, ...] = ()
    file: Path | None = None


def taken_apart(
    rest: Sequence[str],
    parser: Parser,
    python: Path,
    *,
    env: Mapping[str, str],
    cwd: Path,
) -> Typed:
    """Return words with the file that they name read, if they name one.

    Parameters
    ----------
    python
        The interpreter of the environment whose vLLM is meant.
    cwd
        Where a relative path begins.

    Raises
    ------
    UsageError
        When the file cannot be read as vLLM reads it, or there are two.
    """
    named = [
        given
        for given in flags.read(parser, rest).given
        if given.option.dest == "config" and given.value
    ]
    if not named:
        return Typed((*rest,))
    if len(named) > 1:
        raise UsageError(
            "--config is there twice", hint="put all of it into one of the files"
        )
    file = cwd / named[0].value
    words = _words(_read(file, python, env), parser, file)
    # by whatever spelling, also as an item of a list: vLLM would read that file, and
    # nobody would have looked into it
    if any(g.option.dest == "config" for g in flags.read(parser, words).given):
        raise UsageError(
            f"{file} names another file of options",
            usual="Options stand in one file, which is looked at before a start.",
            hint="put all of it into one of the files",
        )
    return Typed(_without(rest, named[0]), tuple(words), file)


def _without(rest: Sequence[str], given: Given) -> tuple[str, ...]:
    return (*rest[: given.at], *rest[given.at + given.count :])


def _read(file: Path, python: Path, env: Mapping[str, str]) -> list[Any]:
    quoted = shlex.quote(os.fspath(file))
    if file.suffix not in ENDINGS:
        raise UsageError(
            f"vLLM reads no options in {file}: its name must end in .yaml or .yml",
            hint=f"mv {quoted} {shlex.quote(os.fspath(file.with_suffix('.yaml')))}",
        )
    try:
        with opened(file) as stream:
            data = stream.read(LARGEST + 1)
    except OSError as exc:
        raise UsageError(
            f"cannot read {file}: {exc.strerror}", hint=f"ls -lL {quoted}"
        ) from exc
    if len(data) > LARGEST:
        raise UsageError(
            f"{file} is larger than {LARGEST >> 20} MiB", hint=f"ls -lL {quoted}"
        )
    result = run.run(
        [python, "-I", _CHILD],
        env=env,
        cwd="/",
        timeout=_READ_S,
        input_text=data.decode("utf-8", "replace"),
    )
    try:
        pairs = json.loads(result.out)
    except ValueError:
        pairs = None
    if not isinstance(pairs, list):
        raise UsageError(
            f"{file} holds no options as YAML has them",
            details=[redact.text(line) for line in result.err.splitlines()[-1:]],
            usual="One line for each, without dashes: max-model-len: 8192",
            hint=f"less {quoted}",
        )
    return pairs


def _words(pairs: Sequence[Any], parser: Parser, file: Path) -> list[str]:
    """Return options as vLLM makes them of keys and values."""
    words: list[str] = []
    for key, value in pairs:
        if not isinstance(key, str):
            raise UsageError(
                f"{key} in {file} is no name of an option",
                hint=f"less {shlex.quote(os.fspath(file))}",
            )
        flag = f"--{key}"
        if isinstance(value, bool):
            off = f"--no-{key}"
            words += [flag] if value else [off] if parser.has(_dashed(off)) else []
        elif isinstance(value, list):
            words += [flag, *map(str, value)] if value else []
        elif isinstance(value, dict):
            words += [flag, json.dumps(value)]
        else:
            words.append(f"{flag}={value}")
    return words


def _dashed(flag: str) -> str:
    return "--" + flag[2:].replace("_", "-")
