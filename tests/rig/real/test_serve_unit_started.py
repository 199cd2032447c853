# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The units that are written, started by a real systemd with a real server in them."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.rig.support import booted, tiny_model, vllm_cpu

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[3]
CPU = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "0",
    "HF_HUB_OFFLINE": "1",
}
"""What a processor needs in the place of a card."""


class Site:
    """A booted machine whose user owns a model and a state root."""

    def __init__(self, machine: booted.Machine, environment: Path) -> None:
        self.machine = machine
        self.environment = environment
        self.home = machine.home
        self.port = vllm_cpu.free_port()

    def invoke(self, *words: object, check: bool = True) -> str:
        """Run a task as the user and return all that it said."""
        argv = [sys.executable, "-m", "invoke", "--search-root", ROOT, *words]
        done = self.machine.run(*argv, user=True, check=check)
        return done.stdout + done.stderr

    def write(self, *, user: bool) -> Path:
        """Write the units of a small server and return their folder."""
        folder = self.home / ("own units" if user else "units")
        self.invoke(
            *("serve-unit", "--model", self.home / "tiny", "--tp", "1"),
            *("--environment", self.environment, "--port", self.port),
            *("--output", folder, *(["--user"] if user else [])),
            *("--", "--enforce-eager", "--max-model-len", "512"),
        )
        return folder

    def install(self, folder: Path, target: Path, *, user: bool) -> None:
        """Install them as the task says, and what a processor needs."""
        run = self.machine.run
        files = sorted(folder.iterdir())
        run("install", "-D", "-m", "644", "-t", target, *files, user=user)
        more = folder / "cpu.conf"
        words = " ".join(f"{k}={v}" for k, v in CPU.items())
        more.write_text(f"[Service]\nEnvironment={words}\nRestartSec=1\n")
        beside = target / "rig-tiny.service.d"
        run("install", "-D", "-m", "644", "-t", beside, more, user=user)
        self.machine.control("daemon-reload", user=user)

    def is_ready(self) -> bool:
        """Say whether the server has just spoken."""
        return "tiny is ready" in self.invoke("serve-status", check=False)

    def pid_of(self, word: str) -> int:
        """Return a process of the server by a word of its command, as seen there."""
        found = self.machine.run("pgrep", "-f", "--", word, check=False).stdout.split()
        return int(found[0]) if found else 0

    def until(self, what: Callable[[], object], within: float = 240) -> None:
        """Wait until something is so; fail with the journal when it never is."""
        deadline = time.monotonic() + within
        while not what():
            assert time.monotonic() < deadline, self.machine.journal()
            time.sleep(1)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Boot a machine with a model in its user's home."""
    home = tmp_path_factory.mktemp("booted") / "home of rigger"
    tiny_model.write(home / "tiny")
    environment = vllm_cpu.environment()
    python = Path(sys.executable)
    reads = [ROOT, environment, environment / "bin" / "python", python]
    # an interpreter's library lies beside the program that its environment leads to
    reads += [path.resolve().parents[1] / "lib" for path in reads[2:]]
    with booted.machine(home, reads) as machine:
        machine.env["ONECAT_LOCAL_ROOT"] = os.fspath(home / "rig root")
        machine.env.update(CPU)
        yield Site(machine, environment)


def test_a_unit_starts_a_server_and_brings_it_back(site: Site) -> None:
    """The server is closed in and serves; killed or hung it comes back; it stops."""
    control, shown = site.machine.control, site.machine.shown
    site.install(site.write(user=False), Path("/etc/systemd/system"), user=False)
    control("start", "rig-tiny.service")
    site.until(site.is_ready)

    control("start", "rig-tiny-look.service")
    assert shown("rig-tiny-look.service", "ConditionResult") == "no"
    first = shown("rig-tiny.service", "MainPID")

    site.machine.run("kill", "-KILL", site.pid_of("^[^ ]*python -I -m vllm"))
    site.until(lambda: shown("rig-tiny.service", "MainPID") not in ("0", first))
    site.until(site.is_ready)
    second = shown("rig-tiny.service", "MainPID")

    site.machine.run("kill", f"-{signal.SIGSTOP.value}", site.pid_of("VLLM::Worker"))

    def looked_and_restarted() -> bool:
        # what the timer does; one look alone may condemn nobody
        control("start", "rig-tiny-look.service")
        return shown("rig-tiny.service", "MainPID") not in ("0", second)

    site.until(looked_and_restarted)
    site.until(site.is_ready)

    control("stop", "rig-tiny.service")
    assert shown("rig-tiny.service", "Result") == "success"
    assert not site.pid_of("VLLM::")
    assert vllm_cpu.port_is_free(site.port)


def test_a_users_own_unit(site: Site) -> None:
    """The units for a user's own systemd start there; after serve-stop they rest."""
    site.machine.start_manager()
    control, shown = site.machine.control, site.machine.shown
    target = site.home / ".config" / "systemd" / "user"
    site.install(site.write(user=True), target, user=True)
    control("start", "rig-tiny.service", user=True)
    site.until(site.is_ready)
    control("start", "rig-tiny-look.service", user=True)
    assert shown("rig-tiny-look.service", "ConditionResult", user=True) == "no"
    site.invoke("serve-stop", "--name", "tiny")
    site.until(lambda: shown("rig-tiny.service", "ActiveState", user=True) != "active")
    # longer than it would take to be started again
    time.sleep(5)
    assert shown("rig-tiny.service", "ActiveState", user=True) == "inactive"
    assert shown("rig-tiny.service", "Result", user=True) == "success"
    assert not site.pid_of("VLLM::")
