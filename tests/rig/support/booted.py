# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A machine with a systemd of its own, made of this one.

Its files lie under a disk in memory, its processes in a namespace: what is done there
is gone afterwards. The network and the named folders are this machine's.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

SYSTEMD = Path("/lib/systemd/systemd")
USER = "rigger"
MASKED = (
    *("systemd-udevd.service", "systemd-udev-trigger.service"),
    *("systemd-udevd-control.socket", "systemd-udevd-kernel.socket"),
    *("systemd-modules-load.service", "systemd-sysctl.service"),
    *("systemd-networkd.service", "systemd-resolved.service"),
    *("systemd-timesyncd.service", "systemd-binfmt.service"),
    *("systemd-tmpfiles-setup.service", "systemd-tmpfiles-setup-dev.service"),
    *("systemd-tmpfiles-clean.timer", "systemd-journal-flush.service"),
    *("systemd-update-utmp.service", "systemd-random-seed.service"),
    *("proc-sys-fs-binfmt_misc.automount", "dev-hugepages.mount"),
    *("sys-kernel-debug.mount", "sys-kernel-tracing.mount"),
    *("sys-fs-fuse-connections.mount", "sys-kernel-config.mount"),
)
"""What would touch this machine's devices or is of no use."""

# `pivot_root` rather than `chroot`: systemd's own namespaces want a real root
BOOT = """
set -eu
mount --make-rprivate /
mount -t tmpfs -o size=1g tmpfs {top}
mkdir {top}/upper {top}/work {top}/root
mount -t overlay -o lowerdir=/,upperdir={top}/upper,workdir={top}/work none {top}/root
cd {top}/root
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t tmpfs tmpfs sys/fs/cgroup
mkdir sys/fs/cgroup/systemd
mount -t cgroup -o none,name=systemd cgroup sys/fs/cgroup/systemd
mount -t tmpfs -o mode=755 tmpfs dev
for name in null zero full random urandom tty; do
    touch dev/$name
    mount --bind /dev/$name dev/$name
done
mkdir dev/shm dev/pts
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mount -t tmpfs tmpfs run
mkdir -p run/systemd/system
for name in {masked}; do ln -s /dev/null run/systemd/system/$name; done
target="Requires=sysinit.target\nAfter=sysinit.target\nAllowIsolate=yes"
printf '%s\\n' "[Unit]" "$target" > run/systemd/system/rig.target
{binds}
mkdir -p old
pivot_root . old
exec chroot . env -i container=other PATH="$PATH" sh -c 'umount -l /old; cd /
    exec {systemd} --system --unit=rig.target --log-target=console --show-status=0'
"""


@dataclass
class Machine:
    """A machine that was booted.

    Attributes
    ----------
    pid
        Its first process, as this machine sees it.
    home
        The home of its user, which is a folder of this machine as well.
    """

    pid: int
    home: Path
    env: dict[str, str] = field(default_factory=dict)

    def run(
        self, *words: object, user: bool = False, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a command there, as root or as its user."""
        argv = [
            "nsenter",
            "-t",
            str(self.pid),
            "-m",
            "-p",
            "-C",
            "-i",
            "-u",
            "-r",
            "-w",
        ]
        if user:
            argv += ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--init-groups"]
            env = {**self.env, "HOME": os.fspath(self.home)}
            argv += [
                "env",
                "--chdir",
                env["HOME"],
                *(f"{k}={v}" for k, v in env.items()),
            ]
        argv += [str(word) for word in words]
        done = subprocess.run(argv, text=True, capture_output=True)
        if check and done.returncode:
            raise AssertionError(
                f"{argv}: {done.returncode}\n{done.stdout}{done.stderr}"
            )
        return done

    def control(
        self, *words: object, user: bool = False, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run ``systemctl``, of the system or of the user's own manager."""
        whose = ["--user"] if user else []
        return self.run("systemctl", *whose, *words, user=user, check=check)

    def shown(self, unit: str, name: str, *, user: bool = False) -> str:
        """Return a property of a unit."""
        words = ("show", "--value", "-p", name, unit)
        return self.control(*words, user=user).stdout.strip()

    def journal(self, lines: int = 60) -> str:
        """Return the end of what its services said."""
        return self.run("journalctl", "--no-pager", "-n", lines, check=False).stdout

    def start_manager(self) -> None:
        """Start the systemd of its user, without a login."""
        number = self.run("id", "-u", USER).stdout.strip()
        runtime = f"/run/user/{number}"
        self.run("install", "-d", "-o", USER, "-m", "700", runtime)
        # made by the first service of the system that is closed in; there is none yet
        self.run("mkdir", "-p", "/run/systemd/unit-root")
        self.env["XDG_RUNTIME_DIR"] = runtime
        lines = [
            "[Service]",
            f"User={USER}",
            "Type=notify",
            "Delegate=yes",
            f'Environment="XDG_RUNTIME_DIR={runtime}" "HOME={self.home}"',
            f"ExecStart={SYSTEMD} --user",
            "KillMode=mixed",
        ]
        text = shlex.quote("\n".join([*lines, ""]))
        place = "/run/systemd/system/manager.service"
        self.run("sh", "-c", f"printf %s {text} > {place}")
        self.control("daemon-reload")
        self.control("start", "manager.service")


@contextlib.contextmanager
def machine(home: Path, reads: Sequence[Path]) -> Iterator[Machine]:
    """Boot a machine; skip the test where that cannot be.

    Parameters
    ----------
    home
        A folder that becomes the home of its user.
    reads
        Programs and folders of this machine that its user must reach.
    """
    if os.geteuid() != 0:
        pytest.skip("only root can boot a machine in namespaces")
    if not SYSTEMD.exists() or shutil.which("unshare") is None:
        pytest.skip("systemd is not installed")
    top = Path(tempfile.mkdtemp(prefix="rig-booted-"))
    log = top.parent / f"{top.name}.log"
    here = os.stat("/").st_dev
    binds = []
    for path in (home, *reads):
        if os.stat(path).st_dev != here or path is home:
            place = shlex.quote(os.fspath(path).lstrip("/"))
            binds.append(
                f"mkdir -p {place}; mount --rbind {shlex.quote(str(path))} {place}"
            )
    script = BOOT.format(
        top=top, masked=" ".join(MASKED), binds="\n".join(binds), systemd=SYSTEMD
    )
    # a test run that is killed leaves no machine behind
    words = ["setpriv", "--pdeathsig", "KILL"]
    words += ["unshare", "--fork", "--kill-child", "--pid", "--mount", "--uts", "--ipc"]
    with log.open("w") as said:
        boot = subprocess.Popen(
            [*words, "--cgroup", "sh", "-c", script],
            stdout=said,
            stderr=said,
            stdin=subprocess.DEVNULL,
        )
    try:
        made = Machine(_first(boot, log), home)
        _settle(made, boot, log)
        _let_in(made, reads)
        yield made
    finally:
        boot.kill()
        boot.wait()
        top.rmdir()
        log.unlink()


def _first(boot: subprocess.Popen[bytes], log: Path) -> int:
    """Return the PID of the machine's first process once it is systemd."""
    deadline = time.monotonic() + 30
    children = Path(f"/proc/{boot.pid}/task/{boot.pid}/children")
    while time.monotonic() < deadline and boot.poll() is None:
        for word in children.read_text().split():
            if Path(f"/proc/{word}/comm").read_text().strip() == "systemd":
                return int(word)
        time.sleep(0.1)
    pytest.skip(f"no systemd can be booted here: {log.read_text()[-300:]}")


def _settle(made: Machine, boot: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and boot.poll() is None:
        got = made.control("is-system-running", check=False).stdout.strip()
        if got in ("running", "degraded"):
            return
        time.sleep(0.2)
    pytest.skip(f"the systemd here does not come up: {log.read_text()[-300:]}")


def _let_in(made: Machine, reads: Sequence[Path]) -> None:
    """Make a user who owns the home, and open the way to what it reads; only there."""
    made.run("useradd", "--no-create-home", "--home-dir", made.home, USER)
    made.run("chown", "-R", f"{USER}:{USER}", made.home)
    ways = {
        parent for path in reads for parent in [*path.parents, *path.resolve().parents]
    }
    ways |= set(made.home.parents)
    for folder in sorted(ways):
        made.run("chmod", "a+rx", folder, check=False)
