# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""From typed words to a step: each command finds its scene and calls one step."""

from __future__ import annotations

import contextlib
import io
import json
import os
import types
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support import fakescene
from tests.rig.support.fakescene import KIT, chosen, scene
from tests.rig.support.places import MOUNT
from tools.rig.base.console import Console
from tools.rig.base.errors import CannotError, StepFailed, UsageError
from tools.rig.builds import generations, survey
from tools.rig.builds.generation import Generation
from tools.rig.builds.place import Environment
from tools.rig.builds.profile import load, on_sample
from tools.rig.builds.record import Record
from tools.rig.builds.target import HERE, Target
from tools.rig.guard.scan import ScanResult, User
from tools.rig.guard.targets import Targets
from tools.rig.host.look import Disk
from tools.rig.steps import (
    build,
    bundle,
    commands,
    doctor,
    from_wheel,
    git_safe,
    in_use,
    plan,
    shim,
    toolkit,
    venv,
    verify,
)
from tools.rig.steps.in_use import Report
from tools.rig.steps.linked import Linked


@dataclass(frozen=True)
class Answer:
    """What a faked step returns: the words it was called with."""

    args: tuple[Any, ...]
    words: tuple[tuple[str, Any], ...]


def fake(*args: Any, **words: Any) -> Answer:
    """Stand in for a step."""
    return Answer(args, tuple(words.items()))


class Desk:
    """A console, a scene, and what finding the scene was asked."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.at = scene(folder)
        self.patch = patch
        self.out = io.StringIO()
        self.console = Console(self.out, {})
        self.asked: dict[str, Any] = {}
        patch.setattr(commands.scenes, "find", self._find)
        # what the checkout of these tests has at .venv is no part of them
        self.linked: dict[Path, Linked] = {}
        patch.setattr(commands.linked, "of", lambda at, *_: self.linked.get(at))

    def _find(self, console: Console, settings: Any, **how: Any) -> Any:
        self.asked = {"settings": settings, **how}
        return self.at

    def put(self, module: types.ModuleType, name: str, answer: Any = fake) -> None:
        """Put a fake in the place of a step."""
        found = answer if callable(answer) else lambda *args, **words: answer
        self.patch.setattr(module, name, found)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Return a desk."""
    return Desk(tmp_path, monkeypatch)


def test_build(desk: Desk) -> None:
    """The whole scene, laid out and with a Python, goes to the build."""
    desk.put(build, "build")
    typed = {"jobs": "3", "profile": "sample", "source": ""}
    got = commands.build(desk.console, True, False, **typed)
    assert got.args == (desk.console, desk.at)
    assert got.words == (("wheel_only", True), ("when_free", False))
    assert desk.asked["settings"].jobs == 3
    assert desk.asked["settings"].profile == "sample"
    assert desk.asked["lay_out"] and desk.asked["python"]


def test_plan(desk: Desk) -> None:
    """It looks only, and prints where things will lie before what will be done."""

    class Made:
        def lines(self) -> list[str]:
            return ["the plan"]

    desk.put(plan, "preview", Made())
    commands.plan(desk.console, False)
    assert desk.asked["lay_out"] is False and desk.asked["python"] is True
    lines = desk.out.getvalue().splitlines()
    assert lines[-1] == "the plan" and lines[0].startswith("root: ")


@pytest.mark.parametrize("name", ["plan", "in_use", "verify"])
def test_who_reads(desk: Desk, name: str) -> None:
    """What only reads says so to the choice of the place; what makes does not."""
    there = desk.at.placing.facts
    desk.patch.setattr(survey, "facts", lambda *args, **how: there)
    desk.put(plan, "preview", _never)
    with contextlib.suppress(CannotError, StepFailed):
        getattr(commands, name)(desk.console, *([False] if name == "plan" else []))
    assert desk.asked["seams"].facts() == replace(there, reading=True)
    desk.put(toolkit, "plan", "the plan")
    desk.put(toolkit, "act")
    commands.toolkit(desk.console)
    assert desk.asked["seams"] == commands.scenes.Seams()


def test_toolkit(desk: Desk) -> None:
    """The plan of the pair is acted upon."""
    desk.put(toolkit, "plan", "the plan")
    desk.put(toolkit, "act")
    got = commands.toolkit(desk.console)
    assert got.args[1] == "the plan" and got.args[4] is desk.at.root
    assert desk.asked["python"] is False


class TestShim:
    """``shim-glibc``."""

    def test_probed(self, desk: Desk) -> None:
        """The pair that is here is probed with its own variables."""
        desk.put(toolkit, "plan", chosen())
        desk.put(shim, "shim")
        got = commands.shim(desk.console).data["args"]
        assert got[1]["root"] == KIT.root
        assert got[3]["CUDA_HOME"] == str(KIT.root)
        assert got[4] == desk.at.root.shims and desk.at.root.shims.is_dir()

    def test_no_toolkit(self, desk: Desk) -> None:
        """Without a toolkit it is said how to get one."""
        desk.put(toolkit, "plan", chosen(toolkit=None))
        with pytest.raises(CannotError) as caught:
            commands.shim(desk.console)
        assert caught.value.hint == "invoke cuda-toolkit"


def test_git_safe(desk: Desk) -> None:
    """Git is asked about the checkout and the folder of its dependencies."""
    desk.put(git_safe, "git_safe")
    got = commands.git_safe(desk.console).data["args"]
    assert got[1] == [desk.at.checkout, desk.at.deps]
    assert got[3] == desk.at.root.shims


def test_venv(desk: Desk) -> None:
    """The environment is made while its lock is held, and moved once nobody uses it."""
    at = desk.at
    locks: list[list[Path]] = []
    asked: list[Any] = []

    def act(placing: Any, console: Any, *, before_moving: Any, **how: Any) -> Any:
        assert how["relink"]
        locks.append(sorted(at.root.venvs.glob(".*.json")))
        before_moving()
        return Environment(
            at.root,
            at.environment,
            at.python,
            "3.12.4",
            None,
            (),
            at.deps,
            at.placing.bench,
        )

    def guard(console: Any, place: Path, checkout: Path, **how: Any) -> None:
        asked.append((place, checkout, how))

    desk.put(venv, "act", act)
    got = venv.guarded(desk.console, at, guard=guard).to_json()
    assert asked == [(at.environment, at.checkout, {"force": False, "patience": 0.0})]
    assert len(locks[0]) == 1 and not list(at.root.venvs.glob(".*.json"))
    locks.clear()
    got = commands.venv(desk.console).to_json()
    assert got["environment"] == str(at.environment)
    assert len(locks[0]) == 1 and not list(at.root.venvs.glob(".*.json"))
    assert "root: " in desk.out.getvalue()


@pytest.mark.parametrize("free", [True, False])
def test_in_use(desk: Desk, free: bool) -> None:
    """Exit code 4 says that somebody uses it."""
    found = ScanResult((), (), 0, (), 0.1)
    holder = None if free else "somebody"
    report = Report("/venv", None, found, holder, None)  # type: ignore[arg-type]  # any holder
    desk.put(in_use, "in_use", report)
    got = commands.in_use(desk.console)
    assert got.exit_code == (0 if free else 4)
    assert got.to_json()["venv"] == "/venv"
    assert desk.asked["lay_out"] is False and desk.asked["python"] is False


def test_in_use_of_a_wheel(desk: Desk) -> None:
    """The environment where our own .venv points is looked at too."""
    other = desk.at.root.venvs / "rig-1"
    other.mkdir(parents=True)
    desk.linked[HERE] = Linked(other, HERE)
    asked: list[tuple[Path, Path, bool]] = []

    def look(
        console: Any, place: Path, checkout: Path, *, only_if_used: bool
    ) -> Report:
        asked.append((place, checkout, only_if_used))
        holder = "somebody" if place == other else None
        found = ScanResult((), (), 0, (), 0.1)
        return Report(str(place), None, found, holder, None)  # type: ignore[arg-type]  # any holder

    desk.put(in_use, "in_use", look)
    own = desk.at.environment
    got = commands.in_use(desk.console)
    assert asked == [(own, desk.at.checkout, True), (other, HERE, False)]
    assert got.exit_code == 4
    assert got.to_json()["venv"] == str(other) and got.to_json()["others"] == []
    own.mkdir(parents=True)
    got = commands.in_use(desk.console)
    assert asked[2:] == [(own, desk.at.checkout, False), (other, HERE, False)]
    assert got.exit_code == 4 and got.to_json()["others"][0]["venv"] == str(other)
    commands.in_use(desk.console, source=str(desk.at.checkout))


def test_in_use_of_a_moved_one(desk: Desk) -> None:
    """Who uses the checkout's libraries counts, also where no environment is."""
    other = desk.at.root.venvs / "rig-1"
    other.mkdir(parents=True)
    desk.linked[HERE] = Linked(other, HERE)
    user = User(7, 1, "alice", "python", maps=("a.so",))

    def look(targets: Targets) -> ScanResult:
        used = targets.checkout == desk.at.checkout
        return ScanResult((user,) if used else (), (), 0, (), 0.1)

    real = in_use.in_use
    desk.put(in_use, "in_use", lambda *args, **how: real(*args, look=look, **how))
    got = commands.in_use(desk.console)
    assert got.exit_code == 4 and got.to_json()["venv"] == str(desk.at.environment)
    assert "1 process(es) use" in desk.out.getvalue()


class TestVerify:
    """``verify``."""

    @pytest.mark.parametrize("by", ["environment", "link"])
    def test_closed(
        self, desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
    ) -> None:
        """Another user's environment is not said to be missing."""
        closed = desk.at.root.path
        if by == "link":
            closed = tmp_path / "theirs"
            desk.at.placing.link.parent.mkdir(parents=True, exist_ok=True)
            desk.at.placing.link.symlink_to(closed / "venvs" / "x")
        closed.mkdir(parents=True)
        real = os.access
        monkeypatch.setattr(
            os, "access", lambda path, mode: Path(path) != closed and real(path, mode)
        )
        with pytest.raises(CannotError, match="closed to you") as caught:
            commands.verify(desk.console)
        assert str(closed) in caught.value.what
        assert caught.value.hint.startswith("sudo -u ")

    @pytest.mark.parametrize(
        ("profile", "taken"), [("", True), ("v100-cu128", True), ("sample", False)]
    )
    def test_of_a_wheel(self, desk: Desk, profile: str, taken: bool) -> None:
        """Where our own .venv points comes before the sample's environment."""
        desk.at = replace(
            desk.at,
            is_sample=True,
            settings=commands.settings_for({"profile": profile}, {}),
        )
        other = desk.at.root.venvs / "rig-1"
        (other / "bin").mkdir(parents=True)
        (other / "bin" / "python").touch()
        _make_python(desk)
        run = Record(desk.at.root, "invoke install-wheel")
        run.update(environment=str(other), profile="v100-cu128")
        desk.linked[HERE] = Linked(other, HERE)
        desk.put(toolkit, "plan", chosen())
        asked: dict[str, Any] = {}

        def look(console: Any, **what: Any) -> Any:
            asked.update(what)
            return fakescene.report("ok")

        desk.put(verify, "verify", look)
        assert commands.verify(desk.console).exit_code == 0
        if taken:
            assert asked["python"] == other / "bin" / "python"
            assert asked["profile"].name == "v100-cu128" and asked["checkout"] is None
        else:
            assert asked["python"] == desk.at.python

    def test_in_another_root(self, desk: Desk, tmp_path: Path) -> None:
        """Where the checkout's .venv points comes in when nothing is in this root."""
        other = tmp_path / "elsewhere" / "venvs" / "checkout-1"
        desk.linked[desk.at.checkout] = Linked(other, desk.at.checkout)
        with pytest.raises(CannotError, match=str(desk.at.environment)):
            commands.verify(desk.console)
        (other / "bin").mkdir(parents=True)
        (other / "bin" / "python").touch()
        roots: list[Path] = []

        def plan(settings: Any, profile: Any, root: Any, env: Any) -> Any:
            roots.append(root.path)
            return chosen(toolkit=KIT if root == desk.at.root else None)

        desk.put(toolkit, "plan", plan)
        asked: dict[str, Any] = {}

        def look(console: Any, **what: Any) -> Any:
            asked.update(what)
            return fakescene.report("ok")

        desk.put(verify, "verify", look)
        assert commands.verify(desk.console).exit_code == 0
        assert asked["python"] == other / "bin" / "python"
        assert asked["profile"] is desk.at.profile
        assert asked["checkout"] == desk.at.checkout
        assert roots == [tmp_path / "elsewhere", desk.at.root.path]
        said = f"looking at {other}, where .venv points"
        assert desk.out.getvalue().count(said) == 1
        _make_python(desk)
        commands.verify(desk.console)
        assert asked["python"] == desk.at.python

    def test_no_environment(self, desk: Desk) -> None:
        """Without an environment there is nothing to prove."""
        with pytest.raises(CannotError, match="no environment") as caught:
            commands.verify(desk.console)
        assert caught.value.hint == "invoke build-sm70"

    def test_a_build_is_kept(self, desk: Desk) -> None:
        """Where only the link is gone, the way back costs seconds and no build."""
        name, place = "20260101-1", desk.at.environment.name
        folder = generations.folder_of(desk.at.root, place) / name
        folder.mkdir(parents=True)
        mark = generations.mark_text(Generation(name, folder, verified=True))
        (folder / generations.MARK).write_text(mark)
        with pytest.raises(CannotError, match="no environment") as caught:
            commands.verify(desk.console)
        assert caught.value.hint == f"invoke activate --build {name}"
        assert name in caught.value.usual

    def test_no_toolkit(self, desk: Desk) -> None:
        """Without cuobjdump nothing can be listed."""
        _make_python(desk)
        desk.put(toolkit, "plan", chosen(toolkit=None))
        with pytest.raises(CannotError, match="cuobjdump"):
            commands.verify(desk.console)

    @pytest.mark.parametrize(("verdict", "code"), [("ok", 0), ("no code", 1)])
    def test_verdict(self, desk: Desk, verdict: str, code: int) -> None:
        """A build that is not proved ends with 1 and what to do."""
        _make_python(desk)
        desk.put(toolkit, "plan", chosen())
        desk.put(verify, "verify", fakescene.report(verdict))
        got = commands.verify(desk.console)
        assert got.exit_code == code and got.to_json()["ok"] is (code == 0)
        assert ("hint: invoke build-sm70" in desk.out.getvalue()) is (code == 1)


class TestInstallWheel:
    """``install-wheel FILE``."""

    NAME = "1cat_vllm-1.0-cp38-abi3-linux_x86_64.whl"

    def test_here(self, desk: Desk, tmp_path: Path) -> None:
        """The file's name chooses the profile; the environment is this checkout's."""
        seen: list[Any] = []

        def at(settings: Any, checkout: Path, profile: Any) -> Any:
            seen.extend([checkout, profile.name])
            return desk.at

        desk.put(commands.scenes, "at", at)
        desk.put(from_wheel, "install")
        file = tmp_path / self.NAME
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("vllm/__init__.py", "")
        got = commands.install_wheel(desk.console, str(file), False)
        assert seen == [HERE, "v100-cu128"]
        assert got.args == (desk.console, desk.at, file)

    @pytest.mark.parametrize("name", ["a\nb.whl", "no-wheel.txt", ""])
    def test_refused(self, desk: Desk, name: str) -> None:
        """A name that is no wheel's is refused before anything is looked at."""
        with pytest.raises(UsageError):
            commands.install_wheel(desk.console, name, False)

    def test_another_system(self, desk: Desk, tmp_path: Path) -> None:
        """What no Python here can load is refused before anything is made."""
        file = tmp_path / "1cat_vllm-1-cp312-cp312-win_amd64.whl"
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("vllm/__init__.py", "")
        with pytest.raises(CannotError, match="another system"):
            commands.install_wheel(desk.console, str(file), False)

    def test_no_checkout(self, desk: Desk, tmp_path: Path) -> None:
        """A checkout that is named and not there is wrong usage."""
        file = tmp_path / self.NAME
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("vllm/__init__.py", "")
        source = str(tmp_path / "none")
        with pytest.raises(UsageError, match="--source .*: it does not exist"):
            commands.install_wheel(desk.console, str(file), False, source=source)


class TestBundle:
    """``bundle``."""

    @pytest.fixture(autouse=True)
    def faked(self, desk: Desk) -> None:
        """Let nothing be gathered, and the disk be looked at without a process."""
        desk.put(bundle, "bundle")
        real = commands.target.need_some_folder
        self.hung = False

        def seen(path: Path, measure_s: float) -> Disk:
            return Disk(path, path, MOUNT, exists=path.is_dir(), hung=self.hung)

        desk.put(commands.target, "need_some_folder", lambda at: real(at, seen))

    def test_of_a_slip(self, desk: Desk, tmp_path: Path) -> None:
        """A source that is typed and is no folder is wrong usage, as everywhere."""
        for name in (tmp_path / "none", Path(__file__)):
            with pytest.raises(UsageError, match="--source"):
                commands.bundle(desk.console, "", False, source=str(name))

    def test_of_what_is_broken(
        self, desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A folder, whatever is in it, a dead disk and a variable are no obstacle."""
        monkeypatch.setenv("ONECAT_SOURCE", "/nonexistent")
        assert commands.bundle(desk.console, "", False).args[1] == {}
        got = commands.bundle(desk.console, "", False, source=str(tmp_path))
        assert got.args[1] == {"source": str(tmp_path)}
        self.hung = True
        commands.bundle(desk.console, "", True, source="/dead/disk")

    def test_of_another_user(
        self, desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What cannot be looked at may be the folder that is meant."""
        real = os.access
        monkeypatch.setattr(
            os, "access", lambda path, mode: Path(path) != tmp_path and real(path, mode)
        )
        commands.bundle(desk.console, "", True, source=str(tmp_path / "closed"))


class TestDoctor:
    """``doctor``."""

    def test_list(self, desk: Desk) -> None:
        """The checks are listed, for people and as data."""
        got = commands.doctor(desk.console, [], True, "").to_json()
        assert {"id", "topic", "title"} == set(got[0])
        assert desk.out.getvalue().startswith("CHECK")

    def test_run(self, desk: Desk) -> None:
        """The target's profile and checkout go to the checks."""
        target = Target(Path("/fork"), load("v100-cu128"))
        desk.put(commands.target, "find", target)
        desk.put(doctor, "doctor")
        got = commands.doctor(desk.console, ["git"], False, "", source="/fork")
        words = dict(got.words)
        want = {"only": ["git"], "checkout": Path("/fork"), "absent": False}
        assert words == want
        assert got.args[2] is target.profile

    @pytest.mark.parametrize(
        ("named", "needs_torch", "said"),
        [("", False, ""), ("sample", False, ""), ("v100-cu128", True, "no checkout")],
    )
    def test_without_checkout(
        self, desk: Desk, named: str, needs_torch: bool, said: str
    ) -> None:
        """A real profile that is named is judged as it is, not as the sample."""
        real = load(named or "sample")
        sample = real if real.torch is None else on_sample(real)
        desk.put(commands.target, "find", Target(None, sample))
        desk.put(doctor, "doctor")
        got = commands.doctor(desk.console, [], False, "", profile=named)
        assert (got.args[2].torch is not None) == needs_torch
        words = dict(got.words)
        assert words == {"only": [], "checkout": HERE, "absent": True}
        assert desk.out.getvalue().startswith(said)
        assert bool(desk.out.getvalue()) == bool(said)

    def test_compare(self, desk: Desk, tmp_path: Path) -> None:
        """What differs from another host's report is the result."""
        file = tmp_path / "other.json"
        file.write_text("{}")
        desk.put(commands.target, "find", Target(None, load("sample")))
        desk.put(doctor, "read_report", {})
        desk.put(doctor, "doctor")
        desk.put(doctor, "compare_with", [Answer((), ())])
        got = commands.doctor(desk.console, [], False, str(file))
        assert got.to_json() == [{"args": (), "words": ()}]

    def test_no_such_report(self, desk: Desk) -> None:
        """A file that is no report is told before the checks run."""
        desk.put(doctor, "doctor", _never)
        with pytest.raises(UsageError):
            commands.doctor(desk.console, [], False, "/nonexistent.json")


class TestBuilds:
    """``builds``."""

    def test_none(self, desk: Desk) -> None:
        """Where nothing was built, that is said."""
        desk.patch.setattr(survey, "remembered_root", lambda file: (None, False))
        assert commands.builds(desk.console).to_json() == []
        assert desk.out.getvalue() == "no builds yet\n"

    @pytest.mark.parametrize("below", [False, True])
    def test_named(self, desk: Desk, monkeypatch: Any, below: bool) -> None:
        """The root that the user named is listed, or ours below the user's folder."""
        path = desk.at.root.path
        root = commands.StateRoot(path / survey.NAME if below else path)
        Record(root, "invoke build-sm70").end("failed", 1, error="broken")
        monkeypatch.setenv("ONECAT_LOCAL_ROOT", str(path))
        [found] = commands.builds(desk.console).to_json()
        assert found["result"] == "failed"
        assert "broken" in desk.out.getvalue()

    def test_remembered(self, desk: Desk) -> None:
        """Without a name the root that was chosen before is listed."""
        Record(desk.at.root, "invoke build-sm70").end("done", 0, version="1.0")
        memory = survey.remembered_file(commands.os.environ)
        memory.parent.mkdir(parents=True)
        memory.write_text(json.dumps({"root": str(desk.at.root.path)}))
        desk.patch.setattr(survey, "remembered_root", _read_plainly)
        assert len(commands.builds(desk.console).to_json()) == 1
        assert "1.0" in desk.out.getvalue()

    def test_of_a_source(self, desk: Desk, tmp_path: Path) -> None:
        """Those of the checkout that is named, in the root where its .venv leads."""
        desk.patch.setattr(survey, "remembered_root", lambda file: (None, False))
        source = tmp_path / "c"
        with pytest.raises(UsageError, match="does not exist"):
            commands.builds(desk.console, source=str(source))
        source.mkdir()
        assert commands.builds(desk.console, source=str(source)).to_json() == []
        run = Record(desk.at.root, "invoke build-sm70")
        run.update(checkout=str(source))
        away = desk.at.root.venvs / "other-1"
        desk.linked[source] = Linked(away, source)
        assert commands.builds(desk.console, source=str(source)).to_json() == []
        name = commands.place_id(source)
        desk.linked[source] = Linked(desk.at.root.venvs / name, source)
        [row] = commands.builds(desk.console, source=str(source)).to_json()
        assert row["id"] == run.id and desk.console.flags == {"source": str(source)}


def _read_plainly(file: Path) -> tuple[Path, bool]:
    return Path(json.loads(file.read_text())["root"]), False


def _make_python(desk: Desk) -> None:
    desk.at.python.parent.mkdir(parents=True)
    desk.at.python.touch()


def _never(*args: Any, **words: Any) -> Any:
    raise StepFailed("this was not to be called")


def test_which_build() -> None:
    """Nothing is no build: it would mean the previous one."""
    assert commands.named("2026") == "2026"
    with pytest.raises(UsageError, match="which build"):
        commands.named("")
