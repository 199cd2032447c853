# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A copy of a C header with single declarations off and all line numbers kept."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path


def shadow(text: str, lines: Sequence[int], source: Path, names: Sequence[str]) -> str:
    """Return `text` without the declarations that stand on `lines`.

    One line of glibc's ``bits/mathcalls.h`` is a macro call that declares the double,
    float, long double and _FloatN forms of a function together, so these go together.

    Parameters
    ----------
    text
        The header's content.
    lines
        Numbers, from 1, of lines on which a clashing declaration stands.
    source
        Where the header lies; compilers name this place in their messages, so that a
        second round finds its line in the original too.
    names
        The functions, for the comment at the top.
    """
    body = text.split("\n")
    for number in lines:
        first, last = _extent(body, number - 1)
        for i in range(first, last + 1):
            body[i] = "/* off: CUDA declares this function differently */"
    quoted = os.fspath(source).replace("\\", "\\\\").replace('"', '\\"')
    head = [
        f"/* Made from {source.name} of this system; do not keep or share.",
        f"   Off: {', '.join(names)}. */",
        "#pragma GCC system_header",
        f'#line 1 "{quoted}"',
    ]
    return "\n".join([*head, *body])


def _extent(body: Sequence[str], at: int) -> tuple[int, int]:
    """Return the first and last line of the declaration around line `at` (from 0)."""
    if not 0 <= at < len(body):
        return at, at - 1
    first = at
    while first > 0 and _goes_on(body[first - 1]):
        first -= 1
    last = at
    while last + 1 < len(body) and _goes_on(body[last]):
        last += 1
    return first, last


def _goes_on(line: str) -> bool:
    """Say whether a declaration on this line is not finished at its end."""
    text = line.strip()
    if not text or text.startswith(("#", "/*", "//")):
        return False
    return not text.endswith((";", "}", "*/", "{"))
