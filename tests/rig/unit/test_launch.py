# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The launcher's own steps: what it becomes, how it tries again, how it ends."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tools.rig.base import launch, launch_child
from tools.rig.base.launch_child import Child, Ended
from tools.rig.base.launch_use import Use
from tools.rig.base.launch_words import Compile

MIB = 1 << 20


class FakeRoom:
    """Gives room at once and notes what it was told."""

    def __init__(self, *about: Any) -> None:
        self.told: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *words: self.told.append((name, *words))


class FakeChild:
    """Ends as it was told to, one way after the other."""

    ways: list[tuple[int, bool]] = []
    stopped = False
    shown: list[str] = []

    def __init__(self, *words: Any) -> None:
        FakeChild.shown = []

    def run(self) -> Ended:
        """Run once."""
        ended = Ended()
        ended.code, ended.killed = FakeChild.ways.pop(0)
        ended.stopped = FakeChild.stopped
        ended.curve.add(0.0, 50 * MIB)
        ended.seconds = 1.0
        return ended

    def show(self) -> None:
        """Print what was said."""
        FakeChild.shown.append("show")

    def forget(self) -> None:
        """Drop what was said."""
        FakeChild.shown.append("forget")


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[int]]:
    """Put fakes in place; yield the kernel's counts of kills that will be read."""
    counts: list[int] = []
    monkeypatch.setattr(launch, "Room", FakeRoom)
    monkeypatch.setattr(launch, "Child", FakeChild)
    monkeypatch.setattr(launch, "oom_kills", lambda: counts.pop(0))
    kept = signal.getsignal(signal.SIGINT)
    yield counts
    signal.signal(signal.SIGINT, kept)


def start(tmp_path: Path, **more: str) -> launch.Launch:
    """Return a launch that writes its event to a file."""
    env = {"RIG_ADMISSION_EVENTS": str(tmp_path / "e"), "RIG_ADMISSION_BUILD": "b"}
    found = Compile("x.o", "x.cu", "cuda", "")
    return launch.Launch(["nvcc"], found, "/f", {**env, **more})


def test_good_compile(fakes: list[int], tmp_path: Path) -> None:
    """A compile that ends well is told of once."""
    fakes += [3, 3]
    FakeChild.ways = [(0, False)]
    one = start(tmp_path, RIG_ADMISSION_CAP="4")
    assert one.run() == 0
    assert one.about["cap"] == 4
    event = json.loads((tmp_path / "e").read_text())
    assert (event["object"], event["attempts"], event["oom"]) == ("x.o", 1, False)
    assert event["curve"] == [[0.0, 50 * MIB]]
    assert FakeChild.shown == ["show"]


def test_tried_again(
    fakes: list[int], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """What memory ran out under is run again; the first try's words are dropped."""
    fakes += [3, 4, 4, 4]
    FakeChild.ways = [(-9, True), (0, False)]
    one = start(tmp_path)
    assert one.run() == 0
    room: Any = one.room
    assert ("wait", 0) in room.told and ("wait", 50 * MIB) in room.told
    assert FakeChild.shown == ["forget", "show"]
    assert "memory ran out under x.o (50 MiB, tried 2 times)" in capfd.readouterr().err


def test_given_up(fakes: list[int], tmp_path: Path) -> None:
    """After three tries it is a failure."""
    fakes += [1, 2, 2, 3, 3, 4]
    FakeChild.ways = [(-9, True)] * 3
    assert start(tmp_path).run() == -9
    assert json.loads((tmp_path / "e").read_text())["attempts"] == 3


def test_told_to_stop(
    fakes: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build that is stopped is no lack of memory, whatever the kernel killed then."""
    # where the compile was not told, the same count is one
    for stopped, ran_out in ((True, False), (False, True)):
        fakes[:] = [1, 2, 2, 2]
        FakeChild.ways = [(-15, True), (0, False)]
        monkeypatch.setattr(FakeChild, "stopped", stopped)
        (tmp_path / "e").unlink(missing_ok=True)
        start(tmp_path).run()
        assert json.loads((tmp_path / "e").read_text())["oom"] is ran_out


def test_killed_by_somebody(fakes: list[int], tmp_path: Path) -> None:
    """A kill that the kernel did not count is not tried again."""
    fakes += [1, 1]
    FakeChild.ways = [(-9, True)]
    assert start(tmp_path).run() == -9
    assert json.loads((tmp_path / "e").read_text())["oom"] is False


def test_events_that_cannot_be_written(fakes: list[int], tmp_path: Path) -> None:
    """A compile does not fail for want of its line."""
    for place in ("", str(tmp_path / "no" / "such")):
        fakes += [1, 1]
        FakeChild.ways = [(0, False)]
        assert start(tmp_path, RIG_ADMISSION_EVENTS=place).run() == 0


def test_main(
    fakes: list[int], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Only a compile of an admitted build waits; all else is executed."""
    became: list[list[str]] = []

    def become(words: list[str]) -> int:
        became.append(words)
        return 0

    monkeypatch.setattr(launch, "become", become)
    compile_ = ["g++", "-c", "x.cpp", "-o", "x.o"]
    monkeypatch.delenv("RIG_ADMISSION", raising=False)
    assert launch.main([]) == 2
    assert launch.main(compile_) == 0
    monkeypatch.setenv("RIG_ADMISSION", "/f")
    launch.main(["g++", "--version"])
    monkeypatch.setenv("RIG_COMPILE", "1")
    launch.main(compile_)
    assert became == [compile_, ["g++", "--version"], compile_]
    monkeypatch.delenv("RIG_COMPILE")
    fakes += [1, 1]
    FakeChild.ways = [(5, False)]
    assert launch.main(compile_) == 5
    assert "usage" in capfd.readouterr().err


def test_become(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that cannot be executed is named."""
    kept = [signal.getsignal(one) for one in (signal.SIGPIPE, signal.SIGXFSZ)]
    assert launch.become(["/no/such/compiler"]) == 127
    for one, handler in zip((signal.SIGPIPE, signal.SIGXFSZ), kept):
        signal.signal(one, handler)


@pytest.mark.parametrize(
    ("code", "killed", "left"), [(0, [], 0), (7, [], 7), (-9, [9], 137)]
)
def test_finish(
    code: int, killed: list[int], left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends by the signal that ended the compiler, or with its code."""
    sent: list[int] = []
    codes: list[int] = []
    monkeypatch.setattr("resource.setrlimit", lambda which, limits: None)
    monkeypatch.setattr(os, "kill", lambda pid, sig: sent.append(sig))
    monkeypatch.setattr(os, "_exit", codes.append)
    launch.finish(code)
    assert (sent, codes) == (killed, [left])


@pytest.fixture
def score(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file in the place of our own OOM score."""
    file = tmp_path / "score"
    file.write_text("500")
    monkeypatch.setattr(launch_child, "_SCORE", str(file))
    return file


def child(*words: str, cache: str = "") -> Child:
    """Return a child that runs a command."""
    room: Any = FakeRoom()
    return Child(words, Compile("x.o", "x.c", "c", cache), "7-7", room)


@pytest.mark.allow_process
def test_child(score: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A command's code, words, time and environment are those of its run."""
    one = child("sh", "-c", "echo $RIG_COMPILE >&2; exit 4")
    ended = one.run()
    assert (ended.code, ended.killed, ended.stopped) == (4, False, False)
    assert ended.seconds > 0 and ended.curve.peak > 0
    assert capfd.readouterr().err == ""
    one.show()
    assert capfd.readouterr().err == "7-7\n"
    one.show()
    assert score.read_text() == "250"


@pytest.mark.allow_process
@pytest.mark.parametrize(
    ("script", "killed"),
    [
        ("kill -9 $$", True),
        ("exit 137", True),
        ("echo 'cicc died due to signal 9 (Kill signal)' >&2; exit 2", True),
        ("echo Killed >&2; exit 0", False),
        ("echo error >&2; exit 1", False),
    ],
)
def test_looks_killed(score: Path, script: str, killed: bool) -> None:
    """A kill is seen in the code, or in what the driver says of its own child."""
    one = child("sh", "-c", script)
    assert one.run().killed is killed
    one.forget()


@pytest.mark.allow_process
@pytest.mark.parametrize(
    ("said", "found"), [("direct_cache_hit", "hit"), ("cache_miss", "miss"), ("", "")]
)
def test_cache(
    score: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, found: str
) -> None:
    """What ccache counts for this one compile says whether it was there.

    A file that somebody else gave it gets the same.
    """
    counts = tmp_path / "counts"
    monkeypatch.setenv("CCACHE_STATSLOG", str(counts))
    one = child("sh", "-c", f"echo {said} >> $CCACHE_STATSLOG", cache="ccache")
    assert one.run().cache == found
    one.forget()
    assert counts.read_text() == f"{said}\n"
    monkeypatch.setenv("CCACHE_STATSLOG", str(tmp_path / "no" / "such"))
    assert one.run().cache == found
    one.forget()


@pytest.mark.allow_process
@pytest.mark.parametrize(
    ("kind", "script", "names", "found"),
    [
        ("cuda", "exit 0", {"cc1plus"}, "hit"),
        ("cuda", "exit 0", {"cc1plus", "cicc"}, "miss"),
        ("cuda", "exit 1", set(), ""),
        ("cxx", "exit 0", {"cc1plus"}, ""),
    ],
)
def test_cache_with_a_server(
    score: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    script: str,
    names: set[str],
    found: str,
) -> None:
    """Of sccache, a CUDA compile without its code generator was a hit."""

    class Seen(Use):
        def __init__(self, *words: Any) -> None:
            super().__init__(*words)
            self.names = names

    monkeypatch.setattr(launch_child, "Use", Seen)
    room: Any = FakeRoom()
    one = Compile("x.o", "x", kind, "sccache")
    child_ = Child(["sh", "-c", script], one, "7-7", room)
    assert child_.run().cache == found
    child_.forget()


@pytest.mark.allow_process
def test_child_that_is_stopped(score: Path) -> None:
    """A signal that reaches us reaches the compiler, which may clean up."""
    ours = os.getpid()
    trap = "trap 'exit 9' TERM; kill -TERM $1; while :; do sleep 0.05; done"
    one = child("sh", "-c", trap, "-", str(ours))
    before = signal.getsignal(signal.SIGTERM)
    ended = one.run()
    one.forget()
    assert (ended.code, ended.stopped) == (9, True)
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.allow_process
def test_child_that_is_not_there(
    score: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A missing compiler is named."""
    before = signal.getsignal(signal.SIGTERM)
    one = child("/no/such/compiler")
    assert one.run().code == 127
    assert "/no/such/compiler" in capfd.readouterr().err
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.allow_process
def test_no_memory_files(score: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing can be held back, the compiler speaks for itself."""

    def refuse(name: str) -> int:
        raise OSError

    monkeypatch.setattr(os, "memfd_create", refuse)
    score.unlink()
    one = child("sh", "-c", "exit 3", cache="ccache")
    assert one.run().code == 3
    one.show()
