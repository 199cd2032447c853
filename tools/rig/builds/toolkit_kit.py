# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Lays packages and wheels out as one CUDA toolkit folder.

The result has the layout of NVIDIA's own installer (bin, nvvm, include, lib64), since
CMake, torch and nvcc itself look for that one. It is made beside its final place and
renamed, so that a broken download never leaves half a toolkit behind.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.rig.base.errors import StepFailed
from tools.rig.base.run import run
from tools.rig.base.state import StateRoot, write_json, write_text
from tools.rig.builds import inventory
from tools.rig.builds.private_apt import PrivateApt, machine_archive, unpack
from tools.rig.builds.uv import environment as uv_environment
from tools.rig.builds.workbench import publish, workbench

RECIPES = Path(__file__).parent.parent / "data" / "provision.json"

WHEELS_S = 900.0
"""Seconds that the download of the header wheels may take."""

TOOL_S = 60.0
"""Seconds that the assembler or the archiver may take for an empty file."""

_PROFILE = """\
TOP              = $(_HERE_)/..
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice
LD_LIBRARY_PATH += $(TOP)/lib64:
PATH            += $(TOP)/nvvm/bin:$(_HERE_):
INCLUDES        +=  "-I$(TOP)/include" $(_SPACE_)
LIBRARIES        =+ $(_SPACE_) "-L$(TOP)/lib64/stubs" "-L$(TOP)/lib64"
"""

NEEDED = (
    "bin/nvcc",
    "bin/nvcc.profile",
    "bin/cudafe++",
    "bin/ptxas",
    "bin/fatbinary",
    "bin/nvlink",
    "bin/cuobjdump",
    "bin/crt/link.stub",
    "nvvm/bin/cicc",
    "nvvm/libdevice/libdevice.10.bc",
    "include/cuda_runtime.h",
    "include/crt/host_config.h",
)
"""What nvcc compiles nothing without."""

# static libraries that a build of torch extensions never links: 2.3 of 2.6 GB
_NOT_NEEDED = (
    "*cublas*_static.a",
    "*cufft*_static*.a",
    "*cusparse_static.a",
    "*cusolver*_static.a",
    "*curand_static.a",
    "*npp*_static.a",
    "*nvrtc*_static.a",
    "*nvJitLink_static.a",
    "*nvptxcompiler_static.a",
    "*nvjpeg_static.a",
    "*metis_static.a",
)


@dataclass(frozen=True)
class Recipe:
    """What brings one toolkit: a suite of a distribution, its packages and wheels."""

    distribution: str
    suite: str
    component: str
    release: str
    parts: str
    packages: tuple[str, ...]
    wheels: tuple[str, ...]
    bytes: int

    @property
    def folder_name(self) -> str:
        """Name of the toolkit's folder below the toolkits of the state root."""
        return f"cuda-{self.release}" + ("" if self.parts == "full" else "-compiler")


def recipes(distribution: str, parts: str) -> list[Recipe]:
    """Return the recipes that a machine of `distribution` can follow, newest first.

    Parameters
    ----------
    distribution
        ``debian`` or ``ubuntu``, after ``ID`` or ``ID_LIKE`` of os-release.
    parts
        ``compiler`` (nvcc, headers, cudart) or ``full`` (what torch extensions need).
    """
    found = []
    for entry in json.loads(RECIPES.read_text(encoding="utf-8"))["recipes"]:
        if entry["distribution"] == distribution and parts in entry:
            part: Mapping[str, Any] = entry[parts]
            found.append(
                Recipe(
                    distribution,
                    entry["suite"],
                    entry["component"],
                    entry["release"],
                    parts,
                    tuple(part["packages"]),
                    tuple(part["wheels"]),
                    int(part["bytes"]),
                )
            )
    return sorted(found, key=lambda r: [int(n) for n in r.release.split(".")])[::-1]


def provision(
    recipe: Recipe,
    toolkits: Path,
    env: Mapping[str, str],
    *,
    mirror: str | None = None,
    uv: Sequence[str | Path] = ("uv",),
) -> Path:
    """Bring a toolkit below `toolkits` and return its folder.

    A folder of the same name that the suite made earlier is returned as it is, unless
    it is damaged: then it is made anew beside and switched by rename.

    Parameters
    ----------
    recipe
        What to bring.
    toolkits
        The state root's folder for toolkits.
    env
        The environment of apt-get and uv (proxies, mirrors).
    mirror
        A distribution mirror that replaces the machine's own.
    uv
        The command that runs uv.

    Raises
    ------
    StepFailed
        When a download or unpacking fails; what was fetched stays for the next try.
    CannotError
        When this machine has no mirror or no signing keys, or a damaged toolkit lies
        where we may not write.
    InUseError
        When another run is bringing something and does not end.
    """
    final = toolkits / recipe.folder_name
    if _is_whole(final):
        return final
    inventory.refuse(final, damage(final))
    with workbench(toolkits, recipe.folder_name) as work:
        # another run may have brought it while this one waited
        if not _is_whole(final):
            _make(recipe, toolkits, env, mirror, uv, work, final)
    return final


def damage(root: Path) -> str:
    """Say what is wrong with a toolkit that the suite brought, or nothing."""
    return inventory.damage(root, NEEDED)


def _is_whole(final: Path) -> bool:
    return inventory.is_ours(final) and not damage(final)


def _make(
    recipe: Recipe,
    toolkits: Path,
    env: Mapping[str, str],
    mirror: str | None,
    uv: Sequence[str | Path],
    work: Path,
    final: Path,
) -> None:
    archive = machine_archive(
        recipe.distribution, recipe.suite, recipe.component, mirror
    )
    apt = PrivateApt(toolkits / "downloads" / recipe.suite, [archive], env)
    apt.update()
    debs = apt.download(recipe.packages)
    tree, wheels, kit = work / "tree", work / "wheels", work / "kit"
    for deb in debs:
        unpack(deb, tree, exclude=_NOT_NEEDED)
    if recipe.wheels:
        with_cache = uv_environment(env, StateRoot(toolkits.parent))
        _fetch_wheels(recipe.wheels, wheels, with_cache, uv)
    _lay_out(tree, wheels, kit)
    write_json(
        kit / inventory.RECORD,
        {
            "release": recipe.release,
            "parts": recipe.parts,
            "suite": f"{recipe.distribution} {recipe.suite}",
            "packages": [deb.name for deb in debs],
            "wheels": list(recipe.wheels),
        },
    )
    inventory.seal(kit)
    inventory.set_aside(final, work)
    publish(kit, final)
    for deb in debs:
        deb.unlink(missing_ok=True)


def _fetch_wheels(
    wheels: Sequence[str],
    target: Path,
    env: Mapping[str, str],
    uv: Sequence[str | Path],
) -> None:
    argv = [*uv, "pip", "install", "--quiet", "--no-deps", "--target", target]
    argv += ["--python", sys.executable, *wheels]
    answer = run(argv, env=env, timeout=WHEELS_S)
    if not answer.ok:
        raise StepFailed(
            f"the headers of the toolkit ({', '.join(wheels)}) could not be fetched",
            details=answer.err.splitlines()[-6:],
            usual="Usually the package index cannot be reached, or the disk is full.",
            hint="check the network and proxy, then run the command again",
        )


def _lay_out(tree: Path, wheels: Path, kit: Path) -> None:
    """Move the files of unpacked packages and wheels to where a toolkit has them."""
    usr = tree / "usr"
    inner = usr / "lib" / "nvidia-cuda-toolkit"
    for folder in ("bin", "nvvm/bin", "nvvm/libdevice", "include", "lib64/stubs"):
        (kit / folder).mkdir(parents=True)
    for file in sorted((usr / "bin").iterdir()):
        # the scripts there only start the real programs, by absolute paths
        if not file.is_symlink() and file.name not in ("nvcc", "cicc"):
            shutil.move(file, kit / "bin" / file.name)
    shutil.move(inner / "bin" / "nvcc", kit / "bin" / "nvcc")
    shutil.move(inner / "bin" / "crt", kit / "bin" / "crt")
    shutil.move(inner / "bin" / "cicc", kit / "nvvm" / "bin" / "cicc")
    for file in (inner / "libdevice").iterdir():
        shutil.move(file, kit / "nvvm" / "libdevice" / file.name)
    write_text(kit / "bin" / "nvcc.profile", _PROFILE)
    _merge(usr / "include", kit / "include")
    for libs in sorted((usr / "lib").glob("*-linux-gnu")):
        _libraries(libs, kit / "lib64")
    if wheels.is_dir():
        for part in sorted((wheels / "nvidia").iterdir()):
            _merge(part / "include", kit / "include")
            if (part / "lib").is_dir():
                _libraries(part / "lib", kit / "lib64")
    lib64 = kit / "lib64"
    for link in lib64.glob("lib*.so.*"):
        plain = lib64 / (link.name.partition(".so")[0] + ".so")
        if not plain.exists() and not plain.is_symlink():
            plain.symlink_to(link.name)
    _stand_ins(lib64)


def _stand_ins(lib64: Path) -> None:
    """Fill the places of two static archives that no wheel carries.

    nvcc links both into every program. An empty device runtime serves whoever uses no
    dynamic parallelism; the static cudart becomes a linker script for the shared one.
    """
    devrt, static = lib64 / "libcudadevrt.a", lib64 / "libcudart_static.a"
    if not devrt.exists():
        empty = lib64 / "empty.o"
        # nvlink warns at each link of an archive without any object; where there is no
        # assembler yet, an empty one links all the same
        made = run(["as", "-o", empty, "/dev/null"], timeout=TOOL_S).ok
        made = made and run(["ar", "rcs", devrt, empty], timeout=TOOL_S).ok
        empty.unlink(missing_ok=True)
        if not made:
            write_text(devrt, "!<arch>\n")
    if not static.exists():
        write_text(static, "INPUT ( -lcudart )\n")


def _libraries(source: Path, target: Path) -> None:
    """Take libraries; a link whose library was not brought is left to its stub."""
    for file in sorted(source.iterdir()):
        if file.is_dir():
            if file.name == "stubs":
                _merge(file, target / "stubs")
            continue
        if file.is_symlink() and not file.exists():
            continue
        if file.suffix == ".a" or ".so" in file.name:
            goal = target / file.name
            if not goal.exists() and not goal.is_symlink():
                shutil.copy2(file, goal, follow_symlinks=False)


def _merge(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(
            source,
            target,
            dirs_exist_ok=True,
            symlinks=True,
            ignore=shutil.ignore_patterns("__init__.py", "__pycache__"),
        )
