# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""``activate`` and ``rollback``: the way back, and the way to any kept build."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.fakescene import report
from tests.rig.support.play_series import ALICE, Series
from tests.rig.support.play_series import play as play
from tools.rig.base.errors import InUseError, StepFailed, UsageError
from tools.rig.builds import generations
from tools.rig.guard import gate
from tools.rig.guard.scan import ScanResult
from tools.rig.steps import activate
from tools.rig.steps.switching import Wish


class TestActivate:
    """Going back, and to any kept build."""

    def test_rollback(self, play: Series) -> None:
        """The one before comes back; once more, and it is as it was."""
        first, second = play.build()["id"], play.build()["id"]
        done = play.activate()
        assert (done.active, done.previous) == (first, second)
        assert done.to_json()["verified"] and play.active == first
        assert play.activate().active == second

    def test_unknown(self, play: Series) -> None:
        """Without a build before, or with a wrong name, it is told what there is."""
        only = play.build()["id"]
        with pytest.raises(UsageError, match="no previous build"):
            play.activate()
        with pytest.raises(UsageError, match="no build 'x'"):
            play.activate("x")
        with pytest.raises(UsageError, match="in force already"):
            play.activate(only)

    def test_overlay_before(self, play: Series) -> None:
        """Libraries that an overlay leaves in the checkout are named; gone ones not."""
        wheel = play.build()["id"]
        overlay = play.build(wheel_only=False)["id"]
        place = play.at.environment.name
        libraries = generations.placed(play.at.root, place).libraries
        assert libraries and all((play.at.checkout / one).exists() for one in libraries)
        play.out.truncate(0)
        play.activate(wheel)
        warned = f"{play.at.checkout} still holds the libraries of the overlay"
        assert f"{warned} {overlay}" in play.out.getvalue()
        play.out.truncate(0)
        play.activate(overlay)
        for library in libraries:
            (play.at.checkout / library).unlink()
        play.activate(wheel)
        assert warned not in play.out.getvalue()

    def test_checkout_gone(self, play: Series) -> None:
        """An overlay of a checkout that was moved away is no build to switch to."""
        wheel = play.build()["id"]
        overlay = play.build(wheel_only=False)["id"]
        play.at.checkout.rename(play.at.checkout.with_name("moved"))
        with pytest.raises(UsageError, match="is gone") as caught:
            play.activate(overlay)
        assert str(play.at.checkout) in caught.value.what
        assert caught.value.hint == "invoke build-sm70"
        assert play.activate(wheel).active == wheel

    @pytest.mark.parametrize("force", [False, True])
    def test_in_use(self, play: Series, force: bool) -> None:
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

    def test_unproved(self, play: Series, monkeypatch: pytest.MonkeyPatch) -> None:
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

    def test_another_commit(self, play: Series) -> None:
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

    def test_is_told(self, play: Series) -> None:
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


def test_overlay_is_found(play: Series) -> None:
    """An environment of an earlier version is kept when the first switch comes."""
    place = play.at.environment
    place.mkdir(parents=True)
    (place / "pyvenv.cfg").touch()
    made = play.build()
    assert play.active == made["id"]
    [old] = [name for name in play.kept if name != made["id"]]
    assert old.endswith("-kept") and play.activate().active == old
