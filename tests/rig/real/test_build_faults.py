# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Whatever kills a build, what was in force still works and the next run succeeds."""

from __future__ import annotations

import json
import random
import time

import pytest

from tests.rig.support.workshop import Workshop, until
from tools.rig.builds import generations

pytestmark = pytest.mark.real

KILLS = 30


def test_killed_at_any_moment(shop: Workshop) -> None:
    """SIGKILL at thirty random moments of build and switch; then one build goes well.

    The sources change each time, so that each of them has something to switch to.
    """
    chance = random.Random(70)
    spans = []
    for _ in range(2):
        with shop.edited():
            started = time.monotonic()
            got = shop.invoke("build-sm70")
            spans.append(time.monotonic() - started)
        assert got.returncode == 0, got.stderr
    ended = 0
    for number in range(KILLS):
        with shop.edited(), shop.started(shop.argv("build-sm70")) as build:
            # the first and the last moments as well
            time.sleep(min(spans) * 1.1 * (number + chance.random()) / KILLS)
            ended += build.poll() is not None
            build.kill()
            build.wait(30)
            until(lambda: not shop.processes(), lambda: str(shop.processes()), 60)
        assert shop.imports() == "7.0", f"after kill {number}: {shop.said}"
    # on a machine that does other work some builds are quicker than those before
    assert KILLS - ended >= 10
    got = shop.invoke("build-sm70")
    assert got.returncode == 0, got.stderr
    assert shop.imports() == "7.0"
    left = generations.listing(shop.root, shop.environment.name, sizes_s=0)
    assert all(one.complete for one in left)
    assert not list(shop.sample.glob("rig_sample/.*.rig-new"))


def test_measured_builds_are_foretold(shop: Workshop) -> None:
    """What one build measured is what the plan of the next one rests on."""
    record = next(r for r in reversed(shop.records()) if r.get("admission"))
    assert record["admission"]["compiles"] >= 0
    plan = json.loads(shop.invoke("plan", "--json").stdout)
    assert plan["expected_s"] > 0 and plan["budget_bytes"] > 0
    assert plan["compiles_at_once"] <= plan["jobs"]
