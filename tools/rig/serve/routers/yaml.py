# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Plain data as YAML: every text in double quotes, which JSON and YAML read alike."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import regex as re

_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


def document(data: Mapping[str, Any], head: Sequence[str]) -> str:
    """Return a document with comments above it."""
    comments = [f"# {line}".rstrip() for line in head]
    return "\n".join([*comments, *_lines(data)]) + "\n"


def _lines(data: Any) -> list[str]:
    if isinstance(data, Mapping) and data:
        return [line for k, v in data.items() for line in _under(f"{_key(k)}:", v)]
    if isinstance(data, (list, tuple)) and data:
        return [line for one in data for line in _item(one)]
    return [_scalar(data)]


def _under(head: str, value: Any) -> list[str]:
    if isinstance(value, (Mapping, list, tuple)) and value:
        return [head, *(f"  {line}" for line in _lines(value))]
    return [f"{head} {_scalar(value)}"]


def _item(value: Any) -> list[str]:
    first, *rest = _lines(value)
    return [f"- {first}", *(f"  {line}" for line in rest)]


def _key(key: str) -> str:
    plain = _KEY.fullmatch(key) and key.lower() not in _WORDS
    return key if plain else json.dumps(key, ensure_ascii=False)


def _scalar(value: Any) -> str:
    # what may break a line inside quotes is escaped
    text = json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)
