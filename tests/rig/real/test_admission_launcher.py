# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The launcher in front of a compiler: it changes nothing but the moment."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig.support.admission import MIB, Yard, events, until
from tests.rig.support.alive import survivors

pytestmark = pytest.mark.real


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    """Return a yard, removed afterwards."""
    made = Yard(tmp_path)
    yield made
    made.close()


def test_result_is_the_compilers(yard: Yard) -> None:
    """Exit code, output and the order of both streams in one pipe are kept."""
    words = yard.source(
        "x.cpp",
        "os.write(1, b'one\\n'); os.write(2, b'two\\n'); os.write(1, b'three\\n')\n"
        "sys.exit(7)",
    )
    with yard.admission() as admission:
        got = subprocess.run(
            words,
            cwd=yard.path,
            env=yard.env(admission),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        apart = yard.run(words, yard.env(admission))
    assert (got.returncode, got.stdout) == (7, b"one\ntwo\nthree\n")
    assert (apart.stdout, apart.stderr) == ("one\nthree\n", "two\n")
    assert [one["code"] for one in events(admission)] == [7, 7]
    # a failed compile says nothing of what a whole one takes
    assert admission.learnt == 0


def test_death_by_signal_is_kept(yard: Yard) -> None:
    """A compiler that crashes looks crashed behind the launcher, not out of memory."""
    crash = yard.source("crash.cpp", "os.kill(os.getpid(), 11)")
    kill = yard.source("kill.cpp", "os.kill(os.getpid(), 9)")
    with yard.admission() as admission:
        env = yard.env(admission)
        assert yard.run(crash, env).returncode == -signal.SIGSEGV
        assert yard.run(kill, env).returncode == -signal.SIGKILL
    assert [(e["code"], e["oom"], e["attempts"]) for e in events(admission)] == [
        (-11, False, 1),
        (-9, False, 1),
    ]


def test_what_it_measures(yard: Yard) -> None:
    """The event holds object, source, times and the curve of the whole tree."""
    words = yard.source(
        "dir x.cpp",
        "import subprocess\n"
        "kept = hold(40, 0.8)\n"
        "subprocess.run([sys.executable, '-IS', '-c',"
        ' \'import time; b = bytearray(60 << 20); b[::4096] = b"x" * len(b[::4096]);'
        " time.sleep(1.2)'])",
    )
    before = time.time()
    with yard.admission() as admission:
        assert yard.run(words, yard.env(admission)).returncode == 0
    (event,) = events(admission)
    assert event["object"] == "dir x.cpp.o"
    assert (event["source"], event["kind"]) == ("dir x.cpp", "cxx")
    assert event["cwd"] == str(yard.path)
    assert event["build"] == "b"
    assert before - 1 <= event["wall"] <= time.time()
    assert event["asked"] <= event["started"] < event["ended"]
    assert 2.0 <= event["seconds"] <= 8.0
    curve = event["curve"]
    assert 100 * MIB <= event["peak_bytes"] <= 160 * MIB
    assert event["peak_bytes"] == max(held for _, held in curve)
    early = [held for at, held in curve if 0.2 <= at < 0.7]
    assert early and all(40 * MIB <= held < 70 * MIB for held in early)
    assert curve == sorted(curve) and len(curve) <= 61
    assert admission.learnt == 1


def test_what_is_no_compile_is_executed(yard: Yard) -> None:
    """Questions and links take the launcher's place and leave no event."""
    with yard.admission() as admission:
        env = yard.env(admission)
        words = [str(yard.admit), "sh", "-c", "echo $$; exit 3"]
        proc = yard.start(words, env)
        out, _ = proc.communicate()
        assert (int(out), proc.returncode) == (proc.pid, 3)
        absent = yard.run([str(yard.admit), "no-such-compiler", "-E"], env)
        assert absent.returncode == 127 and "no-such-compiler" in absent.stderr
        assert yard.run([str(yard.admit)], env).returncode == 2
    assert not admission.files.events.exists()


def test_missing_compiler(yard: Yard) -> None:
    """A compiler that is not there is named, and the build goes on with its next."""
    words = [str(yard.admit), "no-such-compiler", "-c", "x.cpp", "-o", "x.o"]
    with yard.admission() as admission:
        got = yard.run(words, yard.env(admission))
        assert yard.run(yard.source("y.cpp"), yard.env(admission)).returncode == 0
    assert got.returncode == 127
    assert "no-such-compiler" in got.stderr


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_signals_are_passed_on(yard: Yard, sig: signal.Signals) -> None:
    """A launcher that is told to stop stops its compiler, and ends like it."""
    words = yard.source(
        "x.cpp",
        "open('pid', 'w').write(str(os.getpid())); os.rename('pid', 'there')\n"
        "hold(1, 60)",
    )
    with yard.admission() as admission:
        proc = yard.start(words, yard.env(admission))
        there = yard.path / "there"
        until(there.exists)
        proc.send_signal(sig)
        proc.wait(10)
        assert not survivors([there.read_text()], 5)
    assert proc.returncode in (-sig, 1)
    proc.communicate()


def test_waiting_ends_at_once(yard: Yard) -> None:
    """A launcher that still waits has nothing to clean up."""
    env = {**os.environ, "RIG_ADMISSION": str(yard.socket)}
    proc = yard.start(yard.source("x.cpp"), env)
    time.sleep(0.5)
    assert proc.poll() is None
    proc.send_signal(signal.SIGINT)
    assert proc.wait(5) == -signal.SIGINT
    assert proc.communicate() == ("", "")


def test_compiler_dies_before_its_launcher(yard: Yard) -> None:
    """The kernel is told to end the compiler first, and a server after both."""
    words = yard.source(
        "x.cpp",
        "adj = '/proc/%s/oom_score_adj'\ntime.sleep(0.3)\n"
        "print(open(adj % 'self').read(), open(adj % os.getppid()).read())",
    )
    low = ["sh", "-c", 'echo 500 > /proc/self/oom_score_adj; exec "$@"', "-", *words]
    with yard.admission() as admission:
        got = yard.run(low, yard.env(admission))
    assert got.stdout.split() == ["500", "250"]


def test_two_hundred_at_once(yard: Yard) -> None:
    """All launchers of a wide ninja get their turn, never more than the cores."""
    words = yard.source("x.cpp")
    with yard.admission(cores=2) as admission:
        yard.serving()
        procs = []
        for number in range(200):
            one = [*words[:-1], f"{number}.o"]
            procs.append(yard.start(one, yard.env(admission)))
        waiting = until(lambda: [o for o in [yard.status()] if o and o["waiting"]])
        assert len(waiting[0]["running"]) <= 2
        assert [proc.wait(60) for proc in procs] == [0] * 200
        for proc in procs:
            proc.communicate()
    done = events(admission)
    assert len({one["object"] for one in done}) == 200
    spans = [(one["started"], 1) for one in done]
    spans += [(one["ended"], -1) for one in done]
    most = running = 0
    for _, step in sorted(spans):
        running += step
        most = max(most, running)
    assert most <= 2


def test_a_waiting_launcher_is_small(yard: Yard) -> None:
    """Forty that wait take less than one small compile."""
    env = {**os.environ, "RIG_ADMISSION": str(yard.socket)}
    proc = yard.start(yard.source("x.cpp"), env)
    time.sleep(1.0)
    status = Path("/proc", str(proc.pid), "status").read_text()
    proc.kill()
    proc.communicate()
    resident = int(status.partition("VmRSS:")[2].split()[0]) * 1024
    assert resident < 16 * MIB


def test_paths_with_blanks(tmp_path: Path) -> None:
    """Blanks in checkout and object are no words of their own."""
    yard = Yard(tmp_path / "a b")
    try:
        with yard.admission() as admission:
            got = yard.run(yard.source("x y.cpp"), yard.env(admission))
        assert got.returncode == 0, got.stderr
        assert (yard.path / "x y.cpp.o").exists()
        assert events(admission)[0]["object"] == "x y.cpp.o"
    finally:
        yard.close()
