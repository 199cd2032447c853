# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Real routers, started for a test: nginx of this machine, LiteLLM from its wheel."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from tests.rig.support.toolkit import cache_folder
from tools.rig.serve.routers import nginx

LOCK = Path(__file__).parents[3] / "tools/rig/requirements/litellm.txt"
_START_S = 180.0


def nginx_program() -> str:
    """Return nginx; skips the test where there is none."""
    found = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if found is None:
        pytest.skip("nginx is not installed")
    return found


@contextlib.contextmanager
def nginx_running(site: Path, port: int, folder: Path) -> Iterator[None]:
    """Run nginx with one site and nothing else."""
    whole = folder / "nginx.conf"
    whole.write_text(nginx.around(site, folder))
    argv = [nginx_program(), "-p", os.fspath(folder), "-c", os.fspath(whole)]
    with _running(argv, port, os.environ, folder / "nginx.out"):
        yield


@contextlib.contextmanager
def litellm_running(
    argv: list[str], port: int, env: Mapping[str, str], log: Path
) -> Iterator[None]:
    """Run LiteLLM's proxy by the command that the step tells."""
    path = f"{litellm_environment() / 'bin'}:{os.environ['PATH']}"
    with _running(argv, port, {**os.environ, **env, "PATH": path}, log):
        yield


def litellm_environment() -> Path:
    """Return an environment with LiteLLM; ``ONECAT_TEST_LITELLM`` names one instead."""
    given = os.environ.get("ONECAT_TEST_LITELLM")
    if given:
        return Path(given)
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]
    folder = cache_folder() / f"litellm-{digest}"
    with FileLock(f"{folder}.lock"):
        if not (folder / "complete").is_file():
            _install(folder)
    return folder


def read_yaml(file: Path) -> Any:
    """Return a file as a YAML library reads it that is not ours."""
    python = litellm_environment() / "bin" / "python"
    program = "import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.stdin)))"
    words = [os.fspath(python), "-c", program]
    said = subprocess.run(
        words, input=file.read_text(), capture_output=True, text=True, check=True
    )
    return json.loads(said.stdout)


def _install(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    homes = Path.home().glob(".pyenv/versions/3.1[123].*/bin/python3")
    names = ("python3.11", "python3.12", "python3.13")
    here = [p for p in map(shutil.which, names) if p] + [*map(str, homes)]
    if sys.version_info[:2] in ((3, 11), (3, 12), (3, 13)):
        here.insert(0, sys.executable)
    if not here:
        pytest.skip("LiteLLM's wheels want Python 3.11 to 3.13")
    subprocess.run([here[0], "-m", "venv", os.fspath(folder)], check=True)
    words = ["-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "-r"]
    python = os.fspath(folder / "bin" / "python")
    got = subprocess.run(
        [python, *words, os.fspath(LOCK)], capture_output=True, text=True, check=False
    )
    if got.returncode:
        if "No matching distribution" in got.stderr:
            pytest.skip(f"no index here has LiteLLM: {got.stderr.splitlines()[-1]}")
        pytest.fail(f"cannot install LiteLLM: {got.stderr[-2000:]}")
    (folder / "complete").touch()


@contextlib.contextmanager
def _running(
    argv: list[str], port: int, env: Mapping[str, str], log: Path
) -> Iterator[None]:
    """Run a program until it listens, and end its whole group afterwards."""
    with log.open("wb") as out:
        proc = subprocess.Popen(
            argv,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + _START_S
        while not _listens(port):
            assert proc.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(0.05)
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(proc.pid, signal.SIGTERM)
        try:
            proc.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(proc.pid, signal.SIGKILL)
            proc.wait(20)


def _listens(port: int) -> bool:
    with socket.socket() as trial:
        trial.settimeout(1)
        return trial.connect_ex(("127.0.0.1", port)) == 0
