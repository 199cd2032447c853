# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a command works on, from typed words to places on a disk."""

from __future__ import annotations

import io
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support import fakemachine
from tools.rig.base.config import Settings
from tools.rig.base.console import Console
from tools.rig.base.errors import CannotError, UsageError
from tools.rig.base.state import SENTINEL, place_id
from tools.rig.builds import profile
from tools.rig.builds.candidates import Candidate
from tools.rig.builds.place import PlaceFacts
from tools.rig.builds.target import HERE, Target
from tools.rig.host.look import Checkout, Link
from tools.rig.steps import scene as scenes
from tools.rig.steps.scene import Scene, Seams, settings_for

SAMPLE = profile.load("sample")
V100 = profile.load("v100-cu128")


class Machine:
    """A machine with one disk; it notes what was looked at, and how."""

    def __init__(self, folder: Path, target: Target) -> None:
        self.root = folder / "root"
        self.target = target
        self.looks: list[tuple[Path, dict[str, Any]]] = []
        self.order: list[str] = []
        self.ready: set[Path] = set()
        self.out = io.StringIO()
        self.offline = False

    def facts(self, settings: Settings, checkout: Path, **how: Any) -> PlaceFacts:
        """Stand in for the survey."""
        self.looks.append((checkout, how))
        self.order.append("look")
        name = place_id(checkout)
        here = Checkout(checkout, checkout, name, fakemachine.UID, True, Link("absent"))
        venv = "ready" if checkout in self.ready else "absent"
        version = "3.12.4" if venv == "ready" else ""
        bad = Candidate(Path("/nas"), "", fakemachine.disk(fs="nfs4"))
        good = Candidate(
            settings.local_root or self.root,
            "state folder",
            fakemachine.disk(),
            settings.local_root is not None,
            venv,
            version,
        )
        both = (good,) if settings.local_root else (bad, good)
        seams = how.get("seams")
        found = fakemachine.survey().pythons
        if seams is not None and seams.find_pythons is None:
            found = ()
        return replace(
            fakemachine.survey(),
            checkout=here,
            candidates=both,
            pythons=found,
            offline=bool(settings.offline),
            wanted=settings.python or fakemachine.survey().wanted,
            wanted_by_user=settings.python is not None,
        )

    def find(self, env: dict[str, str] | None = None, **how: Any) -> Scene:
        """Find the scene with fakes for all that is asked."""
        cli = how.pop("cli", {})
        seams = Seams(
            find_target=lambda settings: self.target,
            facts=self.facts,
            lay_out=lambda folder, env: self._lay_out(folder),
            need_git=lambda env: self.order.append("git") or "2.39",  # type: ignore[func-returns-value]  # a note, then the answer
        )
        settings = settings_for(cli, env or {})
        console = Console(self.out, {})
        return scenes.find(console, settings, env or {}, seams=seams, **how)

    def _lay_out(self, folder: Path) -> None:
        self.order.append("lay out")
        (folder / "rig-sample").mkdir(parents=True)


@pytest.fixture
def sample(tmp_path: Path) -> Machine:
    """Return a machine without a checkout."""
    return Machine(tmp_path, Target(None, SAMPLE))


class TestCheckout:
    """A checkout that a profile knows."""

    def test_places(self, tmp_path: Path) -> None:
        """Root, environment and dependencies are those of the place's plan."""
        checkout = tmp_path / "fork"
        machine = Machine(tmp_path, Target(checkout, V100))
        env = {"ONECAT_GIT_MIRRORS": "https://a/=https://b/"}
        found = machine.find(env)
        assert found.checkout == checkout and not found.is_sample
        assert found.root.path == machine.root
        assert found.environment == machine.root / "venvs" / place_id(checkout)
        assert found.deps == machine.root / "deps" / place_id(checkout)
        assert found.python == found.environment / "bin" / "python"
        assert found.mirrors == {"https://a/": "https://b/"}
        [(looked, how)] = machine.looks
        assert looked == checkout and how["python"] == "3.12"
        assert how["need_headers"] and machine.out.getvalue() == ""

    def test_no_python_asked(self, tmp_path: Path) -> None:
        """A command that makes no environment misses no Python, offline either."""
        machine = Machine(tmp_path, Target(tmp_path / "fork", V100))
        env = {"ONECAT_OFFLINE": "1"}
        assert machine.find(env, python=False).checkout == tmp_path / "fork"
        [(_, how)] = machine.looks
        assert how["seams"].find_pythons is None

    def test_tmpdir(self, tmp_path: Path) -> None:
        """A TMPDIR that is no folder is refused before anything is looked at."""
        machine = Machine(tmp_path, Target(tmp_path / "fork", V100))
        env = {"TMPDIR": str(tmp_path / "none")}
        with pytest.raises(UsageError, match="is no folder"):
            machine.find(env)
        with pytest.raises(UsageError, match="is no folder"):
            scenes.at(settings_for({}, env), tmp_path / "fork", V100, env)
        assert machine.looks == []

    def test_no_place(self, tmp_path: Path) -> None:
        """Where no disk will do, all are named."""
        machine = Machine(tmp_path, Target(tmp_path / "fork", V100))
        full = fakemachine.disk(free=1)

        def facts(*args: Any, **how: Any) -> PlaceFacts:
            there = Candidate(tmp_path, "state folder", full)
            return replace(fakemachine.survey(), candidates=(there,))

        machine.facts = facts  # type: ignore[method-assign]  # another machine
        with pytest.raises(CannotError, match="no disk of this machine"):
            machine.find()


class TestSample:
    """No checkout: the sample, inside the root that is chosen for it."""

    def test_laid_out(self, sample: Machine) -> None:
        """It is said in one line; git is missed before anything is made."""
        found = sample.find()
        checkout = sample.root / "sample" / "rig-sample"
        assert found.is_sample and found.checkout == checkout
        assert found.environment == sample.root / "venvs" / place_id(checkout)
        assert sample.order == ["look", "git", "lay out", "look"]
        assert (sample.root / SENTINEL).exists()
        assert "no 1Cat-vLLM checkout here" in sample.out.getvalue()
        assert sample.out.getvalue().count("\n") == 1
        [mirror] = found.mirrors.values()
        assert mirror == str(sample.root / "sample" / "rig-sample-dep.git")

    def test_measured_once(self, sample: Machine) -> None:
        """The disks are measured and Pythons searched for in one look each."""
        found = sample.find()
        (first, how), (second, again) = sample.looks
        assert first == HERE and second == found.checkout
        assert "measure_s" not in how and again["measure_s"] == 0
        assert how["seams"].find_pythons is None
        assert "seams" not in again
        assert found.placing.python.installed is not None

    def test_why_of_the_place(self, sample: Machine) -> None:
        """The place is remembered for its real reason, not as the user's choice."""
        placing = sample.find().placing
        assert placing.why == "state folder" and not placing.chosen
        assert [bool(v.reason) for v in placing.verdicts] == [True, False]

    def test_environment_that_is_there(self, sample: Machine) -> None:
        """The sample's own environment is found ready the next time."""
        sample.ready.add(sample.root / "sample" / "rig-sample")
        assert sample.find().placing.existing == "ready"

    def test_only_looking(self, sample: Machine) -> None:
        """A command that only looks lays nothing out, and knows where it would lie."""
        found = sample.find(lay_out=False)
        assert found.checkout == sample.root / "sample" / "rig-sample"
        assert found.environment.name == place_id(found.checkout)
        assert sample.order == ["look", "look"]
        assert not sample.root.exists()
        assert found.placing.existing == "absent"

    def test_looking_at_one_that_is_there(self, sample: Machine) -> None:
        """One that was laid out before is looked at itself."""
        checkout = sample.root / "sample" / "rig-sample"
        checkout.mkdir(parents=True)
        sample.ready.add(checkout)
        found = sample.find(lay_out=False, python=False)
        assert found.placing.existing == "ready"
        assert all("seams" in how for _, how in sample.looks)

    def test_users_mirror_wins(self, sample: Machine) -> None:
        """A mirror of the user's for the same address stands."""
        url = "https://github.com/1CatAI/rig-sample-dep.git"
        found = sample.find({"ONECAT_GIT_MIRRORS": f"{url}=/mine.git"})
        assert found.mirrors == {url: "/mine.git"}


class TestSettings:
    """Where settings come from."""

    def test_order(self, tmp_path: Path) -> None:
        """Typed words win over the environment, and that over the file."""
        file = tmp_path / "rig.toml"
        file.write_text('jobs = 3\nprofile = "sample"\npython = "3.11"\n')
        env = {"ONECAT_CONFIG": str(file), "MAX_JOBS": "4", "ONECAT_PYTHON": "3.12"}
        found = settings_for({"jobs": "5", "source": "", "profile": None}, env)
        assert (found.jobs, found.python, found.profile) == (5, "3.12", "sample")
        assert found.source is None

    def test_own_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without another one our own environment counts."""
        monkeypatch.setenv("MAX_JOBS", "7")
        assert settings_for({}).jobs == 7

    def test_wrong(self) -> None:
        """What cannot be read is refused."""
        with pytest.raises(UsageError):
            settings_for({"jobs": "0"}, {})


def test_at(tmp_path: Path) -> None:
    """A checkout and a profile that are known need no search for a target."""
    machine = Machine(tmp_path, Target(None, SAMPLE))
    settings = settings_for({}, {})
    seams = Seams(facts=machine.facts)
    found = scenes.at(settings, tmp_path / "here", V100, seams=seams)
    assert found.profile is V100 and found.checkout == tmp_path / "here"
    assert found.env["PATH"] == os.environ["PATH"]


def test_python_that_the_profile_never_takes(tmp_path: Path) -> None:
    """It is refused before the sample is there to say so."""
    machine = Machine(tmp_path, Target(None, SAMPLE))
    with pytest.raises(CannotError, match="does not admit Python 2.7") as caught:
        machine.find(cli={"python": "2.7"}, lay_out=False)
    assert caught.value.hint == "unset ONECAT_PYTHON"
    assert machine.find(cli={"python": "3.12"}, lay_out=False).is_sample
