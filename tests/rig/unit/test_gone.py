# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Builds of a checkout that was moved or deleted: kept, not in force, and pruned."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.places import PLACE, Town, disk
from tools.rig.base.console import Console
from tools.rig.base.errors import StepFailed
from tools.rig.base.state import SENTINEL, write_json
from tools.rig.builds import generations, switch
from tools.rig.builds.generation import Generation
from tools.rig.builds.placed import places
from tools.rig.guard.lock import BuildLock
from tools.rig.guard.scan import ScanResult, User
from tools.rig.guard.targets import Targets
from tools.rig.host.look import Disk
from tools.rig.host.storage import Mount
from tools.rig.steps import builds, gone

MOUNT = Mount(Path("/"), "ext4", "/dev/sda", "rw", "8:1")
FREE = ScanResult()
USED = ScanResult(users=(User(1, 1, "alice", "vllm serve"),))


def seen(**checkout: Any) -> Callable[..., Disk]:
    """Return a look at disks where a checkout is no more and its parent is there."""
    above = {f"above_{key}": True for key in ("exists",)} | {"above_empty": False}
    facts = {**above, **checkout}

    def looked(path: Path, measure_s: float) -> Disk:
        assert measure_s == 0
        start = "above_" if path.name == "above" else ""
        its = {
            key.removeprefix("above_"): value
            for key, value in facts.items()
            if key.startswith("above_") == bool(start)
        }
        return replace(Disk(path, path, MOUNT), **its)

    return looked


@pytest.mark.parametrize(
    ("facts", "answer"),
    [
        ({}, True),
        ({"exists": True}, False),
        ({"hung": True}, False),
        ({"problem": "Permission denied"}, False),
        # its disk is not mounted, or cannot be looked at
        ({"above_empty": True}, False),
        ({"above_exists": False}, False),
        ({"above_hung": True}, False),
        ({"above_problem": "Permission denied"}, False),
    ],
)
def test_is_gone(facts: dict[str, Any], answer: bool) -> None:
    """Only what is surely no more is gone."""
    one = Generation("a", Path("/r/a"), checkout="/above/checkout")
    bare = replace(one, checkout="")
    assert gone.is_gone([bare, one], seen(**facts)) is answer
    assert not gone.is_gone([bare], seen(**facts)) and not gone.is_gone([], seen())


class Moved(Town):
    """A place with three builds, the newest in force, whose checkout was moved."""

    def __init__(self, top: Path) -> None:
        super().__init__(top)
        made = [self.generation(f"2026010{n}", verified=True) for n in range(1, 4)]
        switch.switch(self.root, PLACE, made[1])
        switch.switch(self.root, PLACE, made[2])
        self.checkout.rename(top / "moved")
        self.out = io.StringIO()
        self.users: dict[str, ScanResult] = {}

    def prune(self, keep: int = 3, need: int = 0, own: str = "other-1") -> None:
        """Remove what is too much."""

        def users(some: Sequence[Generation]) -> dict[str, ScanResult]:
            return {g.id: self.users[g.id] for g in some if g.id in self.users}

        gone.prune(Console(self.out, {}), self.root, own, keep, need, users, disk)

    @property
    def kept(self) -> list[str]:
        """The ids that are there, oldest first."""
        known = generations.listing(self.root, PLACE, sizes_s=0)
        return sorted(one.id for one in known)


@pytest.fixture
def town(tmp_path: Path) -> Moved:
    """Return a place whose checkout was moved."""
    return Moved(tmp_path)


class TestPrune:
    """What goes, by count and by space."""

    def test_count(self, town: Moved) -> None:
        """The newest stay, whichever was in force; the checkout is named."""
        town.prune(keep=3)
        assert town.kept == ["20260101", "20260102", "20260103"]
        town.prune(keep=1)
        assert town.kept == ["20260103"] and town.link.is_symlink()
        assert f"old build 20260101 of {town.checkout}, which is" in town.out.getvalue()

    def test_space(self, town: Moved) -> None:
        """For want of room all go, and the link with the one that it led to."""
        town.prune(need=1 << 60)
        assert town.kept == [] and not town.link.is_symlink()

    def test_in_use(self, town: Moved) -> None:
        """One that somebody runs from stays."""
        town.users["20260102"] = USED
        town.prune(need=1 << 60)
        assert town.kept == ["20260102"]

    def test_not_ours_to_prune(self, town: Moved) -> None:
        """The caller's own place, and one whose switch broke off, are left."""
        town.prune(need=1 << 60, own=PLACE)
        journal = switch.journals_of(town.root, PLACE)[0]
        journal.write_text('{"phase": "staging", "pairs": []}')
        town.prune(need=1 << 60)
        journal.unlink()
        with BuildLock(town.link, None, "at work"):
            town.prune(need=1 << 60)
        assert len(town.kept) == 3 and town.out.getvalue() == ""

    def test_there(self, town: Moved) -> None:
        """Builds of a checkout that is there are its own commands' to prune."""
        town.checkout.mkdir()
        town.prune(keep=1, need=1 << 60)
        assert len(town.kept) == 3

    def test_no_builds(self, town: Moved) -> None:
        """A root without any has nothing to remove."""
        shutil.rmtree(town.root.generations)
        town.prune(keep=1)
        assert places(town.root) == [] and town.out.getvalue() == ""


class TestClear:
    """What builds of a checkout that is gone happened in goes with the last of them."""

    @pytest.fixture
    def last(self, town: Moved) -> Moved:
        """Return a place without builds, with a bench, objects and sources."""
        town.prune(need=1 << 60)
        town.out.truncate(0)
        write_json(town.root.places / f"{PLACE}.json", {"checkout": str(town.checkout)})
        for top in (town.root.benches, town.root.work, town.root.deps):
            town.root.make(top)
            town.environment(top / PLACE, "large")
        town.link.symlink_to(town.root.benches / PLACE)
        return town

    def clear(
        self, town: Moved, own: str = "other-1", found: ScanResult = FREE
    ) -> list[str]:
        """Clear, and return what is left."""
        asked: list[Path] = []

        def look_at(targets: Targets) -> ScanResult:
            asked.append(targets.venv)
            return found

        gone.clear(Console(town.out, {}), town.root, own, look_at, disk)
        assert set(asked) <= {town.root.benches / PLACE}
        tops = (town.root.benches, town.root.work, town.root.deps, town.root.venvs)
        return [top.name for top in tops if (top / PLACE).exists()]

    def test_last(self, last: Moved) -> None:
        """With the checkout's name said, and what is noted of it too."""
        assert self.clear(last) == []
        assert not last.link.is_symlink() and list(last.root.places.iterdir()) == []
        assert f"what {last.checkout} was built in" in last.out.getvalue()
        assert self.clear(last) == []

    def test_builds_left(self, last: Moved) -> None:
        """While a build of it is kept it may come back, and stays."""
        last.generation("20260109")
        assert len(self.clear(last)) == 4 and last.out.getvalue() == ""

    def test_there(self, last: Moved) -> None:
        """A checkout that is there keeps everything."""
        last.checkout.mkdir()
        assert len(self.clear(last)) == 4

    def test_not_now(self, last: Moved) -> None:
        """The caller's own, one in use and one at work are left."""
        assert len(self.clear(last, own=PLACE)) == 4
        assert len(self.clear(last, found=USED)) == 4
        with BuildLock(last.link, None, "at work"):
            assert len(self.clear(last)) == 4
        assert last.out.getvalue() == ""

    @pytest.mark.parametrize("text", ["{", "[]", "{}", '{"checkout": null}'])
    def test_unknown(self, last: Moved, text: str) -> None:
        """A note that names no checkout is no reason to delete."""
        (last.root.places / f"{PLACE}.json").write_text(text)
        assert len(self.clear(last)) == 4

    def test_broken_off(self, last: Moved) -> None:
        """What stays is an error; the note stays with it, so that it is taken up."""
        (last.root.work / PLACE / SENTINEL).unlink()
        with pytest.raises(StepFailed, match="did not make it"):
            self.clear(last)
        (last.root.work / PLACE / SENTINEL).touch()
        assert self.clear(last) == []


def test_listed_as_kept(town: Moved) -> None:
    """Nothing of a checkout that is gone is in force."""

    def rows() -> dict[str, str]:
        found = builds.builds(
            Console(town.out, {}),
            town.root,
            look=lambda targets: ScanResult(),
            disk=disk,
        )
        return {row["id"]: row["state"] for row in found.to_json()}

    assert set(rows().values()) == {"kept"}
    (town.top / "moved").rename(town.checkout)
    assert rows()["20260103"] == "active" and rows()["20260102"] == "previous"
