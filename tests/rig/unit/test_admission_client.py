# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A build's side of admission: the folder, the launcher, the watch, what is learnt."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from tools.rig.base.errors import CannotError, StepFailed
from tools.rig.base.process import Result
from tools.rig.builds.admission import client, launcher, protocol
from tools.rig.builds.admission.client import Admission, Files, summary
from tools.rig.builds.admission.predictions import Predictions
from tools.rig.builds.admission.watch import Watch

MIB = 1 << 20


def event(name: str, **more: Any) -> dict[str, Any]:
    """Return an event as the launcher writes it."""
    peak = 300 * MIB
    return {
        "object": name,
        "cwd": "/b",
        "asked": 1.0,
        "started": 3.0,
        "ended": 13.0,
        "seconds": 10.0,
        "peak_bytes": peak,
        "curve": [[0.0, peak], [10.0, peak]],
        "code": 0,
        "attempts": 1,
        "oom": False,
        "cache": "",
        "build": "b",
        **more,
    }


def test_folder_is_private(tmp_path: Path) -> None:
    """The socket's folder is ours alone, also one that was open to others."""
    first = protocol.folder({}, tmp_path)
    assert first.parent.parent == tmp_path
    first.chmod(0o755)
    assert protocol.folder({}, tmp_path) == first
    assert first.stat().st_mode & 0o077 == 0


def test_folder_of_somebody_else(tmp_path: Path) -> None:
    """A link in our folder's place is not followed; the session's folder is next."""
    temp, session = tmp_path / "t", tmp_path / "s"
    temp.mkdir()
    session.mkdir()
    (temp / f"1cat-rig-{os.geteuid()}").symlink_to(session)
    found = protocol.folder({"XDG_RUNTIME_DIR": str(session)}, temp)
    assert found.is_relative_to(session)
    with pytest.raises(CannotError, match="private folder"):
        protocol.folder({}, temp)


def test_launcher_stays(tmp_path: Path) -> None:
    """A second build finds the same launcher, and a damaged one is mended."""
    admit = launcher.publish(tmp_path / "shims", tmp_path)
    text, then = admit.read_text(), admit.stat()
    assert admit.stat().st_mode & 0o777 == 0o700
    assert text.startswith("#!/") and " -IS\n" in text
    assert launcher.publish(tmp_path / "shims", tmp_path) == admit
    assert admit.stat().st_ino == then.st_ino
    admit.write_text("broken")
    launcher.publish(tmp_path / "shims", tmp_path)
    assert admit.read_text() == text
    parts = {p.name for p in tmp_path.rglob("*-parts/**/*.py")}
    assert {"launch.py", "launch_child.py", "launch_use.py"} <= parts
    assert not [p for p in tmp_path.rglob(".*") if p.name.startswith(".rig-admit")]


@pytest.mark.parametrize("folder", ["a b", "x" * 130])
def test_python_in_an_odd_place(tmp_path: Path, folder: str) -> None:
    """The first line of a script names a link where the path itself does not fit."""
    python = tmp_path / folder / "python3"
    for _ in range(2):
        admit = launcher.publish(tmp_path / "s", tmp_path, python)
        named = admit.read_text().splitlines()[0].removeprefix("#!").split()[0]
        assert named.startswith(str(tmp_path / "python-"))
        assert os.readlink(named) == str(python)


def test_launcher_without_a_disk(tmp_path: Path) -> None:
    """A place that cannot be written to is named."""
    (tmp_path / "file").touch()
    with pytest.raises(StepFailed, match="rig-admit"):
        launcher.publish(tmp_path / "file", tmp_path)


class Minded:
    """Stands for the service: runs until told to stop."""

    def __init__(self, ends: bool = False) -> None:
        self.calls: list[list[str]] = []
        self.env: dict[str, str] = {}
        self.started = threading.Event()
        self.ends = ends
        self.go_on = threading.Event()

    def __call__(self, argv: list[str], **more: Any) -> Result:
        """Run."""
        self.calls.append(argv)
        self.env = more["env"]
        self.started.set()
        if not self.ends:
            self.go_on.wait(10)
        return Result(tuple(argv), 143, "", "", 0.0)


def test_admission(tmp_path: Path) -> None:
    """A build's service is told cores and budget; its compiles get the environment."""
    files = Files.of(tmp_path / "logs", "b", tmp_path / "p.json")
    minded = Minded()
    one = Admission("b", files, 7, 3, budget=99, folder=tmp_path, start=minded)
    with one:
        assert minded.started.wait(10)
        told = [event("x.cu.o"), event("y.cu.o", build="c"), event("z.cu.o", code=1)]
        lines = "\n".join(map(json.dumps, told))
        files.events.write_text(f"{lines}\nno event\n")
        assert one.latest is None
        minded.go_on.set()
    words = " ".join(minded.calls[0])
    assert "--build b --cores 7" in words and "--budget 99" in words
    assert one.env["RIG_ADMISSION_CAP"] == "3"
    assert one.env["RIG_ADMISSION"] == str(tmp_path)
    assert Path(minded.env["PYTHONPATH"].split(":")[0], "tools", "rig").is_dir()
    assert [e["object"] for e in one.events()] == ["x.cu.o", "z.cu.o"]
    assert one.learnt == 1
    assert Predictions.load(files.predictions).predict("x.cu.o").known


def test_service_that_dies_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service that ends too early is started again, for a while."""
    monkeypatch.setattr(client, "_PAUSE_S", 0.001)
    monkeypatch.setattr(client, "_MOST_STARTS", 4)
    minded = Minded(ends=True)
    files = Files.of(tmp_path, "b", tmp_path / "p.json")
    with Admission("b", files, 1, folder=tmp_path, start=minded) as one:
        one._thread.join(10)
    assert len(minded.calls) == 4
    assert one.learnt == 0 and not one.ran_out


def test_summary() -> None:
    """The record gets figures, and the objects under which memory ran out."""
    told = [event("x.o", cache="hit"), event("y.o", code=-9, oom=True)]
    found = summary(told)
    assert (found["compiles"], found["failed"], found["hits"]) == (2, 1, 1)
    assert found["ran_out"] == [{"object": "y.o", "bytes": 300 * MIB, "code": -9}]
    assert (found["compile_s"], found["waited_s"]) == (20.0, 2.0)
    assert summary([])["largest_bytes"] == 0
    assert (found["stalled_s"], found["held_by"]) == (2.0, [])


def test_stalled() -> None:
    """Only the time counts in which nothing of the build ran and something waited."""
    told = [
        event("x.o", asked=0.0, started=400.0, ended=420.0),
        event("y.o", asked=0.0, started=410.0, ended=430.0),
        # nothing waits between 430 and 500: it links
        event("z.o", asked=500.0, started=530.0, ended=540.0),
    ]
    assert summary(told, ["c"])["stalled_s"] == 430.0
    assert summary(told, ["c"])["held_by"] == ["c"]
    assert summary([], ["c"])["held_by"] == []
    assert (summary(told)["at_once"], summary([])["at_once"]) == (2, 0)


STATUS = {
    "used": 5,
    "budget": 9,
    "reserved": 6,
    "running": [{"build": "b", "bytes": 3}, {"build": "c", "bytes": 2}],
    "waiting": [],
}


def test_watch(tmp_path: Path) -> None:
    """Each answer is a line; one that is old says nothing of now."""
    now = [100.0]
    answers: list[dict[str, Any] | None] = [None, STATUS]
    file = tmp_path / "m.jsonl"
    watch = Watch("b", tmp_path, file, lambda place: answers.pop(0), lambda: now[0])
    watch.look()
    assert watch.latest is None and not file.exists()
    now[0] = 102.0
    watch.look()
    assert watch.latest == STATUS
    assert json.loads(file.read_text()) == {
        "t": 2.0,
        "used": 5,
        "budget": 9,
        "reserved": 6,
        "running": 2,
        "waiting": 0,
        "own": 3,
    }
    assert not watch.held_by
    now[0] = 110.0
    assert watch.latest is None


def test_who_held_it(tmp_path: Path) -> None:
    """The builds are noted that run while ours waits and has nothing."""
    status = {
        **STATUS,
        "running": [{"build": "c", "bytes": 2}],
        "waiting": [{"build": "b"}],
    }
    watch = Watch("b", tmp_path, tmp_path / "m.jsonl", lambda place: status)
    watch.look()
    assert watch.held_by == {"c"}


def test_watch_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that it does not understand, and a full disk, do not end it."""
    monkeypatch.setattr("tools.rig.builds.admission.watch.EVERY_S", 0.001)
    seen = threading.Event()
    answers: list[dict[str, Any]] = [{"used": 1}, STATUS, STATUS]

    def ask(place: Path) -> dict[str, Any]:
        if len(answers) == 1:
            seen.set()
            return answers[0]
        return answers.pop(0)

    with Watch("b", tmp_path, tmp_path / "no" / "such", ask) as watch:
        assert seen.wait(10)
    assert watch.latest == STATUS
