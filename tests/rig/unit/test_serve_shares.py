# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""How models share the memory of the same cards."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.made_model import LLAMA, write
from tests.rig.support.unit_plans import PLAN
from tools.rig.base.errors import UsageError
from tools.rig.base.state import StateRoot
from tools.rig.serve import capacity, shares
from tools.rig.serve import model as models
from tools.rig.serve import record as records
from tools.rig.serve.capacity import Options
from tools.rig.serve.shares import Tenant
from tools.rig.steps import serve_router as step

GIB = 1 << 30
MEMORY = int(16 * GIB * capacity.USABLE)


def tenant(folder: Path, name: str, *, memory: int = MEMORY, **config: Any) -> Tenant:
    """Return a small Llama, or a larger one."""
    if not (folder / name).exists():
        write(folder / name, {**LLAMA, **config})
    return Tenant(name, models.read(folder / name), Options(memory))


def test_all_get_what_they_need(tmp_path: Path) -> None:
    """Each share holds its model, the rest is split, and all is what may be taken."""
    wide = {"hidden_size": 4096, "intermediate_size": 14336, "head_dim": 512}
    both = [tenant(tmp_path, "small"), tenant(tmp_path, "wide", **wide)]
    got = shares.plan(both)
    assert got.fits
    assert sum(got.shares.values()) == pytest.approx(capacity.UTILISATION)
    for name, share in got.shares.items():
        assert share >= got.least[name]
        assert got.plans[name].longest >= 4096
    extra = [got.shares[name] - got.least[name] for name in ("small", "wide")]
    assert abs(extra[0] - extra[1]) < 0.011
    assert got.least["wide"] > got.least["small"]


def test_the_least_is_the_least(tmp_path: Path) -> None:
    """A hundredth less than the least no longer holds one context."""
    one = tenant(tmp_path, "small")
    least = shares.plan([one]).least["small"]
    less = Options(MEMORY, utilisation=least - 0.01)
    tight = capacity.plan(one.model, less)
    assert tight.cards[0].kv <= 0 or tight.longest < 4096


def test_too_much_together(tmp_path: Path) -> None:
    """Models that do not fit at once get no shares, and it is told what each needs."""
    memory = 1 * GIB
    many = [tenant(tmp_path, name, memory=memory) for name in ("a", "b", "c", "d")]
    got = shares.plan(many)
    assert not got.fits
    assert "more than 0.92 together" in got.why
    assert set(got.least) == {"a", "b", "c", "d"}


def test_too_much_alone(tmp_path: Path) -> None:
    """A model that does not fit even alone is told so."""
    got = shares.plan([tenant(tmp_path, "a", memory=GIB // 8)])
    assert "more than a card" in got.why


def test_names(tmp_path: Path) -> None:
    """Models without names of their own cannot share."""
    one = tenant(tmp_path, "a")
    for wrong in ([], [one, one]):
        with pytest.raises(UsageError, match="names of their own"):
            shares.plan(wrong)


def test_how_many_cards_share_a_model(tmp_path: Path) -> None:
    """What is typed counts; else a server of that model says it, and else nobody."""
    root = StateRoot(tmp_path)
    records.save(root, records.of_plan(replace(PLAN, tensor=4), "t", 1.0))
    models = [str(PLAN.model), str(tmp_path / "other")]
    assert step.ranks(models, "", root) == ["4", ""]
    assert step.ranks(models, "", None) == ["", ""]
    assert step.ranks(models, "1", root) == ["1", "1"]
    assert step.ranks(models, "1, 2", root) == ["1", "2"]
    with pytest.raises(UsageError, match="3 numbers for 2 models"):
        step.ranks(models, "1,2,3", root)
    assert step.ranks([], "", root) == []
