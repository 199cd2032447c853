# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Pieces of a page, every text in them escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import regex as re

_BREAKS = re.compile(r"(?<=[/_])(?=.)")


def text(value: object) -> str:
    """Return a text for a page, whatever stands in it."""
    return escape(str(value))


def path(value: str) -> str:
    """Return a path or a name that may be broken where its parts meet."""
    return "<wbr>".join(escape(part) for part in _BREAKS.split(value))


def thing(name: str, folder: str = "") -> str:
    """Return a name with its folder below it."""
    below = f'<span class="folder">{path(folder)}</span>' if folder else ""
    return f'<span class="name">{path(name)}</span>{below}'


def lead(name: str, folder: str, share: float, state: str = "cuda") -> tuple[str, str]:
    """Return the two cells that begin a row: what it is, and its bar.

    A small screen has no room for the second, so the bar stands in the first too.
    """
    made = bar(share, state)
    return f'{thing(name, folder)}<div class="under">{made}</div>', made


def bar(share: float, state: str = "cuda") -> str:
    """Return a bar whose length is a share of what there is room for."""
    wide = max(0.0, min(1.0, share)) * 100
    style = f"width:{wide:.1f}%;background:var(--{escape(state)})"
    return f'<span class="bar" aria-hidden="true"><i style="{style}"></i></span>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]], label: str) -> str:
    """Return a table of cells that are pieces already.

    A heading that begins with ``-`` stands over a column that a small screen leaves
    out; ``-`` alone over bars.
    """
    kinds = [_kind(at, name) for at, name in enumerate(head)]
    tops = "".join(
        f'<th scope="col" class="{kind}">{text(name.lstrip("-"))}</th>'
        for kind, name in zip(kinds, head, strict=True)
    )
    lines = "".join(
        "<tr>"
        + "".join(
            f'<td class="{kind}">{cell}</td>'
            for kind, cell in zip(kinds, row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return (
        f'<table aria-label="{text(label)}"><thead><tr>{tops}</tr></thead>'
        f"<tbody>{lines}</tbody></table>"
    )


def section(title: str, said: str, body: str, *, anchor: str) -> str:
    """Return a section: what it is, what it says, what shows it."""
    words = f"<p>{text(said)}</p>" if said else ""
    return f'<section id="{anchor}"><h2>{text(title)}</h2>{words}{body}</section>'


def more(title: str, body: str) -> str:
    """Return what is folded until somebody asks."""
    return f"<details><summary>{text(title)}</summary>{body}</details>"


def plot(drawn: Mapping[str, str] | None, label: str) -> str:
    """Return a drawing in both widths; the page's style shows the one that fits."""
    if not drawn:
        return ""
    views = "".join(
        f'<div class="{width}" role="img" aria-label="{text(label)}">{svg}</div>'
        for width, svg in drawn.items()
    )
    return f'<figure class="plot">{views}</figure>'


def pairs(rows: Iterable[tuple[str, Any]]) -> str:
    """Return names with their values; those without a value are left out."""
    told = "".join(
        f"<dt>{text(name)}</dt><dd>{path(str(value))}</dd>"
        for name, value in rows
        if value not in (None, "", [])
    )
    return f"<dl>{told}</dl>"


def _kind(at: int, heading: str) -> str:
    """Return the classes of a column."""
    if heading == "-":
        return "bars extra"
    extra = " extra" if heading.startswith("-") else ""
    return f"n{extra}" if at else "what"
