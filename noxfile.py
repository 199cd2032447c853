# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Pipelines: each session chains Invoke tasks or tools, and holds no logic of its own.

``tools/nox -l`` lists them; ``tools/nox`` brings nox itself.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2025.2"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = ["tests"]
nox.options.error_on_external_run = True
nox.options.envdir = os.environ.get("RIG_NOX_ENVDIR") or str(
    Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "1cat-rig/nox"
)

ROOT = Path(__file__).parent
LOCKS = ROOT / "tools" / "rig" / "requirements"
PATHS = ["tools/rig", "tests/rig", "benchmarks/rig", "tasks.py", "noxfile.py"]
PYTEST = ["-c", "setup.cfg", "--rootdir", ".", "--confcutdir", "tests/rig"]
STOP_S = 30
"""Seconds that an interrupted step may take to stop everything below it."""


def invoke(session: nox.Session, *words: str) -> None:
    """Run one Invoke task with the Python that runs nox, where the caller stands."""
    with session.chdir(os.environ.get("RIG_CWD") or Path.cwd()):
        session.run(
            sys.executable,
            "-m",
            "invoke",
            "--search-root",
            str(ROOT),
            *words,
            external=True,
            env={"RIG_PARENT": _above()},
            # stdout is data: nox would mix the two
            stderr=sys.stderr,
            interrupt_timeout=STOP_S,
            terminate_timeout=STOP_S,
        )


def _above() -> str:
    """Name who waits for a step: nox, and the script that started nox, if one did."""
    script = os.environ.get("RIG_PARENT", "")
    return ",".join(filter(None, [script, str(os.getpid())]))


@atexit.register
def _settle() -> None:
    """Drop what a closed or full stream did not take: it would end Python in 120."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, stream.fileno())
                os.close(null)


def shared_words(words: list[str], *names: str) -> list[str]:
    """Return the options in `words` that a preparing task knows, with their values."""
    found = []
    for at, word in enumerate(words):
        name, sep, _ = word.partition("=")
        if name in names:
            found.append(word)
            if not sep and at + 1 < len(words):
                found.append(words[at + 1])
    return found


def _at_hand() -> dict[str, str]:
    """Return the lowest and the highest Python here that the suite is made for."""
    homes = [Path.home() / ".pyenv" / "versions", Path("/usr")]
    found = {}
    for minor in range(10, 15):
        places = [*homes[0].glob(f"3.{minor}.*"), homes[1]]
        here = [p / "bin" / f"python3.{minor}" for p in places]
        real = [p for p in here if p.exists()]
        if real:
            found[minor] = str(real[0])
    ours = sys.version_info.minor
    found.setdefault(ours, sys.executable)
    return {f"3.{minor}": found[minor] for minor in (min(found), max(found))}


@nox.session(venv_backend="none")
def rebuild(session: nox.Session) -> None:
    """Doctor, then a generation; arguments go to `invoke build-sm70 --wheel`."""
    words = list(session.posargs)
    if not {"-h", "--help"} & set(words):
        invoke(session, "doctor", *shared_words(words, "--source", "--profile"))
    invoke(session, "build-sm70", "--wheel", *session.posargs)


@nox.session(venv_backend="none", default=False)
def task(session: nox.Session) -> None:
    """Run one Invoke task with the tools that tools/nox brought: `-- builds --json`."""
    invoke(session, *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """Unit and real tests with branch coverage; arguments go to pytest."""
    _install(session, "tests")
    session.env["COVERAGE_RCFILE"] = "setup.cfg"
    # not in create_tmp(): that sets TMPDIR to where no other user may look
    session.env["COVERAGE_FILE"] = str(Path(session.virtualenv.location) / "coverage")
    words = session.posargs or ["-m", "not e2e and not long", "tests/rig"]
    session.run("coverage", "run", "-m", "pytest", *PYTEST, *words)
    session.run("coverage", "combine")
    floor = [] if session.posargs else ["--fail-under=90"]
    session.run("coverage", "report", *floor)


def unit(session: nox.Session) -> None:
    """Run the unit tests alone: seconds, no real process."""
    _pytest(session, ["tests/rig/unit"])


for _name, _python in _at_hand().items():
    nox.session(name=f"unit-{_name}", python=_python)(unit)
nox.session(name="unit")(unit)


@nox.session
def e2e(session: nox.Session) -> None:
    """Whole pipelines as a user types them, also in a fresh Debian 13 tree."""
    _pytest(session, ["-m", "e2e and not long", "tests/rig/e2e"])


@nox.session
def lint(session: nox.Session) -> None:
    """Format, rules, types, shell scripts and workflows."""
    _install(session, "lint")
    config = ["--config", "tools/rig/ruff.toml"]
    session.run("ruff", "format", "--check", *config, *PATHS)
    session.run("ruff", "check", *config, *PATHS)
    session.run("mypy", "--config-file", "setup.cfg")
    session.run("shellcheck", "tools/nox", "tools/rebuild-sm70-v100.sh", ".ci/run")
    flows = sorted(str(p) for p in (ROOT / ".github/workflows").glob("rig-*.yml"))
    schema = ["--builtin-schema", "vendor.github-workflows"]
    session.run("check-jsonschema", *schema, *flows)
    session.run("zizmor", "--offline", "--quiet", *flows)


@nox.session(venv_backend="none")
def lock(session: nox.Session) -> None:
    """Make the hashed lock files anew from the hand-written floors."""
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or "uv"
    for name in ("tasks", "tests", "lint", "report"):
        session.run(
            uv,
            "pip",
            "compile",
            "--quiet",
            "--universal",
            "--python-version=3.10",
            "--generate-hashes",
            "--no-annotate",
            "--custom-compile-command=nox -s lock",
            str(LOCKS / f"{name}.in"),
            f"--output-file={LOCKS / f'{name}.txt'}",
            external=True,
        )


def _install(session: nox.Session, name: str) -> None:
    session.install("--require-hashes", "--requirement", str(LOCKS / f"{name}.txt"))


def _pytest(session: nox.Session, words: list[str]) -> None:
    _install(session, "tests")
    session.run("python", "-m", "pytest", *PYTEST, *(session.posargs or words))
