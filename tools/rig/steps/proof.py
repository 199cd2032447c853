# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The proof of a pair: a kernel compiled for the card, and found in the result."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.rig.base import scratch
from tools.rig.base.errors import StepFailed
from tools.rig.base.killed import refusal, was_killed
from tools.rig.base.run import run
from tools.rig.base.state import StateRoot, write_text
from tools.rig.builds import inventory
from tools.rig.builds.compiler_kit import folder_of
from tools.rig.builds.profile import Profile
from tools.rig.host.compilers import HostCompiler
from tools.rig.host.cubins import read as read_cubins
from tools.rig.host.cuda import Toolkit

KERNEL = """\
__global__ void twice(float *p) { p[threadIdx.x] *= 2; }
"""

_PARTS = (
    *("bin/cudafe++", "bin/ptxas", "bin/fatbinary", "nvvm/bin/cicc", inventory.LIST),
)
"""Files of a toolkit that make another proof when they are others."""

COMPILE_S = 300.0
"""Seconds that the proof kernel may take to compile."""


def prove_once(
    toolkit: Toolkit,
    compiler: HostCompiler,
    profile: Profile,
    root: StateRoot,
    chain: Mapping[str, str],
    env: Mapping[str, str],
) -> None:
    """Compile a kernel for every card of the profile, unless that was done before.

    Parameters
    ----------
    chain
        The variables by which a build finds the pair.
    env
        The user's environment.

    Raises
    ------
    StepFailed
        When the compiler fails, or the result holds no code for a card.
    CannotError
        When that is since a brought toolkit or compiler is damaged.
    """
    proof = root.shims / "proofs" / _name(toolkit, compiler, profile, chain)
    if proof.exists():
        return
    with scratch.folder("proof", root.tmp) as work:
        for sm in profile.sms:
            together = {**env, **chain}
            _prove_one(toolkit, compiler, sm, profile.cxx, work, together)
    write_text(proof, f"{toolkit.describe()}\n{compiler.describe()}\n")


def refuse_damaged(
    toolkit: Toolkit, compiler: HostCompiler | None, said: Sequence[str]
) -> None:
    """Name the damaged half of a pair that does not work, when we brought it.

    Raises
    ------
    CannotError
        See :func:`tools.rig.builds.inventory.refuse_damaged`.
    """
    inventory.refuse_damaged(toolkit.root.resolve(), said)
    if compiler is not None:
        inventory.refuse_damaged(folder_of(compiler), said)


def _name(
    toolkit: Toolkit,
    compiler: HostCompiler,
    profile: Profile,
    chain: Mapping[str, str],
) -> str:
    """Name the proof of a pair: another file, flag or card makes another proof."""
    facts: list[object] = [profile.sms, profile.cxx, sorted(chain.items())]
    parts = [toolkit.root / name for name in _PARTS]
    for file in (toolkit.nvcc, compiler.path, *parts):
        with contextlib.suppress(OSError):
            seen = file.stat()
            facts += [str(file), seen.st_ino, seen.st_size, seen.st_mtime_ns]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _prove_one(
    toolkit: Toolkit,
    compiler: HostCompiler,
    sm: int,
    cxx: int,
    work: Path,
    env: Mapping[str, str],
) -> None:
    source = work / "twice.cu"
    source.write_text(KERNEL)
    made = work / f"twice.sm_{sm}.o"
    answer = run(
        # relative names: nvcc gives them to a shell
        [
            *(toolkit.nvcc, f"-arch=sm_{sm}", f"-std=c++{cxx}"),
            *("-c", source.name, "-o", made.name),
        ],
        env=env,
        cwd=work,
        timeout=COMPILE_S,
    )
    if was_killed(answer):
        doing = f"compiling a kernel for sm_{sm}"
        raise refusal(toolkit.nvcc, doing, answer.out + answer.err)
    if not answer.ok:
        said = (answer.out + answer.err).splitlines()[:20]
        refuse_damaged(toolkit, compiler, said)
        raise StepFailed(
            f"nvcc {toolkit.version} cannot compile a kernel for sm_{sm}",
            details=said,
            hint="invoke doctor --only compiler",
        )
    content = read_cubins(made, toolkit.cuobjdump)
    if sm not in content.sass:
        refuse_damaged(toolkit, compiler, [content.problem] if content.problem else [])
        raise StepFailed(
            f"the compiled kernel holds no sm_{sm} code",
            details=[content.problem or f"it holds {content.sass or 'none'}"],
            hint="invoke doctor --only compiler",
        )
