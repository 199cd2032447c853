# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What holds for every test: signals do what they do in a terminal.

Below tests/rig/unit also: no real process, no real home. A unit test that starts a
process by accident depends on this machine without saying so. Here such a start fails
the test, even where the code under test swallows the error.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

_UNIT = Path(__file__).parent / "unit"
_SCRUBBED_PREFIXES = (
    "ONECAT_",
    "CUDA_",
    "NVCC_",
    "FLASH_ATTN_",
    "VLLM_",
    "UV_",
    "PIP_",
    "GIT_",
    "XDG_",
)
_SCRUBBED = frozenset(
    [
        "MAX_JOBS",
        "TORCH_CUDA_ARCH_LIST",
        "VIRTUAL_ENV",
        "PYTHONPATH",
        "CC",
        "CXX",
        "CUDAHOSTCXX",
        "FETCHCONTENT_BASE_DIR",
        "RIG_PARENT",
        "RIG_NOX_ENVDIR",
        "GITHUB_ACTIONS",
        "NO_COLOR",
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "no_proxy",
        "ftp_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "NO_PROXY",
        "FTP_PROXY",
    ]
)
_STARTERS = ("system", "fork", "forkpty", "posix_spawn", "posix_spawnp")


def pytest_configure() -> None:
    """Let signals do what they do in a terminal, however the tests were started.

    ``nohup`` and a script's ``&`` have them ignored, and whatever tests start inherits
    that: nothing could be hung up or interrupted.
    """
    usual = {
        signal.SIGHUP: signal.SIG_DFL,
        signal.SIGQUIT: signal.SIG_DFL,
        signal.SIGINT: signal.default_int_handler,
    }
    for number, action in usual.items():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, action)


class RealProcess(AssertionError):
    """A unit test started a process."""


@pytest.fixture(autouse=True)
def _clean_environment(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Give a unit test an empty home, and no settings of whoever runs it."""
    if not _is_unit(request):
        yield
        return
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name in _SCRUBBED or name.startswith(_SCRUBBED_PREFIXES):
                patch.delenv(name)
        patch.setenv("HOME", str(home))
        for name, place in (
            ("XDG_CONFIG_HOME", ".config"),
            ("XDG_CACHE_HOME", ".cache"),
            ("XDG_DATA_HOME", ".local/share"),
            ("XDG_STATE_HOME", ".local/state"),
        ):
            patch.setenv(name, str(home / place))
        yield


@pytest.fixture(autouse=True)
def _no_real_process(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a unit test that starts a process or signals one that is not its own.

    Exempt are tests marked ``allow_process``. A test that uses the ``fp`` fixture gets
    its fakes from there, and may let single programs through.
    """
    if not _is_unit(request) or request.node.get_closest_marker("allow_process"):
        yield
        return
    started: list[str] = []

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        # the first argument is the program, or the Popen that would start it
        words = [a for a in (*args, *kwargs.values()) if not _is_popen(a)]
        started.append(repr(words[0]) if words else "a copy of ourselves")
        raise RealProcess(f"a unit test started a real process: {started[-1]}")

    kill = os.kill

    def kill_ourselves(pid: int, sig: int) -> None:
        # fakes have invented pids, and an invented pid may be somebody's
        if pid != os.getpid() and sig != 0:
            raise ProcessLookupError(pid)
        kill(pid, sig)

    with pytest.MonkeyPatch.context() as patch:
        if not {"fp", "fake_process", "fake_subprocess"} & set(request.fixturenames):
            patch.setattr(subprocess.Popen, "__init__", refuse)
        for name in _STARTERS:
            patch.setattr(os, name, refuse)
        patch.setattr(os, "kill", kill_ourselves)
        yield
    if started:
        pytest.fail(
            f"started {', '.join(started)}; mark the test allow_process if it must"
        )


def _is_popen(value: object) -> bool:
    # pytest-subprocess may have another object in the class's place
    return type(value).__name__ == "Popen"


def _is_unit(request: pytest.FixtureRequest) -> bool:
    return _UNIT in request.node.path.parents
