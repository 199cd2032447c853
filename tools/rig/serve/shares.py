# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""How several models share the memory of the same cards.

Each server takes a share of a card's whole memory (``--gpu-memory-utilization``) and
knows nothing of the others: the shares must not add up to more than there is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tools.rig.base.errors import UsageError
from tools.rig.serve import capacity
from tools.rig.serve.capacity import Capacity, Options
from tools.rig.serve.folder import ModelFolder

CONTEXT = 4096
"""Tokens of one sequence that must go in, where a model's options name none."""

_CENT = 100
"""Shares are counted in hundredths."""


@dataclass(frozen=True)
class Tenant:
    """One model on the cards.

    Attributes
    ----------
    name
        The model's name.
    model
        Its folder.
    options
        How it is to be served; ``max_len`` is the context that must go in, and 0 means
        :data:`CONTEXT`.
    """

    name: str
    model: ModelFolder
    options: Options


@dataclass(frozen=True)
class Shares:
    """The answer.

    Attributes
    ----------
    shares
        The share of each model by name; empty: they do not fit together.
    plans
        What each gets with its share.
    least
        The least share of each that holds its weights and one context; above 1 means
        that it does not fit even alone.
    why
        In words.
    """

    shares: Mapping[str, float]
    plans: Mapping[str, Capacity]
    least: Mapping[str, float]
    why: str

    @property
    def fits(self) -> bool:
        """Whether all fit at once."""
        return bool(self.shares)


def plan(tenants: Sequence[Tenant]) -> Shares:
    """Return shares with which all models fit on the same cards, if they do.

    Each gets the least that it needs; what is left goes to all alike.

    Raises
    ------
    UsageError
        When there are no models, or two of one name.
    RigError
        For a folder that says too little.
    """
    names = [one.name for one in tenants]
    if not names or len({*names}) < len(names):
        raise UsageError(
            "models that share cards want names of their own",
            hint="--served-model-name NAME",
        )
    least = {one.name: _least(one) for one in tenants}
    total = capacity.UTILISATION
    room = int(total * _CENT + 0.5)
    left = room - sum(least.values())
    shown = {name: cents / _CENT for name, cents in least.items()}
    if left < 0:
        words = ", ".join(
            f"{n} {v:.2f}" if v <= 1 else f"{n} more than a card"
            for n, v in shown.items()
        )
        return Shares(
            {}, {}, shown, f"they need {words}: more than {total:.2f} together"
        )
    each, odd = divmod(left, len(tenants))
    shares, plans = {}, {}
    for at, one in enumerate(tenants):
        share = (least[one.name] + each + (at < odd)) / _CENT
        shares[one.name] = share
        wish = replace(one.options, utilisation=share)
        plans[one.name] = capacity.plan(one.model, wish)
    words = ", ".join(f"{name} {share:.2f}" for name, share in shares.items())
    return Shares(shares, plans, shown, f"they fit together: {words}")


def _least(one: Tenant) -> int:
    """Return the least share in hundredths; 101 where none is enough."""
    low, high = 0, _CENT + 1
    while high - low > 1:
        middle = (low + high) // 2
        got = capacity.plan(one.model, replace(one.options, utilisation=middle / _CENT))
        wanted = min(one.options.max_len or CONTEXT, got.limit)
        enough = all(card.kv > 0 for card in got.cards) and got.longest >= wanted
        low, high = (low, middle) if enough else (middle, high)
    return high
