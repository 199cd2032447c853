# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A yard for tests of admission: a launcher, a socket's folder, a compiler to command.

The compiler executes its source as Python, so that a test says what a compile does.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.rig.builds.admission import launcher, protocol
from tools.rig.builds.admission.client import Admission, Files

MIB = 1 << 20

_COMPILER = """\
#!{python} -IS
import sys, os, time
source = sys.argv[sys.argv.index("-c") + 1]
made = sys.argv[sys.argv.index("-o") + 1]
def hold(mib, seconds):
    held = bytearray(mib << 20)
    held[::4096] = b"x" * len(held[::4096])
    time.sleep(seconds)
    return held
exec(compile(open(source).read(), source, "exec"))
open(made, "w").close()
"""


class Yard:
    """Folders of one test; the socket's is short, since its path must be."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self.path.mkdir(parents=True, exist_ok=True)
        self.socket = Path(tempfile.mkdtemp(prefix="rig-t-", dir="/tmp"))
        self.admit = launcher.publish(folder / "shims", self.socket)
        self.compiler = folder / "g++"
        python = os.path.realpath(sys.executable)
        self.compiler.write_text(_COMPILER.format(python=python))
        self.compiler.chmod(0o700)

    def close(self) -> None:
        """Remove what lies elsewhere."""
        shutil.rmtree(self.socket, ignore_errors=True)

    def source(self, name: str, text: str = "") -> list[str]:
        """Write a source, and return the command that compiles it."""
        (self.path / name).write_text(text)
        made = f"{name}.o"
        return [str(self.admit), str(self.compiler), "-c", name, "-o", made]

    def admission(self, build: str = "b", cores: int = 2, **more: Any) -> Admission:
        """Return the admission of a build."""
        files = Files.of(self.path / "logs", build, self.path / "predictions.json")
        return Admission(build, files, cores, folder=self.socket, **more)

    def env(self, admission: Admission) -> dict[str, str]:
        """Return the environment of that build's compiles."""
        return {**os.environ, **admission.env}

    def start(
        self, words: list[str], env: dict[str, str], **more: Any
    ) -> subprocess.Popen[str]:
        """Start a command in the yard."""
        return subprocess.Popen(
            words,
            cwd=self.path,
            env=env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **more,
        )

    def run(
        self, words: list[str], env: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the yard to its end."""
        return subprocess.run(
            words, cwd=self.path, env=env, text=True, capture_output=True, timeout=60
        )

    def status(self) -> dict[str, Any] | None:
        """Ask the service."""
        return protocol.status(self.socket)

    def serving(self) -> dict[str, Any]:
        """Wait until a service answers, and return what it says."""
        found: dict[str, Any] = until(self.status, 20)
        return found


def until(look: Callable[[], Any], seconds: float = 15.0) -> Any:
    """Return the first true answer; fail after so many seconds."""
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def events(admission: Admission) -> list[dict[str, Any]]:
    """Return the event lines as they are; a line that is no JSON fails the test."""
    text = admission.files.events.read_text()
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]
