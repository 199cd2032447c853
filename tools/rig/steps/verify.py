# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Proves a build: machine code for the card in every library, nothing missing, imports.

An install that ends with status 0 proves nothing: the fork's editable install leaves
out two of its packages and still succeeds, and a library that was built for another
card is found out only when its first kernel is started.
"""

from __future__ import annotations

import dataclasses
import os
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from tools.rig.base import scratch
from tools.rig.base.console import Console, size, table
from tools.rig.base.errors import StepFailed, quoted
from tools.rig.builds import installed, smoke, verdicts
from tools.rig.builds import wheel as wheels
from tools.rig.builds.installed import Found, Site
from tools.rig.builds.profile import Profile
from tools.rig.builds.verdicts import ImportVerdict, LibraryVerdict, VerifyReport
from tools.rig.host import cubins, linkage

_SIGN = {"ok": "ok", "not checkable here": "skip", "fail": "fail"}


def verify(
    console: Console,
    *,
    python: Path,
    profile: Profile,
    cuobjdump: Path,
    checkout: Path | None,
    wheel: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> VerifyReport:
    """Look at every library of the target, and import its modules.

    Parameters
    ----------
    python
        The environment's interpreter.
    profile
        What must be there.
    cuobjdump
        Of the toolkit that built it, or of a newer one.
    checkout
        The source tree; only asked where a missing library might have stayed.
    wheel
        Look into this file instead: its libraries are listed, and nothing of it is
        imported, since what it needs may not be installed.
    env
        Environment of the processes; our own when None.

    Raises
    ------
    StepFailed
        When the interpreter does not answer or the wheel cannot be read.
    """
    env = dict(os.environ) if env is None else env
    if wheel is not None:
        report = _of_wheel(wheel, profile, cuobjdump)
    else:
        report = _of_environment(console, python, profile, cuobjdump, checkout, env)
    show(console, report)
    return report


def failure(report: VerifyReport, note: str = "") -> StepFailed:
    """Return the error for a report that is not ``ok``, with a word on what follows."""
    problems = report.problems()
    seen = f"{len(problems)} thing(s) wrong in {len(report.libraries)} libraries."
    return StepFailed(
        f"{report.place} does not hold what profile {report.profile} asks for",
        details=problems,
        usual=f"{seen} {note}".strip(),
        hint="invoke build-sm70",
    )


def show(console: Console, report: VerifyReport) -> None:
    """Print the table of libraries, and a line for each thing wrong or not seen."""
    rows = [
        (lib.name, size(lib.size), _codes(lib), lib.verdict, lib.links)
        for lib in report.libraries
    ]
    head = ("library", "size", "GPU code", "verdict", "loads")
    for line in table(head, rows):
        console.say(line)
    for made in report.imports:
        console.mark(
            _SIGN[made.verdict],
            f"import {made.module} {made.detail or made.file}".rstrip(),
        )
    for line in report.problems():
        console.mark("fail", line)
    for line in report.unchecked():
        console.mark("skip", f"not checkable here: {line}")


def _of_environment(
    console: Console,
    python: Path,
    profile: Profile,
    cuobjdump: Path,
    checkout: Path | None,
    env: Mapping[str, str],
) -> VerifyReport:
    site = installed.site_of(python, env)
    patterns = [p for wish in profile.libraries for p in wish.split("|")]
    found = installed.libraries(site, profile.modules, patterns)
    process = _process(python, site, env)
    judged = []
    for lib in found:
        console.live(f"listing {lib.name}")
        judged.append(_judge(lib, profile, cuobjdump, process))
    console.clear()
    judged += _missing(profile, [lib.name for lib in found], checkout)
    imports = []
    for module in profile.modules:
        console.live(f"importing {module}")
        made = smoke.try_import(python, module, env)
        imports.append(_placed(made, installed.package(site, module)))
    console.clear()
    return VerifyReport(
        place=os.fspath(python.parent.parent),
        profile=profile.name,
        sms=profile.sms,
        libraries=tuple(judged),
        imports=tuple(imports),
    )


def _of_wheel(wheel: Path, profile: Profile, cuobjdump: Path) -> VerifyReport:
    try:
        with (
            scratch.folder("wheel") as folder,
            zipfile.ZipFile(wheel) as archive,
        ):
            found = []
            for member in archive.namelist():
                if installed.is_shared_object(member):
                    path = Path(archive.extract(member, folder))
                    found.append(Found(_without_data_folder(member), path))
            # the unpacked copies are gone in a moment: the wheel is where it is found
            judged = [
                dataclasses.replace(
                    _judge(lib, profile, cuobjdump, None), path=os.fspath(wheel)
                )
                for lib in found
            ]
    except (OSError, *wheels.BROKEN) as exc:
        raise StepFailed(
            f"cannot read {wheel}: {exc}",
            usual="The file was cut short, is no wheel, or TMPDIR is full.",
            hint=f"ls -l {quoted(wheel)}",
        ) from exc
    judged += _missing(profile, [lib.name for lib in found], None)
    return VerifyReport(
        place=os.fspath(wheel),
        profile=profile.name,
        sms=profile.sms,
        libraries=tuple(judged),
        imports=(),
    )


def _judge(
    lib: Found, profile: Profile, cuobjdump: Path, process: linkage.Process | None
) -> LibraryVerdict:
    content = cubins.read(lib.path, cuobjdump)
    verdict, detail = verdicts.judge(
        lib.name, content, profile.sms, profile.no_device_code
    )
    links, links_detail = "not checked", ""
    if not lib.path.is_file():
        verdict, detail = "missing", "is recorded as installed, and is not there"
    elif process is not None:
        links, links_detail = verdicts.judge_links(linkage.check(lib.path, process))
    return LibraryVerdict(
        name=lib.name,
        path=os.fspath(lib.path),
        size=lib.path.stat().st_size if lib.path.is_file() else 0,
        sms=content.sass,
        cubins=content.cubins,
        ptx=content.ptx,
        verdict=verdict,
        detail=detail,
        links=links,
        links_detail=links_detail,
    )


def _missing(
    profile: Profile, names: Iterable[str], checkout: Path | None
) -> list[LibraryVerdict]:
    """Return a verdict for each expected library that was not found."""
    there = list(names)
    lost = []
    for wish in profile.libraries:
        patterns = wish.split("|")
        if any(verdicts.matches(name, p) for name in there for p in patterns):
            continue
        detail = "is not installed"
        left = _left_behind(patterns, checkout)
        if left is not None:
            detail += f", although it was built: {left}"
        lost.append(LibraryVerdict(wish, "", 0, (), 0, (), "missing", detail))
    return lost


def _left_behind(patterns: Iterable[str], checkout: Path | None) -> Path | None:
    if checkout is None:
        return None
    for pattern in patterns:
        for place in (pattern, f"*/{pattern}"):
            for path in sorted(checkout.glob(place)):
                return path
    return None


def _process(python: Path, site: Site, env: Mapping[str, str]) -> linkage.Process:
    folders: list[Path] = []
    preloaded: list[Path] = []
    for root in site.sites:
        folders += [root / "torch/lib", *sorted(root.glob("nvidia/*/lib"))]
        folders += sorted(root.glob("*.libs"))
        # torch loads this one for all to see, and with it CUDA's own libraries
        preloaded += root.glob("torch/lib/libtorch_global_deps.so")
    return linkage.Process(
        exe=python,
        preloaded=tuple(preloaded),
        folders=tuple(folders),
        cache=linkage.loader_cache(env),
        search=env.get("LD_LIBRARY_PATH", ""),
    )


def _placed(made: ImportVerdict, place: Path | None) -> ImportVerdict:
    """Refuse an import from elsewhere than where its libraries were listed."""
    if made.verdict != "ok" or place is None:
        return made
    real, want = os.path.realpath(made.file), os.path.realpath(place)
    if real == want or real.startswith(want + os.sep):
        return made
    detail = f"came from {made.file}, not from {place}"
    return ImportVerdict(made.module, "fail", made.file, detail)


def _without_data_folder(member: str) -> str:
    """Return the place after the install: ``x.data/platlib/a.so`` becomes ``a.so``."""
    head, _, rest = member.partition("/")
    scheme, _, below = rest.partition("/")
    data = head.endswith(".data") and scheme in ("platlib", "purelib")
    return below if data else member


def _codes(lib: LibraryVerdict) -> str:
    parts = [verdicts.names_of(lib.sms)] if lib.sms else []
    parts += [f"PTX {verdicts.names_of(lib.ptx)}"] if lib.ptx else []
    return " + ".join(parts) or "-"
