# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Generations are listed, found, made and pruned."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.places import PLACE, Town
from tests.rig.support.power import FullDisk
from tools.rig.base.errors import StepFailed, UsageError
from tools.rig.base.state import SENTINEL
from tools.rig.builds import generations, switch
from tools.rig.builds.generation import NOTE, Generation
from tools.rig.guard import lease


@pytest.fixture
def town(tmp_path: Path) -> Town:
    """Return a fresh place."""
    return Town(tmp_path)


def dead_note(town: Town, name: str) -> Path:
    """Leave the note of a builder that is gone."""
    gone = replace(lease.holder("a build"), pid=2**22 + 1, start=1)
    path = town.home / f".{name}{NOTE}"
    path.write_text(lease.dumped(gone))
    return path


class TestListing:
    """What there is."""

    def test_nothing(self, town: Town) -> None:
        """A place without generations has none."""
        assert generations.listing(town.root, PLACE) == []
        assert generations.sweep(town.root, PLACE) == ()

    def test_order_and_flags(self, town: Town) -> None:
        """Newest first; which one is active, which one was before; and the sizes."""
        for name in ("1", "2", "3"):
            one = town.generation(name)
            (one.folder / "big").write_bytes(b"x" * 50_000)
            os.link(one.folder / "big", town.top / f"cache-{name}")
            os.link(one.folder / "big", one.folder / "twice")
            if name != "3":
                switch.switch(town.root, PLACE, one)
        found = generations.listing(town.root, PLACE)
        assert [(g.id, g.active, g.previous) for g in found] == [
            ("3", False, False),
            ("2", True, False),
            ("1", False, True),
        ]
        own, total = found[0].own_bytes, found[0].total_bytes
        assert own is not None and total is not None
        assert 50_000 <= total - own < 60_000
        assert all(g.complete for g in found)
        assert json.loads(json.dumps(found[0].to_json()))["id"] == "3"
        assert found[0].python == town.home / "3" / "bin" / "python"

    def test_no_time_for_sizes(self, town: Town) -> None:
        """Sizes that take too long are left out."""
        town.generation("1")
        found = generations.listing(town.root, PLACE, sizes_s=0)
        assert (found[0].own_bytes, found[0].total_bytes) == (None, None)

    @pytest.mark.parametrize(
        "mark", ["{", "[]", '{"libraries": [1]}', '{"bytes": "x"}']
    )
    def test_broken_mark(self, town: Town, mark: str) -> None:
        """A mark that cannot be read is named; the generation is not swept."""
        one = town.generation("1")
        (one.folder / generations.MARK).write_text(mark)
        found = generations.listing(town.root, PLACE)[0]
        assert not found.complete and found.problem
        assert generations.sweep(town.root, PLACE) == ()
        with pytest.raises(UsageError, match="is no whole one"):
            generations.find(town.root, PLACE, "1")

    @pytest.mark.parametrize("text", ["[1]", '{"libraries": 1}', "{"])
    def test_broken_note(self, town: Town, text: str) -> None:
        """Without the note of what was before nothing is listed, so nothing goes."""
        town.generation("1")
        (town.home / generations.STATE).write_text(text)
        with pytest.raises(StepFailed):
            generations.listing(town.root, PLACE)


class TestFind:
    """Names that people type."""

    def test_names(self, town: Town) -> None:
        """An id, a beginning that is unique, and nothing for the previous one."""
        for name in ("20260101-a", "20260102-b", "20260102-b2"):
            switch.switch(town.root, PLACE, town.generation(name))
        assert generations.find(town.root, PLACE, "20260101").id == "20260101-a"
        assert generations.find(town.root, PLACE, "20260102-b").id == "20260102-b"
        assert generations.find(town.root, PLACE).id == "20260102-b"
        with pytest.raises(UsageError, match="names several") as caught:
            generations.find(town.root, PLACE, "20260102")
        assert len(caught.value.details) == 2
        with pytest.raises(UsageError, match="no build 'x'"):
            generations.find(town.root, PLACE, "x")

    def test_no_previous(self, town: Town) -> None:
        """The first one has none before it."""
        switch.switch(town.root, PLACE, town.generation("1"))
        with pytest.raises(UsageError, match="no previous build"):
            generations.find(town.root, PLACE)

    def test_note_is_gone(self, town: Town) -> None:
        """Without the note of the last switch the newest proved one is named."""
        for name, proved in (("1", True), ("2", True), ("3", False), ("4", True)):
            made = town.generation(name, verified=proved)
        switch.switch(town.root, PLACE, made)
        (town.home / generations.STATE).unlink()
        for hint in ("2", "1", "3"):
            with pytest.raises(UsageError, match="no previous build") as caught:
                generations.find(town.root, PLACE)
            assert caught.value.hint == f"invoke activate --build {hint}"
            generations.remove(town.root, PLACE, hint)
        with pytest.raises(UsageError) as caught:
            generations.find(town.root, PLACE)
        assert caught.value.hint == "invoke builds"

    def test_link_is_gone(self, town: Town) -> None:
        """What was in force is to come back, else the newest that is kept."""
        assert generations.lost(town.root, PLACE) is None
        one, two = (town.generation(name, verified=True) for name in ("1", "2"))
        switch.switch(town.root, PLACE, two)
        switch.switch(town.root, PLACE, one)
        town.link.unlink()
        found = generations.lost(town.root, PLACE)
        assert found is not None and found.id == "1"
        generations.remove(town.root, PLACE, "1")
        found = generations.lost(town.root, PLACE)
        assert found is not None and found.id == "2"
        (town.home / generations.STATE).write_text("[]")
        assert generations.lost(town.root, PLACE) == found


class TestMake:
    """From the announcement to the mark."""

    def test_begin_and_finish(self, town: Town) -> None:
        """A begun one is alive and not whole; a finished one is whole, once."""
        folder = generations.begin(town.root, PLACE, "1", "a build")
        assert not folder.exists()
        town.environment(folder, "1")
        found = generations.listing(town.root, PLACE)[0]
        assert (found.complete, found.live) == (False, True)
        assert generations.sweep(town.root, PLACE) == ()
        (folder / SENTINEL).unlink()
        made = generations.finish(Generation("1", folder, mode="wheel"))
        assert made.complete and made.made and made.bytes
        found = generations.listing(town.root, PLACE)[0]
        assert found.complete and (folder / SENTINEL).exists()
        assert not list(town.home.glob(f"*{NOTE}"))
        with pytest.raises(StepFailed, match="is there already"):
            generations.begin(town.root, PLACE, "1")

    @pytest.mark.parametrize("name", ["", "..", ".x", "a/b", "a\n"])
    def test_no_name(self, town: Town, name: str) -> None:
        """A name that is none, or leads elsewhere, is refused."""
        with pytest.raises(StepFailed, match="is no name"):
            generations.begin(town.root, PLACE, name)
        with pytest.raises(StepFailed, match="will not delete"):
            generations.remove(town.root, PLACE, name)

    def test_full_disk(self, town: Town) -> None:
        """Without room for the mark it stays incomplete."""
        folder = generations.begin(town.root, PLACE, "1")
        town.environment(folder, "1")
        with pytest.raises(StepFailed, match="No space left"):
            generations.finish(Generation("1", folder), FullDisk(2, stays=True))
        assert not generations.read(folder).complete


class TestRemove:
    """What goes, and what never does."""

    def test_sweep(self, town: Town) -> None:
        """What a killed builder left goes: a half one, what uv was making, a note."""
        for name in ("1", "2", "3"):
            generations.begin(town.root, PLACE, name)
            dead_note(town, name)
        town.environment(town.home / "1", "half")
        (town.home / ".2.123-abc" / "venv").mkdir(parents=True)
        town.generation("4")
        assert generations.sweep(town.root, PLACE) == ("1", "2", "3")
        left = {p.name for p in town.home.iterdir()}
        assert left == {"4", SENTINEL}

    def test_remove(self, town: Town) -> None:
        """A generation goes with its wheel; the active one is refused."""
        one, two = town.generation("1", {"x.so": "x"}), town.generation("2")
        switch.switch(town.root, PLACE, one)
        with pytest.raises(StepFailed, match="the active one"):
            generations.remove(town.root, PLACE, "1")
        switch.switch(town.root, PLACE, two)
        generations.remove(town.root, PLACE, "1")
        assert not one.folder.exists() and not Path(one.wheel).exists()

    def test_broken_off(self, town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
        """A deletion that is broken off leaves nothing that looks whole."""
        one = town.generation("1")

        def stop(folder: Path) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(generations, "remove_made", stop)
        with pytest.raises(KeyboardInterrupt):
            generations.remove(town.root, PLACE, "1")
        assert one.folder.exists() and not generations.read(one.folder).complete
        monkeypatch.undo()
        assert generations.sweep(town.root, PLACE) == ("1",)

    def test_refused(self, town: Town) -> None:
        """What the system does not let go is named."""
        one = town.generation("1")
        (one.folder / generations.MARK).unlink()
        (one.folder / generations.MARK).mkdir()
        with pytest.raises(StepFailed, match="cannot delete"):
            generations.remove(town.root, PLACE, "1")


def of(number: int, **more: Any) -> Generation:
    """Return a generation of one GB."""
    base = Generation(
        f"{number}",
        Path(f"/{number}"),
        complete=True,
        verified=True,
        own_bytes=10**9,
    )
    return replace(base, **more)


class TestPrune:
    """A pure decision."""

    found = (
        of(9, complete=False, live=True),
        of(8, complete=False),
        of(7),
        of(6, active=True),
        of(5, previous=True),
        of(4),
        of(3),
        of(2, own_bytes=0),
        of(1),
    )

    def test_unproved(self) -> None:
        """Of those that were never proved only the newest stays, however many may."""
        found = (of(5, verified=False), of(4), of(3, verified=False), of(2), of(1))
        assert generations.prune(found, 9) == ("3",)
        assert generations.prune(found, 2) == ("1", "3")

    @pytest.mark.parametrize(
        ("keep", "need", "in_use", "gone"),
        [
            (9, 0, set(), "8"),
            (4, 0, set(), "1 2 3 8"),
            (4, 0, {"2", "8"}, "1 3"),
            (0, 0, set(), "1 2 3 4 7 8"),
            (-1, 0, {"7"}, "1 2 3 4 8"),
            (9, 10**9, set(), "8"),
            (9, 2 * 10**9, set(), "1 8"),
            (9, 3 * 10**9, set(), "1 2 3 8"),
            (9, 3 * 10**9, {"3"}, "1 2 4 8"),
            (9, 10**15, set(), "1 2 3 4 7 8"),
        ],
    )
    def test_plan(self, keep: int, need: int, in_use: set[str], gone: str) -> None:
        """Never the active, the previous, one in use or one that is being made."""
        got = generations.prune(self.found, keep, need, in_use)
        assert got == tuple(gone.split())

    def test_unknown_size(self) -> None:
        """A size that is not known counts as nothing freed."""
        found = (of(3), replace(of(2), own_bytes=None), replace(of(1), own_bytes=None))
        assert generations.prune(found, 9, 10**9) == ("1", "2", "3")
