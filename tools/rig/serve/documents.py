# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The small files of a model's folder, read as its server will read them."""

from __future__ import annotations

import codecs
import json
from pathlib import Path
from typing import Any

import regex as re

from tools.rig.base.errors import quoted
from tools.rig.base.regular_file import opened
from tools.rig.serve.problem import Problem

LARGEST = 64 << 20
"""Bytes of the largest JSON file that is read; the index of a model with 100,000
tensors has about 10 MB."""

PARSED = 4 << 20
"""Bytes of the largest tokenizer.json that is parsed: one of 39 MB takes half a second;
in a larger one the ends and the key of its model are looked for."""

TOKENIZERS = (
    "tokenizer.json",
    "tokenizer.model",
    "tekken.json",
    "spiece.model",
    "sentencepiece.bpe.model",
)

_MODEL = re.compile(rb'"model"\s*+:\s*+\{')
"""A word of the vocabulary has a number behind it, and no object."""

_MARKS = (
    (codecs.BOM_UTF8, "UTF-8 with a byte order mark", "tail -c +4"),
    # that of UTF-32 begins like that of UTF-16
    (codecs.BOM_UTF32_LE, "UTF-32", "iconv -f UTF-32 -t UTF-8"),
    (codecs.BOM_UTF32_BE, "UTF-32", "iconv -f UTF-32 -t UTF-8"),
    (codecs.BOM_UTF16_LE, "UTF-16", "iconv -f UTF-16 -t UTF-8"),
    (codecs.BOM_UTF16_BE, "UTF-16", "iconv -f UTF-16 -t UTF-8"),
    (b"{\0", "UTF-16", "iconv -f UTF-16LE -t UTF-8"),
    (b"\0{", "UTF-16", "iconv -f UTF-16BE -t UTF-8"),
)
"""How files begin that some programs write: in words, and what makes UTF-8 of it."""


def read(path: Path, problems: list[Problem], *, whole: bool = True) -> dict[str, Any]:
    """Return the object that a JSON file holds; an empty one with a problem more.

    Without `whole` a file above :data:`LARGEST` is not looked into, and no problem.
    """
    data = _data(path, problems)
    if data is None or (len(data) > LARGEST and not whole):
        return {}
    return _object(path, data, problems)


def _data(path: Path, problems: list[Problem]) -> bytes | None:
    try:
        with opened(path) as stream:
            return stream.read(LARGEST + 1)
    except OSError as exc:
        problems.append(unreadable(path, exc))
        return None


def _object(path: Path, data: bytes, problems: list[Problem]) -> dict[str, Any]:
    try:
        # by itself json also reads what the server, which takes UTF-8 alone, does not
        found = json.loads(data.decode()) if len(data) <= LARGEST else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        problems.append(_misread(path, data))
        return {}
    return found


def _misread(path: Path, data: bytes) -> Problem:
    for mark, name, way in _MARKS:
        if data.startswith(mark):
            new = quoted(path.with_name(f"{path.name}.new"))
            return Problem(
                f"{path} is not the JSON that it should be: it is {name}, and is "
                "read as UTF-8 without a byte order mark",
                f"{way} < {quoted(path)} > {new} && mv {new} {quoted(path)}",
            )
    return Problem(f"{path} is not the JSON that it should be", f"cat {quoted(path)}")


def unreadable(path: Path, exc: OSError) -> Problem:
    """Return the problem of a file that cannot be read."""
    return Problem(
        f"cannot read {path}: {exc.strerror or exc}", f"ls -lL {quoted(path)}"
    )


def tokenizers(path: Path, names: list[str]) -> list[Problem]:
    """Return what is wrong with the tokenizer among the names of a folder."""
    found: list[Problem] = []
    if not _has_one(names):
        found.append(
            Problem(f"no tokenizer in {path}", f"ls {quoted(path)}/tokenizer*")
        )
    for name in (*TOKENIZERS, "tokenizer_config.json"):
        if name in names and name == "tokenizer.json":
            _of_tokenizers(path / name, found)
        elif name in names and name.endswith(".json"):
            read(path / name, found, whole=False)
        elif name in names:
            try:
                with opened(path / name) as stream:
                    if not stream.read(1):
                        what = f"{path / name} is empty"
                        found.append(Problem(what, "download it again"))
            except OSError as exc:
                found.append(unreadable(path / name, exc))
    return found


def _of_tokenizers(path: Path, problems: list[Problem]) -> None:
    """Look whether a file is one of the library tokenizers, which has a model always.

    Without it the server fails with ``KeyError: 'added_tokens'`` after it has loaded.
    """
    data = _data(path, problems)
    if data is None or len(data) > LARGEST:
        return
    before = len(problems)
    ends = data[:64].lstrip()[:1] + data[-64:].rstrip()[-1:]
    if len(data) > PARSED and ends == b"{}":
        has_model = _MODEL.search(data) is not None
    else:
        has_model = isinstance(_object(path, data, problems).get("model"), dict)
    if not has_model and len(problems) == before:
        what = f"{path} is no tokenizer: it has no model"
        problems.append(Problem(what, "download it again"))


def _has_one(names: list[str]) -> bool:
    if any(name in names for name in TOKENIZERS):
        return True
    if "vocab.json" in names and "merges.txt" in names:
        return True
    return any(n.endswith((".tiktoken", ".tokenizer", ".vocab")) for n in names)
