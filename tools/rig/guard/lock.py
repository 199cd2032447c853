# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""One build of an environment at a time.

The lock is the kernel's own (flock), taken on a file beside the environment, so that
every user of the machine meets it and that it is free the moment its holder dies, by
whatever signal. The file itself stays for ever; who holds it stands in a second file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from pathlib import Path
from types import TracebackType

import filelock

from tools.rig.base import room
from tools.rig.base.console import Console, duration
from tools.rig.base.errors import CannotError, InUseError, quoted
from tools.rig.base.state import home_of
from tools.rig.guard import lease as leases
from tools.rig.guard.lease import Holder, Lease

_POLL_S = 0.5
_REMIND_S = 60.0
_INTRODUCTION_S = 0.5
"""How long a holder that has just won may take to write its name."""


def lock_path(venv: Path) -> Path:
    """Return the lock file of an environment: beside its home.

    A switch to another generation does not change it.
    """
    real = home_of(Path(os.path.realpath(venv)))
    return real.with_name(f".{real.name}.rig-lock")


def holder_path(venv: Path) -> Path:
    """Return the file that names the holder; it says nothing when nobody holds."""
    path = lock_path(venv)
    return path.with_name(path.name + ".json")


def holder_of(venv: Path) -> Holder | None:
    """Return who is named beside the lock and alive, without touching the lock."""
    found = _named(holder_path(venv))
    return None if found is None or found.gone else found


class BuildLock:
    """Held for a whole build: ``with BuildLock(venv, checkout, command): ...``.

    Parameters
    ----------
    venv
        The environment or a link to it. It need not exist yet.
    checkout
        Where a lease for other hosts is written; None for none.
    command
        What is being run, for those who wait.
    console
        Where waiting is announced, and that a dead holder's lock was taken over.
    wait
        Seconds to wait for another holder; 0 refuses at once.
    lock_type
        The kind of lock; the kernel's own.

    Attributes
    ----------
    taken_over
        The holder that died without a farewell, or None.
    """

    def __init__(
        self,
        venv: Path,
        checkout: Path | None,
        command: str,
        *,
        console: Console | None = None,
        wait: float = 0.0,
        lock_type: type[filelock.BaseFileLock] = filelock.FileLock,
    ) -> None:
        self.path = lock_path(venv)
        self.venv = venv
        self.taken_over: Holder | None = None
        self._sidecar = holder_path(venv)
        self._console = console
        self._wait = wait
        self._own = leases.holder(command)
        self._lease = None if checkout is None else Lease(checkout, self._own)
        # the file's mode lets other users lock it too; without the kernel's lock there
        # is no lock (no fallback to one that a dead holder would keep)
        self._lock = lock_type(
            self.path, timeout=0, mode=0o666, thread_local=False, fallback_to_soft=False
        )

    def __enter__(self) -> BuildLock:
        """Take the lock and the lease.

        Raises
        ------
        InUseError
            When someone else holds one of them.
        CannotError
            When the lock file cannot be opened or its disk knows no locks.
        """
        self._acquire()
        try:
            self.taken_over = _named(self._sidecar)
            self._introduce()
            if self._lease is not None:
                stale = self._lease.take()
                self.taken_over = self.taken_over or stale
        except BaseException:
            self._release()
            raise
        if self.taken_over is not None and self._console is not None:
            self._console.mark(
                "warn", f"a command that died held the lock: {self.taken_over}"
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give both back."""
        self._release()

    def _acquire(self) -> None:
        deadline = time.monotonic() + self._wait
        reminder = 0.0
        while not self._tried():
            now = time.monotonic()
            if now >= deadline:
                raise self._refused()
            if now >= reminder:
                self._announce(deadline - now)
                reminder = now + _REMIND_S
            time.sleep(min(_POLL_S, deadline - now))

    def _tried(self) -> bool:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._lock.acquire(timeout=0)
        except filelock.Timeout:
            return False
        except (OSError, NotImplementedError) as exc:
            raise CannotError(
                f"cannot lock {self.path}: {exc}",
                usual="The file belongs to another user and is closed to you, or its "
                "disk is read-only or knows no locks.",
                hint=self._look(exc),
            ) from exc
        return True

    def _look(self, exc: Exception) -> str:
        """Return the command that shows why the file cannot be locked."""
        folder = quoted(self.path.parent)
        number = exc.errno if isinstance(exc, OSError) else None
        with contextlib.suppress(OSError):
            flags = os.statvfs(self.path.parent).f_flag
            # the words for it differ between an old lock file and a new one
            number = errno.EROFS if flags & os.ST_RDONLY else number
        if number == errno.EROFS:
            return f"findmnt --target {folder}"
        if number in (errno.ENOSPC, errno.EDQUOT):
            return room.look(self.path.parent)
        return f"ls -ld {quoted(self.path)} {folder}"

    def _introduce(self) -> None:
        """Write who we are; a name that cannot be written does not stop a build."""
        text = leases.dumped(self._own)
        temp = self._sidecar.with_name(f"{self._sidecar.name}.{self._own.token}")
        try:
            temp.write_text(text, encoding="utf-8")
            temp.chmod(0o666)
            os.replace(temp, self._sidecar)
        except OSError:
            # in a sticky folder another user's file cannot be replaced, only written
            with contextlib.suppress(OSError):
                temp.unlink()
            self._overwrite(text)

    def _overwrite(self, text: str) -> None:
        # never through a link that someone planted in a folder open to all
        flags = os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with (
            contextlib.suppress(OSError),
            open(os.open(self._sidecar, flags), "w", encoding="utf-8") as fh,
        ):
            fh.write(text)

    def _release(self) -> None:
        if self._lease is not None:
            self._lease.drop()
        found = _named(self._sidecar)
        if found is not None and found.token == self._own.token:
            try:
                self._sidecar.unlink()
            except OSError:
                self._overwrite("")
        self._lock.release()

    def _holder(self) -> Holder | None:
        """Return who holds the lock; one that has just won gets time to say so."""
        deadline = time.monotonic() + _INTRODUCTION_S
        while True:
            found = _named(self._sidecar)
            if found is not None and not found.gone:
                return found
            if time.monotonic() >= deadline:
                return None
            time.sleep(0.05)

    def _announce(self, left: float) -> None:
        if self._console is not None:
            who = self._holder() or "a process that did not give its name"
            self._console.say(
                f"waiting up to {duration(left)} for the build that holds "
                f"{self.path}: {who}"
            )

    def _refused(self) -> InUseError:
        found = self._holder()
        if found is None:
            return InUseError(
                f"another command holds the lock of {self.venv}",
                usual="It did not leave its name.",
                hint=f"fuser -v {quoted(self.path)}",
            )
        return InUseError(
            f"another command holds the lock of {self.venv}",
            details=[str(found)],
            usual="Wait until it is done. ONECAT_FORCE=1 does not override a lock.",
            hint=f"ps -o pid,user,lstart,args -p {found.pid}",
        )


def _named(path: Path) -> Holder | None:
    try:
        return leases.parsed(path.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
