# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A user's machine in a folder: a home, a state root, and the commands typed there.

Compilers, downloads and compiled objects come from caches that later runs find again,
so that a build here costs seconds. A *gate* is a host compiler that stops in the middle
of a compile and says so, which makes "in the middle of a build" a moment and not a
guess.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.rig.support.toolkit import cache_folder, fitting_compiler, sm70_toolkit
from tools.rig.base.state import StateRoot
from tools.rig.builds.target import HERE

LIMIT_S = 900.0
"""Seconds after which a command of a test counts as stuck, on a busy machine too."""

_SCRUBBED = (
    "ONECAT_",
    "CUDA",
    "NVCC_",
    "CCACHE_",
    "SAMPLE_",
    "RIG_",
    "XDG_",
    "GIT_",
    "INVOKE_",
    "NOX",
    "COVERAGE_",
)
_SCRUBBED_NAMES = frozenset(
    {"MAX_JOBS", "TORCH_CUDA_ARCH_LIST", "VIRTUAL_ENV", "PYTHONPATH", "TMPDIR"}
    | {"CC", "CXX", "CMAKE_ARGS", "FETCHCONTENT_BASE_DIR", "GITHUB_ACTIONS"}
)

_GATE = """\
#!/bin/sh
case "$*" in *{source}*)
    if [ -e {folder}/closed ]; then
        echo $$ >>{folder}/reached
        [ ! -x {folder}/trap ] || {folder}/trap
        while [ -e {folder}/closed ]; do sleep 0.05; done
    fi ;;
esac
exec {compiler} "$@"
"""


class Workshop:
    """A home, a state root and an environment of variables for commands.

    Parameters
    ----------
    folder
        Where all of it lies; made when missing.
    root
        The state root; below `folder` when None.
    """

    def __init__(self, folder: Path, root: Path | None = None) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir(parents=True, exist_ok=True)
        self.root = StateRoot(root or folder / "root")
        # CMake remembers the host compiler, so it must be this one from the beginning
        self.gate = Gate(folder / "gate")
        cache = cache_folder()
        kept = {
            name: value
            for name, value in os.environ.items()
            if name not in _SCRUBBED_NAMES and not name.startswith(_SCRUBBED)
        }
        self.env: dict[str, str] = {
            **kept,
            "HOME": str(self.home),
            "ONECAT_LOCAL_ROOT": str(self.root.path),
            # what a search for a Python and a download would find, known beforehand
            "ONECAT_PYTHON": os.path.realpath(getattr(sys, "_base_executable", "")),
            "CUDA_HOME": str(sm70_toolkit().root),
            "NVCC_CCBIN": str(self.gate.compiler),
            "UV_CACHE_DIR": str(cache / "uv"),
            "CCACHE_DIR": str(cache / "ccache"),
            "XDG_CACHE_HOME": str(cache / "xdg"),
            "LC_ALL": "C.UTF-8",
        }

    @property
    def sample(self) -> Path:
        """The sample's checkout."""
        return self.root.path / "sample" / "rig-sample"

    def argv(self, *words: str) -> list[str]:
        """Return the command that runs an Invoke task."""
        return [sys.executable, "-m", "invoke", "--search-root", str(HERE), *words]

    def invoke(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run an Invoke task to its end; `more` is added to the environment."""
        return self.run(self.argv(*words), **more)

    def run(self, argv: Sequence[str], **more: str) -> subprocess.CompletedProcess[str]:
        """Run any program in this environment to its end, outside of any checkout."""
        return subprocess.run(
            list(argv),
            env={**self.env, **more},
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT_S,
            check=False,
        )

    @contextlib.contextmanager
    def started(
        self, argv: Sequence[str], **options: Any
    ) -> Iterator[subprocess.Popen[str]]:
        """Start a program in a session of its own; nothing of it is left afterwards."""
        more = options.pop("env", {})
        with (self.folder / "started.out").open("w+") as sink:
            options.setdefault("stdin", subprocess.DEVNULL)
            options.setdefault("stdout", sink)
            options.setdefault("stderr", subprocess.STDOUT)
            proc = subprocess.Popen(
                list(argv),
                env={**self.env, **more},
                cwd=self.home,
                text=True,
                start_new_session=True,
                **options,
            )
            try:
                yield proc
            finally:
                for pid in {proc.pid, *self.processes()}:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                proc.wait(30)

    @property
    def said(self) -> str:
        """What the program of :meth:`started` has said so far."""
        return (self.folder / "started.out").read_text(errors="replace")

    @contextlib.contextmanager
    def edited(self) -> Iterator[Path]:
        """Give the sample's host library one function more, for a moment."""
        source = self.sample / "csrc" / "host.cpp"
        text = source.read_text()
        name = f"edit_{time.monotonic_ns()}"
        try:
            source.write_text(f'{text}\nextern "C" int {name}() {{ return 1; }}\n')
            yield source
        finally:
            source.write_text(text)

    def processes(self) -> list[int]:
        """Return every living process that has this state root in its environment."""
        mark = os.fsencode(f"ONECAT_LOCAL_ROOT={self.root.path}\0")
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
        return found

    def imports(self, environment: Path | None = None) -> str:
        """Return for which cards the sample in an environment says it was built."""
        place = environment or self.environment
        code = "import rig_sample; print(rig_sample.info()['arch_list'])"
        got = self.run([str(place / "bin" / "python"), "-c", code])
        return got.stdout.strip() or got.stderr

    @property
    def environment(self) -> Path:
        """The only environment below the state root."""
        [found] = [p for p in self.root.venvs.iterdir() if not p.name.startswith(".")]
        return found

    def records(self) -> list[dict[str, Any]]:
        """Return all records, the oldest first."""
        files = sorted(
            self.root.records.glob("*.json"), key=lambda p: p.stat().st_mtime
        )
        return [json.loads(file.read_text()) for file in files]


class Gate:
    """A host compiler that waits where it meets `source`, as long as it is closed."""

    def __init__(self, folder: Path, source: str = "wide.") -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.compiler = folder / "g++"
        real = fitting_compiler("12.4").path
        text = _GATE.format(
            source=source,
            folder=shlex.quote(str(folder)),
            compiler=shlex.quote(str(real)),
        )
        self.compiler.write_text(text)
        self.compiler.chmod(0o755)

    def close(self, trap: str = "") -> None:
        """Let the next compile wait; it runs `trap`, a shell script, before."""
        self.open()
        (self.folder / "closed").touch()
        if trap:
            (self.folder / "trap").write_text(f"#!/bin/sh\n{trap}\n")
            (self.folder / "trap").chmod(0o755)

    def open(self) -> None:
        """Let everybody through."""
        for name in ("closed", "trap", "reached"):
            (self.folder / name).unlink(missing_ok=True)

    @property
    def reached(self) -> bool:
        """Whether a compile stands before it."""
        return (self.folder / "reached").exists()


def until(what: Callable[[], Any], why: Callable[[], str], limit_s: float = 120) -> Any:
    """Return what becomes true; fail with `why` when nothing does in time."""
    deadline = time.monotonic() + limit_s
    while not (found := what()):
        assert time.monotonic() < deadline, why()
        time.sleep(0.05)
    return found


def copy_of(checkout: Path, place: Path) -> Path:
    """Copy a checkout without what builds have left in it."""
    ignored = shutil.ignore_patterns("build", ".venv", "*.so", "*.egg-info", ".deps")
    shutil.copytree(checkout, place, ignore=ignored, symlinks=True)
    return place


def settings_file(place: Path, values: Mapping[str, Any]) -> Path:
    """Write a rig.toml; JSON texts and tables of texts are TOML's too."""
    lines = []
    for name, value in values.items():
        if isinstance(value, dict):
            pairs = [f"{json.dumps(k)} = {json.dumps(v)}" for k, v in value.items()]
            lines.append(f"{name} = {{ {', '.join(pairs)} }}")
        else:
            lines.append(f"{name} = {json.dumps(value)}")
    place.write_text("\n".join(lines) + "\n")
    return place


def executed(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plan in a build's record in the words of ``plan``."""
    text = json.dumps(record["plan"]).replace(record["id"], "{build}")
    found: dict[str, Any] = json.loads(text)
    return found
