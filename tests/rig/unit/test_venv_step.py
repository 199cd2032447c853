# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""``venv-local``: a plan that is carried out under the lock."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.fakescene import scene
from tests.rig.support.settled import Fake
from tests.rig.support.settled import fake as fake
from tests.rig.support.settled import no_uv_beside as no_uv_beside
from tools.rig.base.console import Console
from tools.rig.base.state import StateRoot
from tools.rig.builds.place import Environment, PlacePlan
from tools.rig.steps import venv


def test_the_step(fake: Fake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It asks who uses a broken one; the document holds what scripts need."""
    plan = fake.plan()
    (tmp_path / "scene").mkdir()
    asked: list[tuple[Any, ...]] = []

    def act(
        plan: PlacePlan,
        console: Console,
        *,
        env: Any,
        before_moving: Any,
        relink: bool,
    ) -> Environment:
        assert env == at.env and relink
        before_moving()
        return fake.act(plan)

    at = replace(
        scene(tmp_path / "scene"),
        placing=plan,
        environment=plan.environment,
        root=StateRoot(fake.root),
        checkout=fake.checkout,
    )
    monkeypatch.setattr(venv, "act", act)
    got = venv.guarded(
        Console(fake.out, {}), at, guard=lambda *args, **how: asked.append(args[1:])
    )
    assert asked == [(plan.environment, fake.checkout)]
    doc = json.loads(json.dumps(got.to_json()))
    assert doc["environment"] == str(fake.root / "venvs" / "src-0a1b2c3d")
    assert doc["fetchcontent_base_dir"] == str(fake.root / "deps" / "src-0a1b2c3d")
    assert doc["link"] == str(fake.checkout / ".venv") and doc["was"] == "absent"
    assert [p["refused"] for p in doc["places"]] == ["you may not write there", None]
