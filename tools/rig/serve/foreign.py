# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a model's folder brings along: anybody may have written it."""

from __future__ import annotations

MOST = 200
"""Characters of a text that a message shows at most."""


def escaped(text: str) -> str:
    """Return a text in which a terminal finds nothing to obey."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escape(c) for c in text)


def shown(value: object) -> str:
    """Return a value for a message: without control characters, and not long."""
    if not isinstance(value, (str, int, float)):
        # what holds others may be as deep as it likes
        return f"a {type(value).__name__}"
    text = str(value)
    return escaped(text if len(text) <= MOST else text[: MOST - 3] + "...")


def _escape(char: str) -> str:
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
