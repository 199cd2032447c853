# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Every CUDA toolkit on this machine, and what each can compile for."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import regex as re

from tools.rig.base.run import Result, run
from tools.rig.host import nvcc_flags

PROBE_S = 20.0
"""Seconds that an nvcc may take to answer; a toolkit on a stuck mount hangs."""

_RELEASE = re.compile(r"release (\d+\.\d+), V(\d+\.\d+\.\d+)")
_SM = re.compile(r"^sm_(\d+)$", re.MULTILINE)
_TOP = re.compile(r"^#\$ TOP=(.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Toolkit:
    """One CUDA toolkit.

    ``version`` is nvcc's own, like ``12.4.131``, empty when unknown. ``sms`` are the
    real architectures that nvcc lists (70 for sm_70), empty when unknown. ``origin``
    says how it was found, ``problem`` why it cannot be used.
    """

    root: Path
    nvcc: Path
    version: str
    sms: tuple[int, ...]
    origin: str
    problem: str = ""

    @property
    def release(self) -> str:
        """Major and minor version, like ``12.4``."""
        return ".".join(self.version.split(".")[:2])

    @property
    def cuobjdump(self) -> Path:
        """The disassembler that lists the code inside a library."""
        beside = self.nvcc.with_name("cuobjdump")
        return beside if beside.exists() else self.root / "bin" / "cuobjdump"

    def can(self, sm: int) -> bool:
        """Say whether nvcc can emit code for `sm` (70 means sm_70)."""
        return not self.problem and sm in self.sms

    def describe(self) -> str:
        """Return one line: version, place, range of architectures or the problem."""
        if self.problem:
            return f"{self.root} ({self.origin}): {self.problem}"
        span = f"sm_{self.sms[0]} to sm_{self.sms[-1]}"
        return f"CUDA {self.version} in {self.root} ({self.origin}): {span}"


def probe(root: Path, origin: str, *, timeout: float = PROBE_S) -> Toolkit:
    """Ask the nvcc below `root` for its version and architectures.

    Parameters
    ----------
    root
        A toolkit folder, the one that ``CUDA_HOME`` would name.
    origin
        How it was found.
    timeout
        Seconds for each question.

    Returns
    -------
    Toolkit
        With ``problem`` set when there is no nvcc, or it hangs, fails or talks
        nonsense.
    """
    nvcc = root / "bin" / "nvcc"
    if not root.is_dir():
        return Toolkit(root, nvcc, "", (), origin, "the folder does not exist")
    if not os.access(nvcc, os.X_OK):
        return Toolkit(root, nvcc, "", (), origin, "holds no bin/nvcc")
    # options of the user's for compiles are judged by themselves
    env = nvcc_flags.without(os.environ)
    answer = run([nvcc, "--version"], env=env, timeout=timeout)
    if answer.timed_out:
        problem = f"nvcc did not answer within {timeout:.0f} s"
        return Toolkit(root, nvcc, "", (), origin, problem)
    found = _RELEASE.search(answer.out)
    if not answer.ok or not found:
        why = f"nvcc does not say its version (status {answer.code})"
        problem = why + _said(answer)
        return Toolkit(root, nvcc, "", (), origin, problem)
    codes = run([nvcc, "--list-gpu-code"], env=env, timeout=timeout)
    sms = tuple(sorted({int(n) for n in _SM.findall(codes.out)}))
    if codes.timed_out:
        problem = f"nvcc did not answer within {timeout:.0f} s"
    else:
        problem = "" if sms else "nvcc does not list its architectures" + _said(codes)
    return Toolkit(root, nvcc, found[2], sms, origin, problem)


def _said(answer: Result) -> str:
    """Return nvcc's own last words, to be put behind a problem."""
    last = (answer.out + answer.err).strip().splitlines()[-1:]
    return f": {last[0][:120]}" if last else ""


def find(
    env: Mapping[str, str],
    provisioned: Path | None = None,
    *,
    system: Path = Path("/"),
    timeout: float = PROBE_S,
) -> list[Toolkit]:
    """Return every toolkit on this machine, those that a user expects first in front.

    ``CUDA_HOME`` comes first, also when it is broken: a user who set it must hear about
    it.

    Parameters
    ----------
    env
        The environment: ``CUDA_HOME``, ``CUDA_PATH`` and ``PATH`` are read.
    provisioned
        The folder below which the suite keeps its own toolkits.
    system
        The root below which the usual places are looked at.
    timeout
        Seconds for each question to each nvcc.
    """
    seen: set[Path] = set()
    found = []
    for root, origin in _candidates(env, provisioned, system, timeout):
        nvcc = root / "bin" / "nvcc"
        key = nvcc.resolve() if nvcc.exists() else root
        if key in seen:
            continue
        seen.add(key)
        found.append(probe(root, origin, timeout=timeout))
    return found


def _candidates(
    env: Mapping[str, str], provisioned: Path | None, system: Path, timeout: float
) -> Iterable[tuple[Path, str]]:
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if env.get(name):
            yield Path(env[name]).absolute(), name
    on_path = shutil.which("nvcc", path=env.get("PATH", os.defpath))
    if on_path:
        top = toolkit_of(Path(on_path).absolute(), timeout=timeout, system=system)
        yield top, "package" if top == system / "usr" else "PATH"
    for root in sorted((system / "usr/local").glob("cuda*"), reverse=True):
        if (root / "bin" / "nvcc").exists():
            yield root.resolve(), "/usr/local"
    for root in (system / "opt/cuda", system / "usr"):
        if (root / "bin" / "nvcc").exists():
            yield root, "package"
    if provisioned and provisioned.is_dir():
        for root in sorted(provisioned.iterdir(), reverse=True):
            if (root / "bin" / "nvcc").exists():
                yield root, "provisioned"


def toolkit_of(
    nvcc: Path, *, timeout: float = PROBE_S, system: Path = Path("/")
) -> Path:
    """Return the toolkit folder of an nvcc found on PATH.

    A distribution's ``/usr/bin/nvcc`` and many a ``/usr/local/bin/nvcc`` are scripts
    that start the real one elsewhere; a dry run names the place. Falls back to the
    folder above ``bin``.
    """
    real = nvcc.resolve()
    plain = real.parent.parent
    try:
        with real.open("rb") as fh:
            is_script = fh.read(2) == b"#!"
    except OSError:
        return plain
    if not is_script or plain == system / "usr":
        return plain
    env = nvcc_flags.without(os.environ)
    answer = run([nvcc, "--dryrun", "-x", "cu", "/dev/null"], env=env, timeout=timeout)
    top = _TOP.search(answer.err + answer.out)
    root = Path(os.path.normpath(top[1])) if top else plain
    return root if (root / "bin" / "nvcc").exists() else plain
