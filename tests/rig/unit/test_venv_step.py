# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""``venv-local``: facts, plan and act in a row."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.settled import Fake
from tests.rig.support.settled import fake as fake
from tests.rig.support.settled import no_uv_beside as no_uv_beside
from tools.rig.base.config import resolve
from tools.rig.base.console import Console
from tools.rig.builds.candidates import Candidate
from tools.rig.builds.place import Environment, PlaceFacts, PlacePlan
from tools.rig.steps import venv


def test_the_step(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Facts, plan and act in a row; the document holds what scripts need."""
    facts = fake.plan().facts
    asked: dict[str, Any] = {}

    def survey_facts(settings: Any, checkout: Path, **how: Any) -> PlaceFacts:
        asked.update(how)
        slow = Candidate(Path("/slow"), "test", facts.candidates[0].disk)
        return replace(facts, candidates=(slow, facts.candidates[1]))

    def act(
        plan: PlacePlan,
        console: Console,
        *,
        env: Any,
        before_moving: Any,
        relink: bool,
    ) -> Environment:
        assert env == {"A": "1"} and relink
        before_moving()
        return fake.act(plan)

    monkeypatch.setattr(venv, "facts", survey_facts)
    monkeypatch.setattr(venv, "act", act)
    got = venv.venv_local(
        resolve({}, {}),
        fake.checkout,
        Console(fake.out, {}),
        need_bytes=0,
        python="3.11",
        env={"A": "1"},
    )
    assert asked == {"python": "3.11", "env": {"A": "1"}, "need_headers": False}
    doc = json.loads(json.dumps(got.to_json()))
    assert doc["environment"] == str(fake.root / "venvs" / "src-0a1b2c3d")
    assert doc["fetchcontent_base_dir"] == str(fake.root / "deps" / "src-0a1b2c3d")
    assert doc["link"] == str(fake.checkout / ".venv") and doc["was"] == "absent"
    assert [p["refused"] for p in doc["places"]] == ["you may not write there", None]
    assert "/slow (test): you may not write there" in fake.out.getvalue()
