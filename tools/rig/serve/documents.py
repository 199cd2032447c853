# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The small files of a model's folder, and what is wrong with one."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.rig.serve.foreign import escaped, opened

LARGEST = 64 << 20
"""Bytes of the largest JSON file that is read; the index of a model with 100,000
tensors has about 10 MB."""

TOKENIZERS = (
    "tokenizer.json",
    "tokenizer.model",
    "tekken.json",
    "spiece.model",
    "sentencepiece.bpe.model",
)


@dataclass(frozen=True)
class Problem:
    """What is wrong with a model, and a command that helps.

    ``level`` is ``error`` (a server would fail), ``unknown`` (cannot be told from
    here) or ``note``; ``busy`` says that somebody has it now who may give it back, so
    that trying again later may help. Control characters in the texts are escaped: names
    and words of a model's files reach a terminal by them.
    """

    what: str
    hint: str = ""
    level: str = "error"
    busy: bool = False

    def __post_init__(self) -> None:
        """Escape what a terminal would obey."""
        object.__setattr__(self, "what", escaped(self.what))
        object.__setattr__(self, "hint", escaped(self.hint))


def read(path: Path, problems: list[Problem], *, whole: bool = True) -> dict[str, Any]:
    """Return the object that a JSON file holds; an empty one with a problem more.

    Without `whole` a file above :data:`LARGEST` is not looked into, and no problem.
    """
    try:
        with opened(path) as stream:
            data = stream.read(LARGEST + 1)
        if len(data) > LARGEST and not whole:
            return {}
        found = json.loads(data) if len(data) <= LARGEST else None
    except OSError as exc:
        problems.append(unreadable(path, exc))
        return {}
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        problems.append(
            Problem(f"{path} is not the JSON that it should be", f"cat {quoted(path)}")
        )
        return {}
    return found


def unreadable(path: Path, exc: OSError) -> Problem:
    """Return the problem of a file that cannot be read."""
    return Problem(
        f"cannot read {path}: {exc.strerror or exc}", f"ls -lL {quoted(path)}"
    )


def quoted(path: Path) -> str:
    """Return a path as a shell takes it."""
    return shlex.quote(os.fspath(path))


def tokenizers(path: Path, names: list[str]) -> list[Problem]:
    """Return what is wrong with the tokenizer among the names of a folder."""
    found: list[Problem] = []
    if not _has_one(names):
        found.append(
            Problem(f"no tokenizer in {path}", f"ls {quoted(path)}/tokenizer*")
        )
    for name in TOKENIZERS:
        if name in names and name.endswith(".json"):
            read(path / name, found, whole=False)
        elif name in names:
            try:
                with opened(path / name) as stream:
                    if not stream.read(1):
                        found.append(Problem(f"{path / name} is empty"))
            except OSError as exc:
                found.append(unreadable(path / name, exc))
    return found


def _has_one(names: list[str]) -> bool:
    if any(name in names for name in TOKENIZERS):
        return True
    if "vocab.json" in names and "merges.txt" in names:
        return True
    return any(n.endswith((".tiktoken", ".tokenizer", ".vocab")) for n in names)
