# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""``build-sm70`` on the sample, as a user types it, and whatever may come between."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.workshop import Gate, Workshop, executed, until

pytestmark = pytest.mark.real


@pytest.fixture
def gate(shop: Workshop) -> Iterator[Gate]:
    """Return an open gate before the compile of wide.cu, which is due again."""
    os.utime(shop.sample / "csrc" / "wide.cu")
    yield shop.gate
    shop.gate.open()


@contextlib.contextmanager
def held(shop: Workshop, gate: Gate, **more: Any) -> Iterator[subprocess.Popen[str]]:
    """Yield a build that stands in the middle of a compile."""
    gate.close()
    argv = shop.argv("build-sm70")
    # a cached object would not pass the gate
    with shop.started(argv, env={"CCACHE_DISABLE": "1"}, **more) as proc:
        until(lambda: gate.reached or proc.poll() is not None, lambda: shop.said)
        assert proc.poll() is None, shop.said
        yield proc


def compiled(log: str) -> list[str]:
    """Return the compiles that a log of ninja names."""
    return [line for line in log.splitlines() if "] Building C" in line]


class TestSample:
    """The sample, from nothing to proved."""

    def test_imports(self, shop: Workshop) -> None:
        """The built environment imports, and holds what the record says."""
        assert shop.imports() == "7.0"
        record = shop.records()[0]
        assert record["result"] == "done" and record["exit_code"] == 0
        assert [s["title"] for s in record["steps"]] == [
            "environment",
            "toolchain",
            "git",
            "build requirements",
            "build the wheel",
            "verify the wheel",
            "run-time requirements",
            "editable install",
            "verify",
            "switch",
        ]
        [library] = [x for x in record["verify"]["libraries"] if x["sms"]]
        assert library["sms"] == [70] and library["verdict"] == "ok"
        assert {Path(o["output"]).name for o in record["objects"]} >= {"wide.cu.o"}
        assert record["peaks"]["total_bytes"] > 0
        with zipfile.ZipFile(record["wheel"]) as archive:
            packed = {info.compress_type for info in archive.infolist()}
        assert packed == {zipfile.ZIP_STORED}

    def test_summary(self, shop: Workshop) -> None:
        """The summary says what, where and how long; what is no work-round is not."""
        said = (shop.folder / "first.txt").read_text()
        assert "no 1Cat-vLLM checkout here" in said
        end = said[said.index("built 0.1.0") :]
        assert str(shop.environment) in end and "took " in end
        assert "1 CUDA libraries hold sm_70 code" in end
        assert "work-round" not in end

    def test_plan_is_what_is_done(self, shop: Workshop) -> None:
        """``plan`` prints exactly the commands and variables of the next build.

        That build has nothing to compile, and prints one JSON document.
        """
        options = ("--json", "--jobs", "2")
        before = {p: p.lstat().st_mtime_ns for p in shop.root.path.rglob("*")}
        plan = json.loads(shop.invoke("plan", *options).stdout)
        now = {p: p.lstat().st_mtime_ns for p in shop.root.path.rglob("*")}
        assert now == before
        got = shop.invoke("build-sm70", *options)
        assert got.returncode == 0, got.stderr
        record = json.loads(got.stdout)
        done = executed(record)
        assert plan["commands"] == done["commands"]
        assert plan["env"] == done["env"]
        assert compiled(Path(record["log"]).read_text()) == []

    def test_wheel(self, shop: Workshop) -> None:
        """``--wheel`` makes a generation; the way back is one command."""
        code = "import rig_sample; print(rig_sample.__file__)"
        python = str(shop.environment / "bin" / "python")
        assert str(shop.sample) in shop.run([python, "-c", code]).stdout
        before = shop.environment.resolve()
        # and nothing goes where another project's installs were to go
        elsewhere = shop.folder / "elsewhere"
        more = {"DESTDIR": str(elsewhere), "CMAKE_INSTALL_MODE": "SYMLINK"}
        got = shop.invoke("build-sm70", "--wheel", **more)
        assert got.returncode == 0, got.stderr
        assert "DESTDIR" in got.stderr and not elsewhere.exists()
        assert str(shop.environment) in shop.run([python, "-c", code]).stdout
        back = json.loads(shop.invoke("rollback", "--json").stdout)
        assert back["active"] == before.name and back["seconds"] < 5
        assert str(shop.sample) in shop.run([python, "-c", code]).stdout
        rows = json.loads(shop.invoke("builds", "--json").stdout)
        states = {row["id"]: row["state"] for row in rows}
        assert (
            states[before.name] == "active" and states[back["previous"]] == "previous"
        )


class TestStopped:
    """A build that is stopped leaves the previous state, and nothing to clean."""

    @pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGKILL"])
    def test_signal(self, shop: Workshop, gate: Gate, name: str) -> None:
        """The whole tree is gone, the environment imports, the record tells."""
        with held(shop, gate) as proc:
            assert len(shop.processes()) > 5
            proc.send_signal(signal.Signals[name])
            code = proc.wait(60)
            until(lambda: not shop.processes(), lambda: str(shop.processes()), 30)
        assert code == (-signal.SIGKILL if name == "SIGKILL" else 130)
        assert shop.imports() == "7.0"
        record = shop.records()[-1]
        if name == "SIGKILL":
            assert record["result"] == "running"
            listed = json.loads(shop.invoke("builds", "--json").stdout)
            assert listed[0]["result"] == "died"
        else:
            assert record["result"] == "interrupted" and record["exit_code"] == 130

    def test_hang_up(self, shop: Workshop, gate: Gate) -> None:
        """Closing the terminal stops a build as Ctrl-C does."""
        ours, theirs = os.openpty()
        with held(shop, gate, stdin=theirs, preexec_fn=_own_terminal) as proc:
            os.close(theirs)
            os.close(ours)
            code = proc.wait(60)
            until(lambda: not shop.processes(), lambda: str(shop.processes()), 30)
        assert code == 130
        assert shop.imports() == "7.0"

    def test_switch(self, shop: Workshop) -> None:
        """SIGKILL between two renames of libraries is finished by the next build."""
        code = _DIE_IN_SWITCH.format(argv=shop.argv("build-sm70")[2:])
        with shop.edited():
            got = shop.run([sys.executable, "-c", code])
            assert got.returncode == -signal.SIGKILL, got.stderr
            left = list(shop.sample.glob("rig_sample/.*.rig-new"))
            assert len(left) == 1
            assert shop.imports() == "7.0"
            got = shop.invoke("build-sm70")
        assert got.returncode == 0, got.stderr
        assert "an interrupted switch was finished" in got.stderr
        assert not list(shop.sample.glob("rig_sample/.*.rig-new"))
        assert shop.imports() == "7.0"


_DIE_IN_SWITCH = """\
import os, signal, sys
replace, seen = os.replace, []
def dying(source, target, **options):
    if str(target).endswith(".so"):
        seen.append(target)
        if len(seen) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
    return replace(source, target, **options)
os.replace = dying
sys.argv = ["invoke", *{argv}[1:]]
from invoke.main import program
program.run()
"""


def _own_terminal() -> None:
    # the session leader's first terminal becomes its own
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class TestSomebodyElse:
    """Others come first."""

    def test_second_build(self, shop: Workshop, gate: Gate) -> None:
        """A second build ends with exit 4 and names the first."""
        with held(shop, gate) as proc:
            records = len(shop.records())
            got = shop.invoke("build-sm70")
            assert got.returncode == 4
            assert f"PID {proc.pid} of " in got.stderr
            assert "ONECAT_FORCE=1 does not override a lock" in got.stderr
            forced = shop.invoke("build-sm70", ONECAT_FORCE="1")
            assert forced.returncode == 4
            assert len(shop.records()) == records and proc.poll() is None

    def test_in_use(self, shop: Workshop) -> None:
        """A process that runs from the environment is named, exit 4; the build is kept.

        It is switched on by a command that waits for that process to end.
        """
        python = str(shop.environment / "bin" / "python")
        before = shop.environment.resolve()
        code = "import rig_sample, time; print('up', flush=True); time.sleep(600)"
        with shop.started([python, "-c", code]) as user:
            until(lambda: "up" in shop.said, lambda: shop.said)
            wrong = shop.invoke("build-sm70", ONECAT_FORCE="yes")
            assert wrong.returncode == 2 and "ONECAT_FORCE" in wrong.stderr
            got = shop.invoke("build-sm70", "--wheel")
            assert got.returncode == 4
            name, advice, hint = got.stderr.splitlines()[-3:]
            assert name.startswith(f"{user.pid} {python} -c ")
            assert "the above process(es) are running from" in advice
            assert advice.endswith("set ONECAT_FORCE=1 to switch anyway")
            assert shop.environment.resolve() == before and user.poll() is None
            kept = shop.records()[-1]
            assert kept["result"] == "kept" and kept["exit_code"] == 4
            [row] = [
                row
                for row in json.loads(shop.invoke("builds", "--json").stdout)
                if row["id"] == before.name
            ]
            assert row["used_by"] == [name]
            words = shlex.split(hint)
            assert words[:2] == ["hint:", "invoke"] and words[-1] == "--when-free"
            waiting = subprocess.Popen(
                shop.argv(*words[2:]),
                env=shop.env,
                cwd=shop.home,
                stderr=subprocess.PIPE,
                text=True,
            )
            assert waiting.stderr is not None
            until(
                lambda: "waiting for PID" in waiting.stderr.readline(), lambda: "said"
            )
            user.kill()
            user.wait()
            assert waiting.wait(60) == 0
            waiting.stderr.close()
        # the build that waits, which may be one that was there already
        assert shop.environment.resolve().name == words[words.index("--build") + 1]
        assert shop.imports() == "7.0"

    def test_forced(self, shop: Workshop) -> None:
        """ONECAT_FORCE=1 switches all the same, and the user's process lives on."""
        python = str(shop.environment / "bin" / "python")
        code = (
            "import rig_sample, sys\n"
            "print('up', flush=True)\n"
            "sys.stdin.readline()\n"
            "print(rig_sample.info()['arch_list'], flush=True)\n"
        )
        with shop.started([python, "-c", code], stdin=subprocess.PIPE) as user:
            until(lambda: "up" in shop.said, lambda: shop.said)
            with shop.edited():
                got = shop.invoke("build-sm70", ONECAT_FORCE="1")
            assert got.returncode == 0, got.stderr
            assert f"{user.pid} {python}" in got.stderr
            user.communicate("\n", timeout=60)
            assert user.returncode == 0 and "7.0" in shop.said


class TestFailure:
    """A build that fails says why, and where to read on."""

    def test_first_error(self, shop: Workshop) -> None:
        """The compiler's own first message is shown, not ninja's last word."""
        source = shop.sample / "csrc" / "narrow.cu"
        text = source.read_text()
        try:
            source.write_text(text.replace("int value = 0;", "int value = 0 0;", 1))
            got = shop.invoke("build-sm70", "--json")
        finally:
            source.write_text(text)
        assert got.returncode == 1
        error = json.loads(got.stdout)["error"]
        assert "narrow.cu" in error["details"][0] and "error" in error["details"][0]
        assert "ninja: build stopped" not in error["details"][0]
        record = shop.records()[-1]
        assert record["log"] in error["usual"]
        number = int(error["usual"].split(" line ")[1].split()[0])
        line = Path(record["log"]).read_text().splitlines()[number - 1]
        assert error["details"][0] in line
        assert record["result"] == "failed" and record["exit_code"] == 1
        assert record["steps"][-1] == {
            **record["steps"][-1],
            "title": "build the wheel",
            "result": "failed",
        }
        assert shop.imports() == "7.0"
