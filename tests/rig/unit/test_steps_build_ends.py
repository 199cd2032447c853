# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a build that ends badly says, records, and leaves in force."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.play import Play
from tests.rig.support.play import play as play
from tools.rig.base.console import Console
from tools.rig.base.errors import Interrupted, StepFailed
from tools.rig.builds import record
from tools.rig.steps import build as step
from tools.rig.steps import build_report


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
