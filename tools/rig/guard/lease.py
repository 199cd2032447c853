# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A note beside the checkout: which host is building it now.

A lock of the kernel does not reach other hosts that share the checkout through a NAS,
nor another user whose environment lies elsewhere. A lease does, but nobody takes it
away when its holder dies. So it says enough to be judged: on the host that wrote it a
process that is gone, or a boot that is over, makes it stale. Another host's lease is
never removed from here.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tools.rig.base import redact
from tools.rig.base.errors import InUseError, quoted
from tools.rig.guard.signs import one_line
from tools.rig.host import processes

MACHINE_ID = Path("/etc/machine-id")

_TURNS = 40
_TURN_S = 0.05
"""How often and how long one waits while another one judges the same lease."""

_WORDS = ("user", "command", "host", "machine", "boot", "space", "token")


@dataclass(frozen=True)
class Holder:
    """Who builds. The same data lies beside the lock and in a lease.

    ``start`` is in clock ticks since boot, ``since`` in seconds since 1970; ``space``
    names the pid namespace in which ``pid`` means something; ``token`` tells two leases
    of one process apart.
    """

    pid: int
    start: int | None
    user: str
    command: str
    host: str
    machine: str
    boot: str
    space: str
    since: float
    token: str

    @property
    def same_boot(self) -> bool:
        """Whether it runs on the kernel that runs us, maybe in another container."""
        return bool(self.boot) and self.boot == processes.boot_id()

    @property
    def gone(self) -> bool:
        """Whether it certainly does not run any more, as far as this host can tell."""
        if self.same_boot:
            if self.space != _space():
                return False
            return not processes.alive(self.pid, self.start)
        # our own name with another boot id: this host was started anew since
        return (self.host, self.machine) == (_host(), _machine()) and bool(self.boot)

    def __str__(self) -> str:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(self.since))
        where = "" if self.same_boot else f" on the host {self.host}"
        return f"PID {self.pid} of {self.user}{where}, since {when}: {self.command}"


def holder(command: str) -> Holder:
    """Return this process as a holder; secrets in `command` are masked."""
    pid = os.getpid()
    return Holder(
        pid=pid,
        start=processes.start_time(pid),
        user=processes.user_name(os.getuid()),
        command=redact.text(command),
        host=_host(),
        machine=_machine(),
        boot=processes.boot_id(),
        space=_space(),
        since=time.time(),
        token=secrets.token_hex(8),
    )


def parsed(text: str) -> Holder | None:
    """Return the holder that a file names, or None when the text is none.

    What others wrote is shown to people, so it is brought to one line.
    """
    try:
        data = json.loads(text)
        start = data["start"]
        return Holder(
            pid=int(data["pid"]),
            start=None if start is None else int(start),
            since=float(data["since"]),
            **{name: one_line(str(data[name])) for name in _WORDS},
        )
    except (ValueError, TypeError, KeyError):
        return None


def dumped(found: Holder) -> str:
    """Return the text that :func:`parsed` reads."""
    return json.dumps(asdict(found), indent=2, sort_keys=True) + "\n"


def places(checkout: Path) -> tuple[Path, Path]:
    """Return where a lease may lie: beside the checkout, else inside it."""
    real = Path(os.path.realpath(checkout))
    name = f".{real.name}.rig-lease"
    return real.with_name(name), real / ".rig-lease"


class Lease:
    """The note of one build.

    Parameters
    ----------
    checkout
        The checkout that is built.
    own
        Who builds it.
    """

    def __init__(self, checkout: Path, own: Holder) -> None:
        self.checkout = checkout
        self.own = own
        self.path: Path | None = None

    def take(self) -> Holder | None:
        """Write the lease, and return the dead holder whose one it replaces, if any.

        ``path`` stays None where nothing can be written: a build cannot write there
        either.

        Raises
        ------
        InUseError
            When someone else holds it, or when it cannot be read.
        """
        stale = None
        for path in places(self.checkout):
            # whoever could not write beside the checkout left it inside
            stale = self._cleared(path) or stale
        for path in places(self.checkout):
            try:
                _create(path, dumped(self.own))
            except FileExistsError:
                self._cleared(path)
                raise _busy(path, None) from None
            except OSError:
                continue
            self.path = path
            break
        return stale

    def drop(self) -> None:
        """Remove the lease when it still is ours."""
        if self.path is None:
            return
        with contextlib.suppress(OSError):
            found = parsed(self.path.read_text(encoding="utf-8"))
            if found is not None and found.token == self.own.token:
                self.path.unlink()
        self.path = None

    def _cleared(self, path: Path) -> Holder | None:
        """Remove a stale lease at `path`; a living or foreign one is an error."""
        try:
            fh = path.open("r+", encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None
        except OSError:
            # readable only: it can be judged but not removed
            return self._judge_unwritable(path)
        with fh, _alone(fh.fileno()):
            found = parsed(fh.read())
            if found is None or not found.gone:
                raise _busy(path, found)
            # two of us may have opened the same stale lease: the second one must not
            # remove what the first one wrote in its place
            if _same(path, fh.fileno()):
                path.unlink()
                return found
        return self._cleared(path)

    def _judge_unwritable(self, path: Path) -> Holder | None:
        try:
            found = parsed(path.read_text(encoding="utf-8", errors="replace"))
        except OSError:
            found = None
        if found is not None and found.gone:
            with contextlib.suppress(OSError):
                path.unlink()
                return found
        raise _busy(path, found)


def holder_at(checkout: Path) -> Holder | None:
    """Return who holds a lease of `checkout` and may still be building, or None."""
    for path in places(checkout):
        with contextlib.suppress(OSError):
            found = parsed(path.read_text(encoding="utf-8", errors="replace"))
            if found is not None and not found.gone:
                return found
    return None


def _busy(path: Path, found: Holder | None) -> InUseError:
    if found is None:
        return InUseError(
            f"the checkout may be in use elsewhere: cannot read {path}",
            usual="Such a file names who works on it; this one is broken or new.",
            hint=f"rm {quoted(path)}   # when no host works on this checkout",
        )
    if found.same_boot:
        return InUseError(
            "another process of this machine builds or switches the checkout",
            details=[str(found)],
            usual="It may use another environment, but it writes the same libraries.",
            hint=f"ps -o pid,user,lstart,args -p {found.pid}",
        )
    return InUseError(
        f"another host, {found.host}, builds or switches the checkout",
        details=[str(found)],
        usual=f"{path} says so. This host cannot see whether that still runs.",
        hint=f"rm {quoted(path)}   # only when {found.host} is done with it",
    )


def _create(
    path: Path, text: str, link: Callable[[Path, Path], None] = os.link
) -> None:
    """Create a file with its whole content at once; one that exists is an error."""
    temp = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        with temp.open("x", encoding="utf-8") as fh:
            fh.write(text)
            fh.flush()
            os.fsync(fh.fileno())
            os.fchmod(fh.fileno(), 0o644)
        try:
            link(temp, path)
        except FileExistsError:
            raise
        except OSError:
            # no hard links on this file system: exclusive creation is atomic as well,
            # only the content comes a moment later
            with path.open("x", encoding="utf-8") as fh:
                fh.write(text)
    finally:
        with contextlib.suppress(OSError):
            temp.unlink()


@contextlib.contextmanager
def _alone(fd: int) -> Iterator[None]:
    """Let one process of this host at a time judge a lease."""
    # a file system without locks leaves the check of identity as the only one; never
    # a call that waits, since a server of locks may be away
    for _ in range(_TURNS):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_TURN_S)
        except OSError:
            break
        else:
            break
    yield


def _same(path: Path, fd: int) -> bool:
    try:
        there, here = os.stat(path), os.fstat(fd)
    except OSError:
        return False
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)


def _host() -> str:
    return os.uname().nodename


def _machine(file: Path = MACHINE_ID) -> str:
    with contextlib.suppress(OSError):
        return file.read_text(encoding="utf-8", errors="replace").strip()
    return ""


def _space() -> str:
    return processes.link("/proc/self/ns/pid") or ""
