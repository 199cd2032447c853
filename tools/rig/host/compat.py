# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What fits together: toolkits, drivers, host compilers, glibc and torch wheels.

The tables are ``tools/rig/data/compatibility.json``; each row there names its source.
This module only looks things up, so that a new toolkit is a new row and not a new
branch. What the tables do not say is ``None``, never a guess.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import regex as re

TABLES = Path(__file__).resolve().parent.parent / "data" / "compatibility.json"

Version = tuple[int, ...]
_NUMBERS = re.compile(r"\d+(?:\.\d+)*")


@functools.lru_cache(maxsize=1)
def tables() -> dict[str, Any]:
    """Return all tables as they are in the data file, read once."""
    data: dict[str, Any] = json.loads(TABLES.read_text(encoding="utf-8"))
    return data


def version(text: str) -> Version:
    """Return the leading numbers of a version, for comparing: ``(12, 4)`` for ``12.4``.

    Text without a number gives an empty tuple, which is below every version.
    """
    found = _NUMBERS.match(text.strip())
    return tuple(int(n) for n in found[0].split(".")) if found else ()


def release(text: str) -> str:
    """Return major and minor version only: ``12.4`` for ``12.4.131``."""
    return ".".join(text.split(".")[:2])


def toolkit_row(release_: str) -> dict[str, Any] | None:
    """Return the row of a CUDA release, or None for one that is not in the table.

    Parameters
    ----------
    release_
        Major and minor version, like ``12.4``; a patch level is ignored. 12.7 was never
        published as a toolkit and has no row.
    """
    wanted = release(release_)
    for row in tables()["A_cuda"]["toolkits"]:
        if row["cuda"] == wanted and row["released"]:
            found: dict[str, Any] = row
            return found
    return None


def gcc_max(release_: str) -> int | None:
    """Return the newest gcc major version that ``host_config.h`` accepts."""
    return _number(release_, "host_gcc_max")


def clang_max(release_: str) -> int | None:
    """Return the newest clang major version that ``host_config.h`` accepts."""
    return _number(release_, "host_clang_max")


def driver_min(release_: str) -> str | None:
    """Return the oldest Linux driver on which programs of a release run.

    This is minor-version compatibility (CUDA 13.1 release notes, section 2.2). There is
    no newest driver: the ``<580`` in NVIDIA's table bounds that mode only, and a newer
    driver runs older programs.
    """
    row = toolkit_row(release_)
    return row["driver_min_minor_compat_linux"] if row else None


def driver_bundled(release_: str) -> str | None:
    """Return the driver that the first release of a toolkit came with, or None.

    From this one on, PTX that the toolkit makes at run time (Triton, torch.compile) can
    be compiled by the driver too; minor-version compatibility does not promise that.
    """
    row = toolkit_row(release_)
    return row["driver_bundled_linux"].get("GA") if row else None


def glibc_clashes(glibc: str, release_: str) -> tuple[str, ...]:
    """Return the functions that glibc's and a toolkit's headers declare differently.

    Parameters
    ----------
    glibc
        Version of the C library's headers, like ``2.41``.
    release_
        CUDA release, like ``12.8``.

    Returns
    -------
    tuple of str
        Empty when the pair is clean; sorted otherwise. No toolkit that can target Volta
        is clean from glibc 2.41 on: the first fix is in 13.0.
    """
    names: set[str] = set()
    if not version(glibc) or not version(release_):
        return ()
    for row in tables()["A_cuda"]["glibc_conflicts"]:
        if version(glibc) >= version(row["glibc"]) and version(release_) < version(
            row["fixed_in"]
        ):
            names.update(row["symbols"])
    return tuple(sorted(names))


def torch_variants(torch: str) -> list[dict[str, Any]]:
    """Return the rows of the wheels of a torch release (``2.10.0`` or ``2.10``)."""
    wanted = release(torch)
    return [row for row in tables()["B_pytorch_wheels"] if row["torch"] == wanted]


def torch_has_sm(torch: str, variant: str, sm: int) -> bool | None:
    """Say whether a torch wheel holds code that runs on `sm`.

    Parameters
    ----------
    torch
        Version, like ``2.10.0``.
    variant
        Like ``cu128``.
    sm
        70 means sm_70. Code for an older minor of the same major version counts, and so
        does PTX of an older one.

    Returns
    -------
    bool or None
        None when the table does not say.
    """
    for row in torch_variants(torch):
        if row["variant"] == variant:
            if row["arch_list"]:
                return any(_runs_on(word, sm) for word in row["arch_list"].split())
            known = row.get(f"sm_{sm}")
            return known if isinstance(known, bool) else None
    return None


def torch_variants_with(torch: str, sm: int) -> list[str]:
    """Return the variants of a torch release that are known to hold code for `sm`."""
    names = [row["variant"] for row in torch_variants(torch)]
    return [name for name in names if torch_has_sm(torch, name, sm)]


def volta() -> dict[str, Any]:
    """Return what bounds a Volta card: driver branch, toolkit, cuDNN, kernel module.

    Source: NVIDIA's deprecation notices and CUDA 13.0's ptxas; see the row itself.
    """
    found: dict[str, Any] = tables()["A_cuda"]["volta"]
    return found


def is_volta(sm: int) -> bool:
    """Say whether `sm` is of the Volta generation (sm_70, sm_72) or older."""
    return bool(sm <= volta()["sm_max"])


def obsolete_variables() -> dict[str, dict[str, Any]]:
    """Return ``VLLM_*`` variables that do nothing any more, and what replaces them."""
    found: dict[str, dict[str, Any]] = tables()["C_environment"][
        "obsolete_vllm_variables"
    ]
    return found


def package(what: str, family: str) -> str:
    """Return the distribution package that brings a program, or the program's own name.

    Parameters
    ----------
    what
        A key of the table, like ``g++``.
    family
        ``debian`` or ``rhel``; any other family gets Debian's name.
    """
    names = tables()["D_programs"]["packages"].get(what, {})
    return str(names.get(family) or names.get("debian") or what)


def _number(release_: str, key: str) -> int | None:
    row = toolkit_row(release_)
    return int(row[key]) if row else None


def _runs_on(word: str, sm: int) -> bool:
    arch, _, ptx = word.partition("+")
    major, _, minor = arch.partition(".")
    code = int(major) * 10 + int(minor)
    same_major = code // 10 == sm // 10 and code <= sm
    return same_major or (ptx == "PTX" and code <= sm)
