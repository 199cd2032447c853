# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Whatever dies, the compiles go on, and nothing is left running."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.admission import MIB, Yard, events, until
from tests.rig.support.alive import survivors
from tools.rig.base.run import session_members
from tools.rig.builds.admission.curves import Curve
from tools.rig.builds.admission.predictions import Predictions

pytestmark = pytest.mark.real

_NINJA = shutil.which("ninja") or str(Path(sys.executable).with_name("ninja"))


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    """Return a yard, removed afterwards."""
    made = Yard(tmp_path)
    yield made
    made.close()


def service_pid(session: int) -> int:
    """Return the service below its minder."""
    return next(pid for pid in session_members(session) if pid != session)


def most_at_once(done: list[dict[str, Any]]) -> int:
    """Return how many compiles ran at the same moment at most."""
    marks = [(one["started"], 1) for one in done]
    marks += [(one["ended"], -1) for one in done]
    count = most = 0
    for _, step in sorted(marks):
        count += step
        most = max(most, count)
    return most


def test_service_is_killed(yard: Yard) -> None:
    """The next service learns what runs, and starts no more than fits beside it."""
    slow = yard.source("slow.cpp", "hold(20, 4)")
    quick = yard.source("quick.cpp", "hold(1, 0.1)")
    with yard.admission(cores=1) as admission:
        yard.serving()
        first = yard.start(slow, yard.env(admission))
        until(lambda: (s := yard.status()) and s["running"] and s["used"])
        second = yard.start(quick, yard.env(admission))
        until(lambda: (s := yard.status()) and s["waiting"])
        killed = service_pid(admission.session)
        os.kill(killed, signal.SIGKILL)
        until(lambda: (s := yard.status()) and s["running"])
        assert service_pid(admission.session) != killed
        assert (first.wait(30), second.wait(30)) == (0, 0)
        for proc in (first, second):
            proc.communicate()
    assert most_at_once(events(admission)) == 1


def test_no_service_at_all(yard: Yard) -> None:
    """Without anybody to ask, compiles run one at a time after a moment."""
    env = {
        **os.environ,
        "RIG_ADMISSION": str(yard.socket),
        "RIG_ADMISSION_EVENTS": str(yard.path / "events"),
    }
    procs = [yard.start(yard.source(f"{n}.cpp", "hold(1, 0.4)"), env) for n in range(3)]
    begun = time.monotonic()
    assert [proc.wait(30) for proc in procs] == [0, 0, 0]
    assert time.monotonic() - begun >= 5
    for proc in procs:
        proc.communicate()
    lines = (yard.path / "events").read_text().splitlines()
    done = [json.loads(line) for line in lines]
    assert len(done) == 3 and most_at_once(done) == 1


def test_folder_is_gone(yard: Yard) -> None:
    """A temporary folder that was cleaned away does not end a build."""
    with yard.admission() as admission:
        yard.serving()
        shutil.rmtree(yard.socket)
        assert yard.run(yard.source("x.cpp"), yard.env(admission)).returncode == 0
        yard.serving()
        assert yard.run(yard.source("y.cpp"), yard.env(admission)).returncode == 0


def test_service_hangs(yard: Yard) -> None:
    """A service that is stopped keeps nobody waiting for ever."""
    with yard.admission(cores=1) as admission:
        yard.serving()
        hung = service_pid(admission.session)
        os.kill(hung, signal.SIGSTOP)
        try:
            begun = time.monotonic()
            proc = yard.start(yard.source("x.cpp"), yard.env(admission))
            assert proc.wait(60) == 0
            proc.communicate()
            assert 5 < time.monotonic() - begun < 40
        finally:
            os.kill(hung, signal.SIGCONT)
        # and it is as good as before
        assert yard.run(yard.source("y.cpp"), yard.env(admission)).returncode == 0


def test_launcher_is_killed(yard: Yard) -> None:
    """The room of a launcher that died is free when its compiler is gone too."""
    held = "open('pid', 'w').write(str(os.getpid())); os.rename('pid', 'there')\n"
    with yard.admission(cores=1) as admission:
        yard.serving()
        proc = yard.start(
            yard.source("x.cpp", held + "hold(1, 2)"), yard.env(admission)
        )
        there = yard.path / "there"
        until(there.exists)
        until(lambda: (s := yard.status()) and s["used"])
        proc.kill()
        proc.wait()
        status = yard.status()
        assert status and len(status["running"]) == 1
        got = yard.run(yard.source("y.cpp"), yard.env(admission))
        assert got.returncode == 0
        assert not survivors([there.read_text()])
        proc.communicate()
    assert [one["object"] for one in events(admission)] == ["y.cpp.o"]


def test_ninja_is_killed(yard: Yard) -> None:
    """Nothing is left of a build whose ninja and owner died, and the next one works."""
    rule = f"rule cc\n  command = '{yard.admit}' '{yard.compiler}' -c $in -o $out\n"
    names = [f"{number}.cpp" for number in range(6)]
    for name in names:
        yard.source(name, "hold(5, 60 if os.path.exists('slow') else 0)")
    (yard.path / "slow").touch()
    steps = [f"build {name}.o: cc {name}\n" for name in names]
    (yard.path / "build.ninja").write_text(rule + "".join(steps))
    driver = textwrap.dedent(
        f"""
        import os, sys
        from pathlib import Path
        from tools.rig.base.run import stream
        from tools.rig.builds.admission.client import Admission, Files
        here = Path({str(yard.path)!r})
        files = Files.of(here / "logs", "b", here / "p.json")
        with Admission("b", files, 2, folder=Path({str(yard.socket)!r})) as one:
            got = stream(
                [{_NINJA!r}, "-j6"],
                on_line=print, log=here / "log", cwd=here,
                env={{**os.environ, **one.env}},
                on_start=lambda pid: print("session", pid, flush=True),
            )
        sys.exit(got.code)
        """
    )
    root = Path(__file__).parents[3]
    env = {**os.environ, "PYTHONPATH": str(root)}
    words = [sys.executable, "-c", driver]
    first = subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    session = int(first.stdout.readline().split()[1])
    until(lambda: (s := yard.status()) and len(s["running"]) == 2 and s["waiting"])
    members = session_members(session)
    ninja = next(
        pid for pid in members if Path(f"/proc/{pid}/comm").read_text() == "ninja\n"
    )
    os.kill(ninja, signal.SIGKILL)
    assert first.wait(30) != 0
    assert not survivors(members, 10)
    first.stdout.close()
    second = subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True)
    assert second.stdout is not None
    until(lambda: (s := yard.status()) and s["running"] and s["used"])
    second.kill()
    second.wait()
    second.stdout.close()
    until(lambda: yard.status() is None, 20)
    (yard.path / "slow").unlink()
    third = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60)
    assert third.returncode == 0, third.stdout
    assert all((yard.path / f"{name}.o").exists() for name in names)


def test_two_builds_share(yard: Yard) -> None:
    """What two builds hold together stays below one budget, and both come to an end."""
    text = "hold(150, 1.0)"
    known = Predictions()
    for number in range(3):
        for name in "ab":
            known.learn(f"{name}{number}.cpp.o", Curve.flat(1.5, 180 * MIB))
    known.save(yard.path / "predictions.json")
    with (
        yard.admission("one", 4, budget=700 * MIB) as one,
        yard.admission("two", 4, budget=700 * MIB, cap=1) as two,
    ):
        yard.serving()
        procs = []
        for number in range(3):
            for name, build in (("a", one), ("b", two)):
                words = yard.source(f"{name}{number}.cpp", text)
                procs.append(yard.start(words, yard.env(build)))
        seen = []
        while any(proc.poll() is None for proc in procs):
            if status := yard.status():
                seen.append(status)
            time.sleep(0.1)
        assert [proc.wait() for proc in procs] == [0] * 6
        for proc in procs:
            proc.communicate()
    assert {o["build"] for s in seen for o in s["running"]} == {"one", "two"}
    assert max(s["used"] for s in seen) <= 700 * MIB
    own = [sum(o["build"] == "two" for o in s["running"]) for s in seen]
    assert max(own) == 1
    assert max(len(s["running"]) for s in seen) >= 2
    assert len(events(one)) == len(events(two)) == 3


def test_the_first_build_ends_before_the_second(yard: Yard) -> None:
    """The second build's candidate takes over with all that runs."""
    with yard.admission("two") as two:
        yard.serving()
        # the one that serves is the other's
        with yard.admission("one") as one:
            pass
        assert one.latest is None or one.latest["cores"]
        proc = yard.start(yard.source("x.cpp", "hold(1, 3)"), yard.env(two))
        until(lambda: (s := yard.status()) and s["used"])
    # its owner is gone; the compile still ends well
    with yard.admission("three") as three:
        found = until(lambda: (s := yard.status()) and s["running"] and s)
        assert found["running"][0]["object"] == "x.cpp.o"
        assert proc.wait(30) == 0
        proc.communicate()
        assert yard.run(yard.source("y.cpp"), yard.env(three)).returncode == 0
