# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The order of a build, and what it leaves behind however it ends."""

from __future__ import annotations

import errno
import io
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support import fakemachine, fakescene
from tests.rig.support.fakescene import Stage, scene
from tools.rig.base.console import Console
from tools.rig.base.errors import (
    CannotError,
    Interrupted,
    InUseError,
    StepFailed,
    UsageError,
)
from tools.rig.builds import record
from tools.rig.guard.gate import InUse
from tools.rig.guard.lock import BuildLock
from tools.rig.guard.scan import ScanResult, User
from tools.rig.steps import activate, build_report, compiling, from_wheel
from tools.rig.steps import build as step
from tools.rig.steps.git_safe import GitSafeResult
from tools.rig.steps.switching import Wish

BESIDE = [
    "git",
    "environment",
    "plan pair",
    "pair",
    "trust",
    "install",
    "compile",
    "verify",
    "venv",
    "install",
    "install",
]
"""What a build does before it asks who uses what is in force."""


class Play:
    """A scene, its fakes, and what people saw."""

    def __init__(self, folder: Path) -> None:
        self.at = scene(folder, jobs=2)
        self.stage = Stage(self.at)
        self.out = io.StringIO()

    def build(self, *, wheel_only: bool = False) -> dict[str, Any]:
        """Run a build."""
        console = Console(self.out, {})
        use = self.stage.tools
        done = step.build(console, self.at, wheel_only=wheel_only, use=use)
        return dict(done.to_json())

    @property
    def last(self) -> dict[str, Any]:
        """The newest record, as it is on the disk."""
        file = max(self.at.root.records.glob("*.json"), key=lambda p: p.stat().st_mtime)
        return dict(json.loads(file.read_text()))


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """Return a play below a fresh folder."""
    return Play(tmp_path)


def test_read_only(tmp_path: Path) -> None:
    """A checkout that cannot be written to is refused before anything is done."""
    play = Play(tmp_path)
    seen = replace(play.at.placing.facts.checkout, writable=False)
    facts = replace(play.at.placing.facts, checkout=seen)
    play.at = replace(play.at, placing=replace(play.at.placing, facts=facts))
    with pytest.raises(CannotError, match="cannot be written to") as caught:
        play.build()
    assert "--source" in caught.value.hint
    assert [name for name, _ in play.stage.calls] == ["git"]
    assert not play.at.root.path.exists()


def test_forced(tmp_path: Path) -> None:
    """Whom ONECAT_FORCE=1 overrode stands in the summary and in the record."""
    play = Play(tmp_path)
    play.at = scene(tmp_path, jobs=2, force=True)
    play.stage = Stage(play.at)
    play.stage.users = (User(87221, 1, "alice", "vllm serve"),)
    over = "ONECAT_FORCE=1 over PID 87221 vllm serve"
    play.build()
    assert f"work-round   {over}" in play.out.getvalue()
    assert over in play.last["notes"]


class TestEditable:
    """A build that goes well."""

    def test_order(self, play: Play) -> None:
        """Build beside, prove, look three times, and prove where the libraries lie."""
        made = play.build()
        asked = [name for name, _ in play.stage.calls]
        assert asked == [*BESIDE, "guard", "guard", "guard", "verify"]
        assert made["result"] == "done" and made["exit_code"] == 0
        assert made["version"] == "0.1.0" and made["profile"] == "sample"
        assert [s["result"] for s in made["steps"]] == ["done"] * 10
        assert play.last == json.loads(json.dumps(made))

    def test_commands(self, play: Play) -> None:
        """Every program gets the words and variables of the plan."""
        made = play.build()
        artifacts = play.at.root.artifacts / made["id"]
        held = ["--constraint", str(artifacts / "constraints.txt")]
        needs, rest, editable = play.stage.named("install")
        reqs = f"{play.at.checkout}/requirements/sample-build.txt"
        assert needs[0] == [*held, "--requirement", reqs]
        flags = ["--no-build-isolation", "--no-deps", "--editable"]
        assert editable[0] == [*flags, str(play.at.checkout)]
        hollow = next((artifacts / "hollow").iterdir())
        assert editable[1]["SAMPLE_PRECOMPILED_WHEEL_LOCATION"] == str(hollow)
        listed = artifacts / "requirements.txt"
        both = ["--requirement", reqs, "--requirement", str(listed)]
        assert rest[0] == [*held, *both]
        assert listed.read_text() == "typing-extensions>=4.6\n"
        [(argv, env, how)] = play.stage.named("compile")
        assert argv[-2:] == [str(artifacts), str(play.at.checkout)]
        assert env["RIG_ADMISSION_CAP"] == "2" and env["GIT_X"] == "1"
        assert env["MAX_JOBS"] == str(made["plan"]["jobs"])
        for launched in ("rig-admit;", "rig-cache"):
            assert launched in env["CMAKE_ARGS"]
        assert env["CUDA_HOME"] == str(fakescene.KIT.root)
        assert "PYTHONPATH" not in env
        assert how["first_to_die"] and how["nice"] == compiling.NICE
        assert env["TMPDIR"].startswith(str(play.at.root.tmp))

    def test_what_leads_astray(self, play: Play) -> None:
        """A DESTDIR of the user's is not seen by the build, which says so."""
        play.at = replace(play.at, env={**play.at.env, "DESTDIR": "/elsewhere"})
        made = play.build()
        [(_, env, _)] = play.stage.named("compile")
        assert "DESTDIR" not in env
        [line] = [note for note in made["notes"] if "DESTDIR" in note]
        assert line.startswith("DESTDIR=/elsewhere is dropped for the build")
        assert f"work-round   {line}" in play.out.getvalue()

    def test_libraries_in_place(self, play: Play) -> None:
        """What the build made lies in the checkout, what git tracks is left alone."""
        play.build()
        package = play.at.checkout / "rig_sample"
        assert sorted(p.name for p in package.iterdir()) == [
            "_C.abi3.so",
            "_host.abi3.so",
        ]
        assert (package / "_C.abi3.so").read_text() == "new _C.abi3.so"

    def test_verified_before_and_after(self, play: Play) -> None:
        """The wheel is proved before it is installed, the environment afterwards."""
        play.build()
        before, after = play.stage.named("verify")
        assert before["wheel"].name.endswith(".whl") and before["checkout"] is None
        assert after["wheel"] is None and after["checkout"] == play.at.checkout

    def test_summary(self, play: Play) -> None:
        """It says what was built and proved; notes that are no work-rounds stay out."""
        play.stage.pair_notes = ("CUDA 12.4 brought",)
        play.build()
        end = play.out.getvalue()
        end = end[end.index("built 0.1.0 (v0.1.0)") :]
        assert "1 CUDA libraries hold sm_70 code" in end
        assert "work-round   CUDA 12.4 brought" in end
        assert end.count("work-round") == 1 and "fast" not in end

    def test_work_rounds(self, tmp_path: Path) -> None:
        """A slow disk, a foreign owner and a kept toolkit are named each time."""
        play = Play(tmp_path)
        play.at = scene(tmp_path, survey=fakescene.slow_checkout(), jobs=2)
        play.stage = Stage(play.at)
        play.stage.made_notes = ("Python 3.11 instead of 3.12",)
        kit = fakemachine.toolkit(origin="provisioned", root="/state/toolkits/x")
        gxx = fakemachine.compiler(path=str(play.at.root.toolkits / "gcc/bin/g++"))
        play.stage.chosen = replace(play.stage.chosen, toolkit=kit, compiler=gxx)
        play.stage.safe = GitSafeResult(True, {}, "trusts it", ("X",), True)
        notes = play.build()["notes"]
        assert len(notes) == 5
        assert notes[0] == "Python 3.11 instead of 3.12"
        assert "the checkout's own disk is slow" in notes[1]
        assert notes[2].startswith("CUDA 12.4.131 from /state/toolkits/x")
        assert notes[3].startswith("g++ 12.2") and notes[4] == "git: trusts it"

    def test_moved_folders(self, play: Play) -> None:
        """A package whose place in the checkout is another gets its libraries there."""
        play.at = replace(
            play.at,
            profile=replace(
                fakescene.SAMPLE,
                overlay_moved={"rig_sample/": "other/rig_sample/"},
                overlay_paths=("other",),
            ),
        )
        play.stage.at = play.at
        play.build()
        assert (play.at.checkout / "other/rig_sample/_C.abi3.so").exists()
        site = play.at.environment / "lib/python3.12/site-packages"
        pth = site / "rig-overlay-rig-sample.pth"
        assert pth.read_text() == f"{play.at.checkout}/other\n"
        play.build(wheel_only=True)
        assert not pth.exists()

    def test_objects(self, play: Play) -> None:
        """The record holds ninja's own times."""
        temp = play.at.checkout / "build" / "temp.linux"
        temp.mkdir(parents=True)
        (temp / ".ninja_log").write_text("# ninja log v6\n0\t1500\t0\ta.o\tff\n")
        made = play.build()
        assert made["objects"] == [
            {"output": "a.o", "start_s": 0.0, "end_s": 1.5, "peak_bytes": None}
        ]


def test_wheel_only(play: Play) -> None:
    """With --wheel a generation is made and proved, and the checkout stays as it is."""
    made = play.build(wheel_only=True)
    asked = [name for name, _ in play.stage.calls]
    assert asked == [*BESIDE, "verify", "guard", "guard", "guard"]
    [_, _, install] = play.stage.named("install")
    assert install[0] == ["--no-deps", made["wheel"]]
    assert not (play.at.checkout / "rig_sample").exists()
    assert play.stage.named("verify")[1]["checkout"] is None
    assert {checkout for _, checkout, _ in play.stage.named("guard")} == {None}
    folder = play.at.root.generations / play.at.environment.name / made["id"]
    assert play.at.environment.resolve() == folder
    mark = json.loads((folder / "rig-generation.json").read_text())
    assert mark["verified"] and mark["mode"] == "wheel" and mark["head"] == "c0ffee"


class TestBadEnd:
    """However it ends, the record says so and nothing in force was touched."""

    @pytest.mark.parametrize("part", ["environment", "pair", "trust", "install"])
    def test_step_fails(self, play: Play, part: str) -> None:
        """A failing step ends the build; later ones are not begun."""
        play.stage.breaks = part
        with pytest.raises(StepFailed, match="broken"):
            play.build()
        last = play.last
        assert last["result"] == "failed" and last["exit_code"] == 1
        assert last["error"] == "broken"
        assert last["steps"][-1]["result"] == "failed"
        assert play.stage.calls[-1][0] == part
        assert not (play.at.checkout / "rig_sample").exists()

    @pytest.mark.parametrize("error", [KeyboardInterrupt(), Interrupted("stopped")])
    def test_interrupted(self, play: Play, error: BaseException) -> None:
        """An interruption is recorded as one."""
        play.stage.breaks, play.stage.error = "compile", error
        with pytest.raises(type(error)):
            play.build()
        assert play.last["result"] == "interrupted"
        assert play.last["exit_code"] == 130

    def test_crash(self, play: Play) -> None:
        """A bug of ours is recorded as a failure."""
        play.stage.breaks, play.stage.error = "pair", RuntimeError("a bug")
        with pytest.raises(RuntimeError):
            play.build()
        assert play.last["result"] == "failed" and play.last["error"] == "a bug"

    def test_compile_fails(self, play: Play) -> None:
        """The first decisive error of this step is shown, not an earlier step's."""
        log_of_install = "error: Failed to fetch something, then tried again\n"

        def install(uv: Path, python: Path, words: Any, **how: Any) -> None:
            with how["log"].open("a") as sink:
                sink.write(log_of_install * 3)

        play.stage.compiles = 1
        play.stage.says = [
            "frobnicator: error: this one is in no catalogue",
            "ninja: build stopped: subcommand failed.",
        ]
        use = replace(play.stage.tools, install=install)
        with pytest.raises(StepFailed) as caught:
            step.build(Console(play.out, {}), play.at, wheel_only=False, use=use)
        assert caught.value.what == "building the wheel failed (status 1)"
        assert caught.value.details[0].startswith("frobnicator: error: ")
        assert f"line 4 of {play.last['log']}" in caught.value.usual
        assert caught.value.hint.startswith("less ")
        assert play.last["peaks"]["total_bytes"] >= 0

    def test_compiler_rejects_a_line(self, play: Play) -> None:
        """An ordinary error of a compiler is named with its file and its line."""
        play.stage.compiles = 1
        play.stage.says = ['csrc/x.cu(3): error: expected a ";"']
        with pytest.raises(StepFailed) as caught:
            play.build()
        said = 'The compiler rejects x.cu, line 3: expected a ";"'
        assert caught.value.what == f"building the wheel failed (status 1): {said}"
        assert caught.value.details[0] == 'csrc/x.cu(3): error: expected a ";"'

    def test_killed(self, play: Play) -> None:
        """The number of compiles that is advised lies below the one that was used."""
        play.stage.compiles = 137
        play.stage.says = ["FAILED: [code=137] x.cu.o", "ninja: build stopped: x"]
        with pytest.raises(StepFailed) as caught:
            play.build()
        most = play.last["plan"]["compiles_at_once"]
        assert most > 1
        advised = f"--jobs {most // 2}"
        assert any(advised in line for line in caught.value.details)

    @pytest.mark.parametrize("said", [True, False])
    def test_full_disk(
        self, play: Play, monkeypatch: pytest.MonkeyPatch, said: bool
    ) -> None:
        """A full disk is the cause, whether the compiler says so or not."""
        play.stage.compiles = 1
        play.stage.says = ["a.cpp:1: fatal error: No space left on device"] * said
        play.stage.says += ["no working C++ compiler"]
        free = (9 << 30) if said else 0
        monkeypatch.setattr(build_report.storage, "free", lambda path: (free, 99))
        with pytest.raises(StepFailed, match="No space left on device") as caught:
            play.build()
        assert caught.value.hint.startswith("df -h ")
        assert len(caught.value.details) == said

    @pytest.mark.parametrize(("said", "left"), [(True, 9000), (False, 3)])
    def test_no_inodes(
        self, play: Play, monkeypatch: pytest.MonkeyPatch, said: bool, left: int
    ) -> None:
        """Bytes that are free do not hide that no further file can be made."""
        play.stage.compiles = 1
        play.stage.says = ["a.cpp:1: fatal error: No space left on device"] * said
        monkeypatch.setattr(build_report.storage, "free", lambda path: (9 << 30, left))
        disk = os.statvfs_result(
            (4096, 4096, 9 << 20, 9 << 20, 9 << 20, 10**6, *[left] * 2, 0, 255)
        )
        monkeypatch.setattr(os, "statvfs", lambda path: disk)
        with pytest.raises(StepFailed, match="no inodes are left") as caught:
            play.build()
        assert caught.value.hint.startswith("df -i ")

    @pytest.mark.parametrize("objects", ['"x"', "7", "[7]", '[{"output": "a.o"}]'])
    def test_odd_record(self, play: Play, objects: str) -> None:
        """A record of before that was edited by hand costs no build."""
        play.build(wheel_only=True)
        file = play.at.root.records / f"{play.last['id']}.json"
        data = {**json.loads(file.read_text()), "objects": json.loads(objects)}
        file.write_text(json.dumps(data))
        play.stage.content = "other"
        play.build(wheel_only=True)
        assert play.last["result"] == "done"

    def test_no_line_says_why(self, play: Play) -> None:
        """Without a decisive line the whole log is named."""
        play.stage.compiles, play.stage.says = 9, ["all is well"]
        with pytest.raises(StepFailed) as caught:
            play.build()
        assert caught.value.details == ()
        assert "No line says why" in caught.value.usual

    @pytest.mark.parametrize(
        ("verdicts", "wheel_only", "calls"),
        [
            (["no code"], False, 8),
            (["ok", "no code"], True, 12),
            (["ok", "no code"], False, 15),
        ],
    )
    def test_not_proved(
        self, play: Play, verdicts: list[str], wheel_only: bool, calls: int
    ) -> None:
        """What fails the proof is gone or switched back; what was in force still is."""
        play.build(wheel_only=True)
        before = play.at.environment.resolve()
        play.stage.calls.clear()
        play.stage.content, play.stage.verdicts = "other", verdicts
        with pytest.raises(StepFailed, match="does not hold"):
            play.build(wheel_only=wheel_only)
        assert len(play.stage.calls) == calls
        assert play.at.environment.resolve() == before
        kept = [p.name for p in before.parent.iterdir() if not p.name.startswith(".")]
        assert len([name for name in kept if name != "state.json"]) == 1 + (calls == 15)

    def test_full_disk_hides_nothing(
        self, play: Play, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """When not even the record can be written, the first failure is still shown."""
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def fail(*args: Any, **words: Any) -> Any:
            raise StepFailed("cannot write the record") from full

        def stream(*args: Any, **how: Any) -> Any:
            monkeypatch.setattr(record, "write_json", fail)
            raise StepFailed("cannot write the log")

        use = replace(play.stage.tools, stream=stream)
        with pytest.raises(StepFailed, match="the log"):
            step.build(Console(play.out, {}), play.at, wheel_only=False, use=use)

    def test_leftovers(self, play: Play) -> None:
        """Temporary files of a build that was killed are gone with the next one."""
        temp = play.at.root.tmp / play.at.environment.name
        play.at.root.make(temp)
        (temp / "tmpxft_1.cubin").touch()
        play.build()
        assert [p.name for p in temp.iterdir()] == [".rig-made"]


class TestRefused:
    """What is told before anything is made."""

    def test_in_use(self, play: Play) -> None:
        """Somebody uses what is in force: the build is kept beside it."""
        before = play.at.environment
        user = User(87221, 1, "alice", "vllm serve")
        seen = ScanResult(users=(user,))
        play.stage.breaks, play.stage.error = "guard", InUse(before, seen)
        with pytest.raises(InUse) as caught:
            play.build(wheel_only=True)
        assert play.at.environment.resolve() == play.at.placing.bench
        name = play.last["id"]
        assert caught.value.hint == f"invoke activate --build {name} --when-free"
        assert f"the build {name} is kept" in caught.value.what
        assert caught.value.details == ("87221 vllm serve",)
        assert play.last["result"] == "kept" and play.last["exit_code"] == 4
        done = activate.activate(
            Console(play.out, {}),
            play.at,
            name[:-2],
            Wish(),
            guard=lambda *args, **how: ScanResult(),
        )
        assert done.active == name and done.verified
        assert play.at.environment.resolve().name == name

    def test_started_between(self, play: Play) -> None:
        """Who started between the last look and the switch has it taken back."""
        play.build(wheel_only=True)
        before = play.at.environment.resolve()
        play.stage.content = "other"
        looks = []

        def guard(console: Any, venv: Path, checkout: Any, **how: Any) -> ScanResult:
            looks.append(venv)
            if len(looks) == 3:
                user = User(87221, 1, "alice", "vllm serve")
                raise InUse(venv, ScanResult(users=(user,)))
            return ScanResult()

        use = replace(play.stage.tools, guard=guard)
        with pytest.raises(InUse, match="is kept"):
            step.build(Console(play.out, {}), play.at, wheel_only=True, use=use)
        assert play.at.environment.resolve() == before
        assert looks == [before] * 3

    def test_locked(self, play: Play) -> None:
        """Somebody builds it: the scan is not even made."""
        play.at.root.make(play.at.root.venvs)
        with BuildLock(play.at.environment, None, "first"), pytest.raises(InUseError):
            play.build()
        assert [name for name, _ in play.stage.calls] == ["git"]

    def test_force(self, tmp_path: Path) -> None:
        """ONECAT_FORCE=1 reaches the guard."""
        play = Play(tmp_path)
        play.at = scene(tmp_path, jobs=2, force="1")
        play.build()
        assert play.stage.named("guard")[0][2] is True

    def test_name(self, play: Play) -> None:
        """A path that no tool below can take is refused."""
        play.at = replace(play.at, checkout=play.at.checkout.with_name('a"b'))
        with pytest.raises(UsageError, match="CMake"):
            play.build()
        assert play.stage.calls == []


class TestFromWheel:
    """A downloaded wheel on the road of a build."""

    @pytest.fixture(autouse=True)
    def uv_is_here(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let uv be found, wherever these tests run."""
        monkeypatch.setattr(from_wheel.uv, "program", lambda env: Path("/tools/uv"))

    def test_order(self, play: Play, tmp_path: Path) -> None:
        """A generation is made of it and switched on; the record says what it was."""
        wheel = fakescene.make_wheel(tmp_path)
        play.stage.made_notes = ("Python 3.11 instead of 3.12",)
        console = Console(play.out, {})
        got = from_wheel.install(console, play.at, wheel, use=play.stage.tools)
        assert [name for name, _ in play.stage.calls] == [
            "environment",
            "fit",
            "plan pair",
            "pair",
            "venv",
            "install wheel",
            *["guard"] * 3,
        ]
        assert got.version == "0.1.0"
        [(named, how)] = play.stage.named("install wheel")
        folder = play.at.environment.resolve()
        assert named == wheel and how["python"] == folder / "bin" / "python"
        assert (play.at.root.artifacts / folder.name / wheel.name).is_file()
        assert how["env"]["UV_CACHE_DIR"] == str(play.at.root.cache / "uv")
        assert play.last["result"] == "done" and play.last["version"] == "0.1.0"
        said = play.out.getvalue()
        assert "work-round   Python 3.11 instead of 3.12" in said
        assert str(play.at.environment) in said

    @pytest.mark.parametrize("part", ["fit", "install wheel"])
    def test_fails(self, play: Play, tmp_path: Path, part: str) -> None:
        """A wheel that is refused leaves a record of it, and nothing was brought."""
        play.stage.breaks = part
        with pytest.raises(StepFailed):
            from_wheel.install(
                Console(play.out, {}), play.at, tmp_path, use=play.stage.tools
            )
        assert play.last["result"] == "failed"
        assert bool(play.stage.named("pair")) == (part != "fit")
