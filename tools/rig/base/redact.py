# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Takes secrets out of anything that is written: records, logs, names of processes,
messages.

A value is a secret when its name says so (``HF_TOKEN``, ``--api-key``), when its shape
is that of a known token, or when it is the password of a URL. What is replaced becomes
``***``, so that a reader sees that something was there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import regex as re

MASK = "***"

_NAME = r"[A-Za-z0-9_.-]*(?:token|secret|passw(?:or)?d|passphrase|api[_-]?key|access[_-]?key|private[_-]?key|credential|authorization|cookie)[A-Za-z0-9_.-]*"
_SECRET_NAME = re.compile(rf"^-{{0,2}}{_NAME}$", re.IGNORECASE)
_ASSIGNED = re.compile(
    rf"(?P<name>(?<![A-Za-z0-9_])-{{0,2}}{_NAME})(?P<sep>\s*[=:]\s*|\s+)(?P<value>\"[^\"]*\"|'[^']*'|[^\s,;]+)",
    re.IGNORECASE,
)
_BEARER = re.compile(r"\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE)
_URL = re.compile(
    r"(?P<head>[a-z][a-z0-9+.-]*://)(?P<user>[^\s/@:]*)(?::[^\s/@]*)?@", re.IGNORECASE
)
_SHAPES = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|sk-[A-Za-z0-9_-]{16,}|"
    r"AKIA[0-9A-Z]{16}|xox[abpr]-[A-Za-z0-9-]{10,}|glpat-[A-Za-z0-9_-]{16,}|pypi-[A-Za-z0-9_-]{20,})"
)


def is_secret_name(name: str) -> bool:
    """Say whether a variable or option of this name holds a secret."""
    return bool(_SECRET_NAME.match(name))


def text(value: str) -> str:
    """Return `value` with every secret in it masked."""
    value = _URL.sub(rf"\g<head>{MASK}@", value)
    value = _BEARER.sub(rf"\1 {MASK}", value)
    value = _ASSIGNED.sub(_mask_assigned, value)
    return _SHAPES.sub(MASK, value)


def argv(args: Iterable[str]) -> list[str]:
    """Return a command line with secrets masked, also where the value is an argument of
    its own.
    """
    out: list[str] = []
    hide_next = False
    for arg in args:
        if hide_next and not arg.startswith("-"):
            out.append(MASK)
        else:
            out.append(text(arg))
        hide_next = arg.startswith("-") and "=" not in arg and is_secret_name(arg)
    return out


def env(values: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return environment values with secrets masked by name and by shape."""
    return {
        k: (v if v is None else MASK if is_secret_name(k) else text(v))
        for k, v in values.items()
    }


def _mask_assigned(match: re.Match[str]) -> str:
    # "token is": prose after a telling word is no assignment; an option or a NAME=value
    # is
    if match["sep"].isspace() and not match["name"].startswith("-"):
        return match[0]
    return f"{match['name']}{match['sep']}{MASK}"
