# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The lock between real processes: living, killed, of another user."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig.support.nobody import NOBODY, as_nobody, needs_root
from tools.rig.base.console import Console
from tools.rig.base.errors import CannotError, InUseError, RigError
from tools.rig.guard import lease
from tools.rig.guard.lock import BuildLock, holder_of, holder_path, lock_path

pytestmark = pytest.mark.real

HOLD = """
import sys, time
from pathlib import Path
from tools.rig.guard.lock import BuildLock
with BuildLock(Path(sys.argv[1]), Path(sys.argv[2]), "build --token=abc"):
    print("held", flush=True)
    time.sleep(float(sys.argv[3]))
"""


@pytest.fixture
def base() -> Iterator[Path]:
    """Give a folder that other users may enter, which pytest's own is not."""
    folder = Path(tempfile.mkdtemp(prefix="rig lock ü'"))
    folder.chmod(0o755)
    (folder / "checkout").mkdir()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def holding(venv: Path, checkout: Path, seconds: float = 60) -> Iterator[int]:
    """Run another process that holds the lock; give its pid."""
    argv = [sys.executable, "-c", HOLD, venv, checkout, str(seconds)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as proc:
        assert proc.stdout is not None
        assert proc.stdout.readline() == "held\n"
        try:
            yield proc.pid
        finally:
            proc.kill()


def tried(lock: BuildLock) -> list[object]:
    """Return how taking a lock ends, as JSON can say it."""
    try:
        with lock:
            return ["in"]
    except RigError as exc:
        return [int(exc.code), *exc.details, exc.hint]


class TestHolders:
    """Who holds, who waits, who takes over."""

    def test_living(self, base: Path) -> None:
        """A living holder is named with pid and command, secrets masked."""
        venv, checkout = base / "venv", base / "checkout"
        with holding(venv, checkout) as pid:
            holder = holder_of(venv)
            assert holder is not None
            assert holder.pid == pid
            with (
                pytest.raises(InUseError) as caught,
                BuildLock(venv, checkout, "second"),
            ):
                raise AssertionError
        assert f"PID {pid} of " in caught.value.details[0]
        assert "--token=***" in caught.value.details[0]
        assert str(pid) in caught.value.hint

    def test_through_a_link(self, base: Path) -> None:
        """The lock of a link is the lock of the environment that it leads to."""
        (base / "link").symlink_to(base / "venv")
        with (
            holding(base / "venv", base / "checkout"),
            pytest.raises(InUseError),
            BuildLock(base / "link", None, "second"),
        ):
            raise AssertionError

    def test_killed(self, base: Path) -> None:
        """After SIGKILL the next build just goes on, and says whom it follows."""
        venv, checkout = base / "venv", base / "checkout"
        with holding(venv, checkout) as pid:
            os.kill(pid, signal.SIGKILL)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            out = io.StringIO()
            with BuildLock(venv, checkout, "next", console=Console(out)) as lock:
                assert lock.taken_over is not None
                assert lock.taken_over.pid == pid
                holder = lease.holder_at(checkout)
                assert holder is not None and holder.pid == os.getpid()
        assert f"PID {pid}" in out.getvalue()

    def test_given_back(self, base: Path) -> None:
        """A build that ends leaves nothing but the empty lock file."""
        with BuildLock(base / "venv", base / "checkout", "build"):
            assert holder_path(base / "venv").exists()
        left = {path.name for path in base.iterdir()}
        assert left == {"checkout", lock_path(base / "venv").name}
        assert not list((base / "checkout").iterdir())

    def test_two_contenders(self, base: Path) -> None:
        """Of many that start at once exactly one gets in at a time."""
        code = (
            "import sys, time\n"
            "from pathlib import Path\n"
            "from tools.rig.base.errors import InUseError\n"
            "from tools.rig.guard.lock import BuildLock\n"
            "inside = Path(sys.argv[1]) / 'inside'\n"
            "lock = BuildLock(Path(sys.argv[1]) / 'venv',\n"
            "                 Path(sys.argv[1]) / 'checkout', 'race', wait=60)\n"
            "with lock:\n"
            "    inside.touch(exist_ok=False)\n"
            "    time.sleep(0.05)\n"
            "    inside.unlink()\n"
        )
        running = [
            subprocess.Popen([sys.executable, "-c", code, base]) for _ in range(4)
        ]
        assert [proc.wait() for proc in running] == [0] * 4

    def test_waits_aloud(self, base: Path) -> None:
        """Waiting is announced with the holder, and ends when it is gone."""
        out = io.StringIO()
        with holding(base / "venv", base / "checkout", 1.0) as pid:
            begin = time.monotonic()
            with BuildLock(
                base / "venv", None, "second", console=Console(out), wait=30
            ):
                assert time.monotonic() - begin < 20
        assert f"waiting up to 30 s for the build that holds {base}" in out.getvalue()
        assert f"PID {pid} of " in out.getvalue()

    def test_same_process(self, base: Path) -> None:
        """A second build in this very process is refused like any other."""
        with (
            BuildLock(base / "venv", None, "one"),
            pytest.raises(InUseError),
            BuildLock(base / "venv", None, "two"),
        ):
            raise AssertionError

    def test_other_thread_may_release(self, base: Path) -> None:
        """The lock belongs to the build, not to the thread that began it."""
        lock = BuildLock(base / "venv", None, "one")
        lock.__enter__()
        thread = threading.Thread(target=lock.__exit__, args=(None, None, None))
        thread.start()
        thread.join()
        with BuildLock(base / "venv", None, "two"):
            assert holder_of(base / "venv") is not None


class TestTwoEnvironments:
    """One checkout, two environments: the lease tells."""

    def test_refused(self, base: Path) -> None:
        """Another environment of the same checkout is no way round."""
        with (
            holding(base / "one", base / "checkout") as pid,
            pytest.raises(InUseError, match="another process of this machine"),
            BuildLock(base / "two", base / "checkout", "second"),
        ):
            raise AssertionError(pid)

    def test_lock_is_free_after_a_refused_lease(self, base: Path) -> None:
        """Who is refused by the lease does not keep the lock."""
        with holding(base / "one", base / "checkout"):
            with (
                contextlib.suppress(InUseError),
                BuildLock(base / "two", base / "checkout", "second"),
            ):
                raise AssertionError
            with BuildLock(base / "two", None, "third"):
                assert holder_of(base / "two") is not None


class TestOtherUsers:
    """The lock is shared by the users of a machine."""

    @pytest.fixture(autouse=True)
    def warm(self, base: Path) -> None:
        """Import what is imported late while we still may."""
        needs_root()
        with BuildLock(base / "warm", None, "warm"):
            assert tried(BuildLock(base / "warm", None, "again"))[0] == 4

    def test_meets_the_lock_of_root(self, base: Path) -> None:
        """An ordinary user is refused by a lock that root holds, by name."""
        with holding(base / "venv", base / "checkout") as pid:
            code, detail, _ = as_nobody(
                lambda: tried(BuildLock(base / "venv", None, "x"))
            )
        assert code == 4
        assert f"PID {pid} of root" in detail

    def test_may_lock_after_root(self, base: Path) -> None:
        """The lock file that root made can be locked by an ordinary user."""
        old = os.umask(0o077)
        try:
            with BuildLock(base / "venv", None, "root"):
                assert lock_path(base / "venv").stat().st_mode & 0o777 == 0o666
        finally:
            os.umask(old)
        said = as_nobody(lambda: tried(BuildLock(base / "venv", None, "x")))
        assert said == ["in"]

    def test_closed_folder(self, base: Path) -> None:
        """Where the lock file cannot be made the build ends with what to look at."""
        (base / "closed").mkdir(mode=0o700)
        code, hint = as_nobody(
            lambda: tried(BuildLock(base / "closed/venv", None, "x"))
        )
        assert code == CannotError.code
        assert hint.startswith("ls -ld ")

    def test_planted_link(self, base: Path) -> None:
        """In a folder open to all, nothing is written through a planted link."""
        shared = base / "shared"
        shared.mkdir()
        shared.chmod(0o1777)
        victim = base / "victim"
        victim.write_text("precious")
        as_nobody(lambda: os.symlink(victim, holder_path(shared / "venv")) or True)
        with BuildLock(shared / "venv", None, "root"):
            assert victim.read_text() == "precious"
        assert victim.read_text() == "precious"

    def test_sticky_folder(self, base: Path) -> None:
        """A lock file that a stranger put into a folder open to all is refused."""
        shared = base / "shared"
        shared.mkdir()
        shared.chmod(0o1777)
        lock_path(shared / "venv").touch()
        code, *_ = as_nobody(lambda: tried(BuildLock(shared / "venv", None, "x")))
        assert code == CannotError.code

    def test_lease_inside(self, base: Path) -> None:
        """Without a place for a lease beside the checkout it lies inside it."""
        checkout = base / "checkout"
        os.chown(checkout, NOBODY, NOBODY)

        def work() -> str:
            note = lease.Lease(checkout, lease.holder("x"))
            note.take()
            path = note.path
            note.drop()
            return str(path)

        assert as_nobody(work) == f"{checkout}/.rig-lease"
        assert not list(checkout.iterdir())
