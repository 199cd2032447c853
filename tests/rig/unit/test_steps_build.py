# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The order of a build, and what it leaves behind when it goes well."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from tests.rig.support import fakemachine, fakescene
from tests.rig.support.fakescene import Stage, scene
from tests.rig.support.play import Play
from tests.rig.support.play import play as play
from tools.rig.steps import compiling
from tools.rig.steps.git_safe import GitSafeResult

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
