# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What happens around a switch: nothing new, the way back, old builds, the list."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support import fakescene
from tests.rig.support.fakescene import Stage, report, scene
from tests.rig.support.places import disk
from tools.rig.base.console import Console
from tools.rig.base.errors import InUseError, StepFailed, UsageError
from tools.rig.base.state import place_id
from tools.rig.builds import generations, record
from tools.rig.guard import gate
from tools.rig.guard.scan import ScanResult, User
from tools.rig.guard.targets import Targets
from tools.rig.host import processes
from tools.rig.steps import activate, from_wheel, pruning
from tools.rig.steps import build as step
from tools.rig.steps import builds as listing
from tools.rig.steps.switching import Wish

ALICE = ScanResult(users=(User(87221, 1, "alice", "vllm serve"),))


class Play:
    """A scene in which builds are made; each gets an id of its own by its time."""

    def __init__(self, folder: Path) -> None:
        self.at = scene(folder, jobs=2)
        self.stage = Stage(self.at)
        self.out = io.StringIO()
        self.console = Console(self.out, {})
        self.look = self.stage.tools.look

    def build(self, *, wheel_only: bool = True) -> dict[str, Any]:
        """Run a build whose wheel differs from every other."""
        self.stage.calls.clear()
        self.stage.content += "."
        return self.again(wheel_only=wheel_only)

    def again(self, *, wheel_only: bool = True) -> dict[str, Any]:
        """Run a build whose wheel is that of the last one."""
        self.stage.calls.clear()
        use = replace(self.stage.tools, look=self.look)
        done = step.build(self.console, self.at, wheel_only=wheel_only, use=use)
        return dict(done.to_json())

    def activate(self, name: str = "", **wish: bool) -> activate.Activated:
        """Switch to a build, or back."""
        return activate.activate(
            self.console,
            self.at,
            name,
            Wish(**wish),
            guard=lambda *args, **how: ScanResult(),
            trust=lambda *args: self.stage.safe,
            head=lambda checkout, env: self.stage.head,
        )

    @property
    def active(self) -> str:
        """The id of what is in force."""
        return self.at.environment.resolve().name

    @property
    def kept(self) -> list[str]:
        """The ids of all generations."""
        return [
            g.id for g in generations.listing(self.at.root, self.at.environment.name)
        ]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Return a play below a fresh folder, whose ids follow one another."""
    numbers = itertools.count()
    monkeypatch.setattr(record, "_tail", lambda: f"{next(numbers):04x}")
    return Play(tmp_path)


class TestNothingNew:
    """A build whose wheel holds what is in force."""

    @pytest.mark.parametrize("wheel_only", [True, False])
    def test_stays(self, play: Play, wheel_only: bool) -> None:
        """No environment is made, nobody is asked, the spare wheel is gone."""
        first = play.build(wheel_only=wheel_only)
        second = play.again(wheel_only=wheel_only)
        assert second["unchanged"] == first["id"] == play.active
        assert second["result"] == "done" and second["wheel"] == first["wheel"]
        asked = [name for name, _ in play.stage.calls]
        assert asked[-1] == "compile" and "venv" not in asked and "guard" not in asked
        assert not (play.at.root.artifacts / second["id"]).exists()
        assert "nothing changed" in play.out.getvalue()

    def test_other_mode(self, play: Play) -> None:
        """A generation of the same wheel is no overlay."""
        play.build(wheel_only=True)
        assert "unchanged" not in play.again(wheel_only=False)

    def test_library_gone(self, play: Play) -> None:
        """An overlay whose libraries were removed or replaced is put there again."""
        play.build(wheel_only=False)
        library = play.at.checkout / "rig_sample" / "_C.abi3.so"
        library.unlink()
        assert "unchanged" not in play.again(wheel_only=False)
        assert library.exists()

    def test_other_commit(self, play: Play) -> None:
        """An overlay of another commit is another overlay."""
        play.build(wheel_only=False)
        play.stage.head = "badc0de"
        assert "unchanged" not in play.again(wheel_only=False)


class TestWaiting:
    """A build whose wheel holds what is kept and not in force."""

    def test_is_taken(self, play: Play) -> None:
        """What was kept when somebody was in the way is switched on as it is."""
        first = play.build()["id"]
        play.build()
        play.activate()
        assert play.active == first
        again = play.again()
        asked = [name for name, _ in play.stage.calls]
        assert "venv" not in asked and asked.count("guard") == 3
        assert again["generation"] != first and again["generation"] == play.active
        assert len(play.kept) == 2 and "is just the same" in play.out.getvalue()


class TestCarry:
    """What was installed by hand."""

    @pytest.fixture
    def ready(self, play: Play) -> Play:
        """Return a play with an overlay in force, that holds a debugger."""
        made = play.build(wheel_only=False)
        play.stage.packages[made["id"]] = {"debugger": "1"}
        return play

    def test_comes_along(self, ready: Play) -> None:
        """It is installed at its version, and without what it asks for."""
        ready.build(wheel_only=False)
        words = [detail[0] for detail in ready.stage.named("install")]
        assert ["--no-deps", "debugger==1"] in words
        assert "taken along: debugger==1" in ready.out.getvalue()

    def test_into_no_generation(self, ready: Play) -> None:
        """A generation holds what its wheel needs and nothing else."""
        ready.build(wheel_only=True)
        assert "taken along" not in ready.out.getvalue()
        ready.build(wheel_only=False)
        assert "taken along" not in ready.out.getvalue()

    def test_cannot_be_had(self, ready: Play) -> None:
        """It is told, and the build goes on."""
        use = ready.stage.tools
        ready.stage.content += "."

        def install(uv: Path, python: Path, words: Sequence[str], **how: Any) -> None:
            if "debugger==1" in words:
                raise StepFailed("no such version")

        done = step.build(
            ready.console,
            ready.at,
            wheel_only=False,
            use=replace(use, install=install),
        )
        assert done.to_json()["result"] == "done"
        assert "not taken along: debugger==1 (no such" in ready.out.getvalue()


class TestActivate:
    """Going back, and to any kept build."""

    def test_rollback(self, play: Play) -> None:
        """The one before comes back; once more, and it is as it was."""
        first, second = play.build()["id"], play.build()["id"]
        done = play.activate()
        assert (done.active, done.previous) == (first, second)
        assert done.to_json()["verified"] and play.active == first
        assert play.activate().active == second

    def test_unknown(self, play: Play) -> None:
        """Without a build before, or with a wrong name, it is told what there is."""
        only = play.build()["id"]
        with pytest.raises(UsageError, match="no previous build"):
            play.activate()
        with pytest.raises(UsageError, match="no build 'x'"):
            play.activate("x")
        with pytest.raises(UsageError, match="in force already"):
            play.activate(only)

    @pytest.mark.parametrize("force", [False, True])
    def test_in_use(self, play: Play, force: bool) -> None:
        """Who is in the way is named in words of switching, forced or not."""
        first, second = play.build()["id"], play.build()["id"]

        def guard(*args: Any, **how: Any) -> ScanResult:
            return gate.guard(*args, **how, look=lambda targets: ALICE)

        play.out.truncate(0)
        with contextlib.ExitStack() as stack:
            if not force:
                caught = stack.enter_context(pytest.raises(InUseError))
            activate.activate(play.console, play.at, "", Wish(force=force), guard=guard)
        said = play.out.getvalue()
        if not force:
            said += "\n".join(caught.value.lines())
            assert f"{first} is not switched on: stop them first" in said
        assert play.active == (first if force else second)
        assert "87221 vllm serve" in said
        assert "build" not in said.replace("activate --build", "")

    def test_unproved(self, play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
        """One that was never proved is proved once it is in force, or goes again."""
        first, before, second = (play.build()["id"] for _ in range(3))
        folder = play.at.environment.resolve().parent / first
        mark = folder / generations.MARK
        proved, owed = '"verified": true', '"verified": false'
        mark.write_text(mark.read_text().replace(proved, owed))
        monkeypatch.setattr(activate.toolkit, "plan", lambda *args: play.stage.chosen)
        good = [report("no code"), report()]
        monkeypatch.setattr(activate.verify, "verify", lambda *a, **how: good.pop(0))
        monkeypatch.setattr(activate.generations, "finish", play.stage.tools.finish)
        prove = activate.prover(play.console, play.at)
        how = {"guard": lambda *args, **more: ScanResult(), "prove": prove}
        with pytest.raises(StepFailed, match="does not hold"):
            activate.activate(play.console, play.at, first, Wish(), **how)
        assert play.active == second
        # and the one to go back to is who it was
        place = play.at.environment.name
        assert generations.placed(play.at.root, place).previous == before
        done = activate.activate(play.console, play.at, first, Wish(), **how)
        assert done.verified and play.active == first
        assert proved in mark.read_text()

    def test_another_commit(self, play: Play) -> None:
        """An overlay's libraries are not put under sources of another commit."""
        play.build(wheel_only=False)
        play.stage.content += "x"
        play.again(wheel_only=False)
        play.stage.head = "badc0de"
        with pytest.raises(UsageError, match="badc0de") as caught:
            play.activate()
        assert "checkout c0ffee" in caught.value.hint
        play.activate(any_commit=True)
        library = play.at.checkout / "rig_sample" / "_C.abi3.so"
        assert library.read_text() == "new _C.abi3.so."


class TestNoWayBack:
    """A build that fails its proof, and one before it that cannot be put back."""

    def test_is_told(self, play: Play) -> None:
        """The proof's failure is raised, and people learn what is in force."""
        first = play.build(wheel_only=False)
        Path(first["wheel"]).unlink()
        play.stage.verdicts = ["ok", "no code"]
        with pytest.raises(StepFailed, match="does not hold"):
            play.build(wheel_only=False)
        assert play.active != first["id"]
        said = play.out.getvalue()
        assert f"{first['id']} could not be put back: the wheel" in said
        assert f"invoke activate --build {first['id']}" in said


class TestPrune:
    """Which builds stay."""

    def test_count(self, play: Play) -> None:
        """Beyond the setting the oldest go, wheel and all; never the one before."""
        settings = replace(
            play.at.settings, values={**play.at.settings.values, "keep_builds": 1}
        )
        play.at = replace(play.at, settings=settings)
        made = [play.build()["id"] for _ in range(4)]
        assert play.kept == [made[3], made[2]]
        assert not (play.at.root.artifacts / made[0]).exists()
        assert f"old build {made[0]} removed" in play.out.getvalue()

    def test_in_use(self, play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
        """One that somebody runs from stays, however old."""
        made = [play.build()["id"] for _ in range(5)]
        used = play.at.root.generations / play.at.environment.name / made[0]
        assert not used.exists()
        made += [play.build()["id"] for _ in range(2)]
        old = play.kept[-1]

        def look(targets: Targets) -> ScanResult:
            return ALICE if targets.venv.name == old else ScanResult()

        monkeypatch.setattr(pruning, "NEED_AGAIN_BYTES", 1 << 60)
        pruning.prune(play.console, play.at, look)
        assert old in play.kept and play.active in play.kept

    def test_waiting_builds(
        self, play: Play, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """Those that wait for a server's end do not pile up; the newest stays."""
        first = play.build()["id"]
        play.stage.breaks, play.stage.error = "guard", gate.InUse(tmp_path, ALICE)
        for _ in range(4):
            with pytest.raises(InUseError):
                play.build()
        assert len(play.kept) == 4 and play.kept[-1] == play.active == first
        monkeypatch.setattr(pruning, "NEED_AGAIN_BYTES", 1 << 60)
        with pytest.raises(InUseError):
            play.build()
        assert len(play.kept) == 2 and play.active == first
        monkeypatch.setattr(from_wheel.uv, "program", lambda env: Path("/uv"))
        with pytest.raises(InUseError):
            from_wheel.install(
                play.console,
                play.at,
                fakescene.make_wheel(tmp_path),
                use=play.stage.tools,
            )
        assert len(play.kept) == 2 and play.active == first

    def test_leftovers(self, play: Play) -> None:
        """The wheel of a build that failed goes with the next one that does not."""
        play.build()
        play.stage.verdicts = ["no code"]
        with pytest.raises(StepFailed):
            play.build()
        play.stage.verdicts = ["ok", "ok"] * 9
        left = record.listing(play.at.root)[0]["id"]
        assert list((play.at.root.artifacts / left).glob("*.whl"))
        other = play.at.root.make(play.at.root.artifacts / "of-nobody")
        made = play.build()["id"]
        assert not (play.at.root.artifacts / left).exists()
        assert other.is_dir() and (play.at.root.artifacts / made).is_dir()

    def test_started_by_the_link(self, play: Play) -> None:
        """Who was started by the link runs what it led to then, and keeps that."""
        settings = replace(
            play.at.settings, values={**play.at.settings.values, "keep_builds": 1}
        )
        play.at = replace(play.at, settings=settings)
        first = play.build()["id"]
        home = play.at.root.generations / play.at.environment.name
        note = json.loads((home / generations.STATE).read_text())
        name, boot, tick = note["turns"][-1]
        assert name == first and boot == processes.boot_id()
        # it was switched on an hour ago, and somebody came soon after
        second = os.sysconf("SC_CLK_TCK")
        note["turns"][-1][2] = tick - 3600 * second
        (home / generations.STATE).write_text(json.dumps(note))
        came = tick - 3000 * second

        def look(targets: Targets) -> ScanResult:
            return ALICE if targets.led(came) else ScanResult()

        play.look = look
        later = [play.build()["id"] for _ in range(3)]
        assert play.kept == [later[2], later[1], first]
        assert listing.users(
            generations.listing(play.at.root, home.name), look
        ).keys() == {first}

    def test_cannot(self, play: Play) -> None:
        """What cannot be told is a warning; the build was good."""
        play.build()
        state = play.at.root.generations / play.at.environment.name / generations.STATE
        state.write_text("[]")
        pruning.prune(play.console, play.at)
        assert "old builds stay" in play.out.getvalue()


class TestList:
    """``builds``."""

    def rows(self, play: Play, seen: ScanResult | None = None) -> list[dict[str, Any]]:
        """Return the list, in which the build in force is used or not."""

        def look(targets: Targets) -> ScanResult:
            used = seen is not None and targets.venv.name == play.active
            return seen if used and seen is not None else ScanResult()

        found = listing.builds(play.console, play.at.root, look=look, disk=disk)
        return found.to_json()

    def test_states(self, play: Play) -> None:
        """In force, before, kept; by whom; and what failed is there too."""
        ids = [play.build()["id"] for _ in range(3)]
        play.stage.breaks = "compile"
        with pytest.raises(StepFailed):
            play.build()
        rows = {row["id"]: row for row in self.rows(play, ALICE)}
        states = [rows[name]["state"] for name in ids]
        assert states == ["kept", "previous", "active"]
        assert rows[ids[2]]["used_by"] == ["87221 vllm serve"]
        [failed] = [row for row in rows.values() if row["result"] == "failed"]
        assert failed["state"] == "" and failed["generation"] is None
        said = play.out.getvalue()
        assert "in use: 87221 vllm serve" in said and "done (wheel)" in said
        assert json.loads(json.dumps(list(rows.values())))

    def test_of_one_checkout(self, play: Play) -> None:
        """Only its builds are listed, those that failed early as well."""
        name = play.build()["id"]
        play.stage.breaks = "environment"
        with pytest.raises(StepFailed):
            play.build()
        checkout = play.at.checkout
        other = record.Record(play.at.root, "invoke build-sm70")
        other.update(checkout="/other")
        # the place of these plays is not named by its path
        home = play.at.root.generations / play.at.environment.name
        home.rename(home.with_name(place_id(checkout)))
        everything = self.rows(play)
        assert {row["checkout"] for row in everything} == {str(checkout), "/other"}
        assert str(checkout) in play.out.getvalue()
        rows = listing.builds(
            play.console,
            play.at.root,
            checkout,
            look=lambda targets: ScanResult(),
            disk=disk,
        ).to_json()
        assert [row["id"] for row in rows[1:]] == [name] and len(rows) == 2
        none = listing.builds(play.console, play.at.root, Path("/none"), disk=disk)
        assert none.to_json() == []
        assert play.out.getvalue().endswith("no builds of /none yet\n")

    def test_record_gone(self, play: Play) -> None:
        """A build whose record is gone can still be switched to, so it is listed."""
        name = play.build()["id"]
        (play.at.root.records / f"{name}.json").unlink()
        [row] = self.rows(play)
        assert row["id"] == name and row["state"] == "active"

    def test_broken_place(self, play: Play) -> None:
        """What is wrong with one checkout's builds is told, and hides no others."""
        name = play.build()["id"]
        other = play.at.root.generations / "other-1"
        other.mkdir()
        (other / generations.STATE).write_text("[]")
        (other / "switch.json").write_text("{")
        rows = self.rows(play)
        assert [row["id"] for row in rows] == [name, "(other-1)", "(other-1)"]
        assert [r["result"] for r in rows] == ["done", "unreadable", "unreadable"]
        said = play.out.getvalue()
        for file in (other / generations.STATE, other / "switch.json"):
            assert any(str(file) in row["problem"] for row in rows[1:])
            assert f"hint: mv {file}" in said.replace("'", "")

    def test_broken_note(self, play: Play) -> None:
        """Without the note of the last switch its builds are listed all the same."""
        ids = [play.build()["id"] for _ in range(2)]
        home = play.at.root.generations / play.at.environment.name
        (home / generations.STATE).write_text("[]")
        rows = {row["id"]: row for row in self.rows(play)}
        assert [rows[name]["state"] for name in ids] == ["kept", "active"]
        assert "is no note of a switch" in rows[f"({home.name})"]["problem"]
        with pytest.raises(StepFailed, match="is no note of a switch"):
            play.build()
        # before anything was made, and long before the switch
        assert [name for name, _ in play.stage.calls] == ["git"]

    def test_broken_mark_and_record(self, play: Play) -> None:
        """A build whose own files cannot be read says so, in place of a version."""
        ids = [play.build()["id"] for _ in range(2)]
        home = play.at.root.generations / play.at.environment.name
        (home / ids[0] / generations.MARK).write_text("{")
        (play.at.root.records / f"{ids[1]}.json").write_text("{")
        rows = {row["id"]: row for row in self.rows(play)}
        assert rows[ids[0]]["state"] == "broken"
        assert "rig-generation.json" in rows[ids[0]]["problem"]
        assert rows[ids[1]]["result"] == "unreadable"
        said = [line for line in play.out.getvalue().splitlines() if ids[1] in line]
        assert f"cannot read {play.at.root.records / ids[1]}.json" in said[-1]

    def test_interrupted(self, play: Play) -> None:
        """A switch that was broken off is told, with what becomes of it."""
        play.build()
        home = play.at.root.generations / play.at.environment.name
        (home / "switch.json").write_text('{"phase": "staging", "pairs": []}')
        self.rows(play)
        assert "is undone by the next command" in play.out.getvalue()

    def test_unfinished(self, play: Play) -> None:
        """One that was never finished says so."""
        play.build()
        folder = play.at.root.generations / play.at.environment.name / "2020-left"
        folder.mkdir()
        row = self.rows(play)[-1]
        assert row["id"] == "2020-left" and row["state"] == "incomplete"

    def test_none(self, play: Play) -> None:
        """Without a state root, and without builds, there are none."""
        assert listing.builds(play.console, None).to_json() == []
        assert self.rows(play) == []


def test_overlay_is_found(play: Play) -> None:
    """An environment of an earlier version is kept when the first switch comes."""
    place = play.at.environment
    place.mkdir(parents=True)
    (place / "pyvenv.cfg").touch()
    made = play.build()
    assert play.active == made["id"]
    [old] = [name for name in play.kept if name != made["id"]]
    assert old.endswith("-kept") and play.activate().active == old
