# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The memory of cards before and after a server."""

from __future__ import annotations

from tools.rig.host.gpu import Card, Gpus, Use
from tools.rig.serve import cards

GIB = 1 << 30


def a_card(index: int, used: int | None, *users: tuple[int, int | None]) -> Card:
    """Return a card of 16 GiB."""
    uses = tuple(Use(pid, held) for pid, held in users)
    return Card(index, "V100", f"GPU-{index}", "", 70, 16 * GIB, used, uses)


def gpus(*found: Card) -> Gpus:
    """Return a machine with cards."""
    return Gpus("present", cards=found)


def test_growth_of_others_is_not_ours() -> None:
    """What others took in the meantime is subtracted, process by process."""
    before = cards.baseline(
        [0, 1, 7], lambda: gpus(a_card(0, GIB, (50, GIB)), a_card(1, 0))
    )
    assert set(before) == {"0", "1"}
    now = gpus(a_card(0, 6 * GIB, (50, 3 * GIB), (60, 2 * GIB)), a_card(1, 2 * GIB))
    first, second = cards.returned([0, 1], before, [99], lambda: now)
    assert first == cards.Returned(0, GIB, ())
    assert (first.back, second.back) == (False, False)
    assert str(second) == "card 1: 2.0 GiB did not come back"
    now = gpus(a_card(0, 3 * GIB, (50, 2 * GIB), (60, GIB)), a_card(1, 0, (99, 0)))
    first, second = cards.returned([0, 1], before, [99], lambda: now)
    assert first.back and str(first) == "card 0: memory is back"
    assert not second.back and "PID 99" in str(second)


def test_what_the_driver_does_not_tell() -> None:
    """Unknown memory is unknown, neither back nor missing."""
    before = cards.baseline([0], lambda: gpus(a_card(0, GIB)))
    secret = gpus(a_card(0, 2 * GIB, (60, None)))
    [found] = cards.returned([0], before, [99], lambda: secret)
    assert found.missing is None and "unknown" in str(found)
    [found] = cards.returned([3], before, [99], lambda: secret)
    assert found.missing is None
    assert cards.returned([], {}, [99]) == []
    blind = gpus(a_card(0, None))
    assert cards.returned([0], before, [], lambda: blind)[0].missing is None


def test_use_of_cards() -> None:
    """What a server's own processes hold on each of its cards."""
    now = gpus(
        a_card(0, 5 * GIB, (1, GIB), (2, GIB), (3, GIB)), a_card(1, 0, (1, None))
    )
    assert cards.use([0, 1], [1, 2], lambda: now) == [
        cards.CardUse(0, 5 * GIB, 16 * GIB, 2 * GIB),
        cards.CardUse(1, 0, 16 * GIB, None),
    ]
    assert cards.use([], [1]) == []
