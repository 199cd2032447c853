# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The memory of cards before, during and after a server, through NVML."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tools.rig.base.console import size
from tools.rig.host import gpu

SLACK = 64 << 20
"""Bytes by which a card may differ: the driver's own books are not exact."""

Ask = Callable[[], gpu.Gpus]


@dataclass(frozen=True)
class CardUse:
    """One card: bytes used in all, of which `own` by the server. None: unknown."""

    card: int
    used: int | None
    total: int | None
    own: int | None


@dataclass(frozen=True)
class Returned:
    """Whether one card has its memory back.

    ``missing`` is what is used beyond the baseline and others' growth, in bytes; None
    when the driver does not tell enough. ``holders`` are pids of the server that still
    use the card.
    """

    card: int
    missing: int | None
    holders: tuple[int, ...]

    @property
    def back(self) -> bool:
        """Whether everything that can be known is back."""
        return not self.holders and (self.missing is None or self.missing <= SLACK)

    def __str__(self) -> str:
        """Return it in words."""
        if self.holders:
            held = ", ".join(map(str, self.holders))
            return f"card {self.card}: still used by PID {held}"
        if self.missing is None:
            return f"card {self.card}: unknown, the driver does not tell"
        if self.back:
            return f"card {self.card}: memory is back"
        return f"card {self.card}: {size(self.missing)} did not come back"


def baseline(cards: Iterable[int], ask: Ask = gpu.read) -> dict[str, Any]:
    """Return what is used on cards now, and by whom, as plain data for a record."""
    found = {card.index: card for card in ask().cards}
    return {
        str(index): {
            "used": found[index].used,
            "users": {str(u.pid): u.used for u in found[index].users or ()},
        }
        for index in cards
        if index in found
    }


def use(
    cards: Iterable[int], pids: Iterable[int], ask: Ask = gpu.read
) -> list[CardUse]:
    """Return what a server's processes use on its cards."""
    wanted, own = set(cards), set(pids)
    if not wanted:
        return []
    rows = []
    for card in ask().cards:
        if card.index not in wanted:
            continue
        parts = [u.used for u in card.users or () if u.pid in own]
        known = [part for part in parts if part is not None]
        mine = (
            sum(known) if len(known) == len(parts) and card.users is not None else None
        )
        rows.append(CardUse(card.index, card.used, card.total, mine))
    return rows


def returned(
    cards: Iterable[int],
    before: Mapping[str, Any],
    pids: Iterable[int],
    ask: Ask = gpu.read,
) -> list[Returned]:
    """Say for each card whether the memory of a server that has ended is back.

    What other processes took in the meantime is not the server's: their growth is
    subtracted, process by process.

    Parameters
    ----------
    before
        See :func:`baseline`.
    pids
        The processes of the server.
    """
    wanted, own = sorted(set(cards)), set(pids)
    if not wanted:
        return []
    found = {card.index: card for card in ask().cards}
    rows = []
    for index in wanted:
        card, old = found.get(index), before.get(str(index))
        if card is None or not isinstance(old, Mapping):
            rows.append(Returned(index, None, ()))
            continue
        users = card.users or ()
        holders = tuple(u.pid for u in users if u.pid in own)
        rows.append(Returned(index, _missing(card, old), holders))
    return rows


def _missing(card: gpu.Card, old: Mapping[str, Any]) -> int | None:
    if card.used is None or card.users is None or old.get("used") is None:
        return None
    growth = 0
    users = old.get("users") or {}
    for user in card.users:
        if user.used is None:
            return None
        growth += max(0, user.used - (users.get(str(user.pid)) or 0))
    return max(0, card.used - int(old["used"]) - growth)
