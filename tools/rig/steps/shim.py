# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""``shim-glibc``: shadow headers that let nvcc compile ``<math.h>`` on a new glibc.

Nothing is installed and no system file is touched. A copy of this system's own header,
with exactly the clashing declarations off, lies in a folder that nvcc searches first
(``-I`` in ``NVCC_PREPEND_FLAGS``: that reaches CMake's compiler identification, which
no setting of the project does). Only nvcc sees it; g++ on its own keeps the original.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tools.rig.base import scratch
from tools.rig.base.console import Console
from tools.rig.base.errors import CannotError, StepFailed, quoted
from tools.rig.base.killed import refusal
from tools.rig.base.state import write_json
from tools.rig.diagnose.first_error import first_error
from tools.rig.host import glibc_probe
from tools.rig.host.glibc_probe import Clash, Probe
from tools.rig.steps.proof import refuse_damaged
from tools.rig.steps.shadow import shadow
from tools.rig.steps.trees import LINK_PLACES, Tree, link_for, plain_path, publish

if TYPE_CHECKING:
    from tools.rig.host.compilers import HostCompiler
    from tools.rig.host.cuda import Toolkit

VARIABLE = "NVCC_PREPEND_FLAGS"
ROUNDS = 4
"""Probes with a shim; each but the last may bring up names that an error had hidden."""

_PREFIX = "glibc-"
_RECORD = "shim.json"


@dataclass(frozen=True)
class ShimResult:
    """Whether a shim is needed, where it lies, and what the build's environment gets.

    ``names`` are the functions whose declarations are off; ``include`` is the folder as
    nvcc is told it.
    """

    needed: bool
    include: Path | None
    names: tuple[str, ...]
    env: dict[str, str]
    reason: str


@dataclass
class _Found:
    """What the compiler has named so far: lines by header, and the functions' names."""

    lines: dict[Path, set[int]] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)

    def add(self, clashing: tuple[Clash, ...]) -> bool:
        """Take new clashes in; False when all of them were known."""
        before = (sum(map(len, self.lines.values())), len(self.names))
        for clash in clashing:
            self.lines.setdefault(clash.header, set()).add(clash.line)
            self.names.add(clash.name)
        return before != (sum(map(len, self.lines.values())), len(self.names))


def shim(
    console: Console,
    toolkit: Toolkit,
    compiler: HostCompiler | None,
    env: Mapping[str, str],
    folder: Path,
) -> ShimResult:
    """Probe, and make the shim when this pair of toolkit and glibc needs it.

    Parameters
    ----------
    toolkit, compiler
        The pair that will build.
    env
        The build's environment. What the user has in ``NVCC_PREPEND_FLAGS`` is kept.
    folder
        Where shims are kept, below the state root.

    Raises
    ------
    StepFailed
        When nvcc fails for any other reason, or goes on naming the same functions.
    CannotError
        When nvcc cannot be started, or what the suite brought is damaged.
    """
    theirs = _without_ours(env.get(VARIABLE, ""), folder)
    clean = {k: v for k, v in env.items() if k != VARIABLE}
    if theirs:
        clean[VARIABLE] = theirs
    pair = f"nvcc {toolkit.version}" + (
        f" with {compiler.path.name} {compiler.version}" if compiler else ""
    )
    with scratch.folder("math") as work:
        first = glibc_probe.probe(toolkit, compiler, clean, work)
        if first.ok:
            reason = f"{pair} compiles <math.h> as it is: no shim is needed"
            console.mark("ok", reason)
            stale = theirs != env.get(VARIABLE, "")
            undo = {VARIABLE: theirs} if stale else {}
            return ShimResult(False, None, (), undo, reason)
        _refuse_other(toolkit, compiler, first)
        dirs = glibc_probe.include_dirs(toolkit, compiler, clean, work)
        found = _Found()
        answer = first
        for _ in range(ROUNDS):
            if not found.add(answer.clashing):
                break
            tree = _tree(found, dirs, toolkit, compiler)
            include = _place(folder, tree)
            with_shim = {**clean, VARIABLE: _flags(include, theirs)}
            if not answer.other and _is_proved(folder, tree):
                return _done(console, pair, include, found, theirs, fresh=False)
            answer = glibc_probe.probe(toolkit, compiler, with_shim, work)
            if answer.ok:
                _mark_proved(folder, tree, toolkit, compiler, found)
                return _done(console, pair, include, found, theirs, fresh=True)
            _refuse_other(toolkit, compiler, answer)
    raise StepFailed(
        f"{pair} still rejects <math.h> with the shim in front",
        details=[f"{c.header}:{c.line}: {c.name}" for c in answer.clashing],
        usual="An include folder before the shim brings the system header in.",
        hint=f"unset {VARIABLE} NVCC_APPEND_FLAGS CPATH, and try again",
    )


def _done(
    console: Console,
    pair: str,
    include: Path,
    found: _Found,
    theirs: str,
    *,
    fresh: bool,
) -> ShimResult:
    names = tuple(sorted(found.names))
    headers = ", ".join(sorted(p.name for p in found.lines))
    reason = (
        f"{pair} and this glibc's {headers} disagree on {', '.join(names)}: "
        "those declarations are off for nvcc, in a private copy of the header"
    )
    console.mark("ok", f"{reason} ({'made' if fresh else 'kept'}: {include})")
    return ShimResult(True, include, names, {VARIABLE: _flags(include, theirs)}, reason)


def _refuse_other(
    toolkit: Toolkit, compiler: HostCompiler | None, answer: Probe
) -> None:
    """Raise when nvcc failed for a reason that no shim can mend."""
    lines = answer.other.splitlines()
    if answer.missing:
        refuse_damaged(toolkit, compiler, lines[-3:])
        raise CannotError(
            f"cannot start {toolkit.nvcc}",
            details=lines[-3:],
            hint="invoke cuda-toolkit",
        )
    if answer.timed_out:
        raise StepFailed(
            f"{toolkit.nvcc} did not finish compiling a file that includes <math.h>",
            usual="The toolkit's disk hangs, or the machine is out of memory.",
            hint="invoke doctor",
        )
    if answer.killed:
        work = "compiling a file that only includes <math.h>"
        raise refusal(toolkit.nvcc, work, answer.other)
    if answer.clashing:
        return
    decisive = first_error(lines)
    said = decisive.lines() if decisive else lines[-10:]
    refuse_damaged(toolkit, compiler, said)
    raise StepFailed(
        f"{toolkit.nvcc} cannot compile a file that only includes <math.h>",
        details=said,
        usual="Toolkit and host compiler do not fit, or a header package is missing; "
        "this is no glibc clash.",
        hint="invoke doctor",
    )


def _tree(
    found: _Found,
    dirs: tuple[Path, ...],
    toolkit: Toolkit,
    compiler: HostCompiler | None,
) -> Tree:
    """Compute the shim's files; the name is a hash of all that they depend on."""
    files = {}
    digest = hashlib.sha256()
    for header in sorted(found.lines):
        name = glibc_probe.relative_name(header, dirs)
        if name is None:
            raise StepFailed(
                f"{header} lies in no folder that the host compiler searches",
                details=[str(d) for d in dirs],
                hint="unset CPATH CPLUS_INCLUDE_PATH, and try again",
            )
        try:
            text = header.read_text(encoding="utf-8", errors="surrogateescape")
        except OSError as exc:
            raise StepFailed(
                f"cannot read {header}: {exc.strerror}", hint=f"ls -l {quoted(header)}"
            ) from exc
        files[f"include/{name}"] = shadow(
            text, sorted(found.lines[header]), header, sorted(found.names)
        )
        digest.update(files[f"include/{name}"].encode("utf-8", "surrogateescape"))
    pair = [toolkit.version, str(toolkit.nvcc)]
    pair += [str(compiler.path), compiler.version] if compiler else []
    digest.update("\0".join(pair).encode("utf-8", "surrogateescape"))
    return Tree(_PREFIX + digest.hexdigest()[:16], files)


def _place(folder: Path, tree: Tree) -> Path:
    publish(folder, tree)
    return plain_path(folder) / tree.name / "include"


def _is_proved(folder: Path, tree: Tree) -> bool:
    return (folder / tree.name / _RECORD).is_file()


def _mark_proved(
    folder: Path,
    tree: Tree,
    toolkit: Toolkit,
    compiler: HostCompiler | None,
    found: _Found,
) -> None:
    content = {
        "toolkit": toolkit.version,
        "nvcc": str(toolkit.nvcc),
        "compiler": str(compiler.path) if compiler else None,
        "compiler_version": compiler.version if compiler else None,
        "names": sorted(found.names),
        "headers": {str(h): sorted(n) for h, n in sorted(found.lines.items())},
    }
    write_json(folder / tree.name / _RECORD, content)


def _flags(include: Path, theirs: str) -> str:
    return f"-I{include} {theirs}".strip()


def _without_ours(flags: str, folder: Path) -> str:
    """Take an earlier shim of ours out, so that the probe sees the system as it is."""
    places = [folder, *(link_for(folder, place) for place in LINK_PLACES)]
    tops = tuple(f"-I{top}/{_PREFIX}" for top in places)
    if not any(top in flags for top in tops):
        return flags
    return " ".join(w for w in flags.split() if not w.startswith(tops))
