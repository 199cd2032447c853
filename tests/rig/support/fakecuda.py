# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Toolkits and compilers that answer as real ones do, for tests without any."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pytest_subprocess import FakeProcess

from tools.rig.host.compilers import HostCompiler
from tools.rig.host.cuda import Toolkit

SMS = {
    "11.8": (35, 50, 60, 70, 80, 90),
    "12.0": (50, 60, 70, 80, 90),
    "12.4": (50, 60, 70, 80, 90),
    "12.8": (50, 60, 70, 80, 90, 120),
    "12.9": (50, 60, 70, 80, 90, 121),
    "13.0": (75, 80, 90, 121),
}
"""Some of the architectures of each release."""

ASK_GXX = ["-E", "-P", "-x", "c++", "-"]


def program(path: Path, text: str = "") -> Path:
    """Make an executable file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def nvcc(
    fp: FakeProcess, root: Path, release: str = "12.4", sms: Iterable[int] | None = None
) -> Path:
    """Make a toolkit folder whose nvcc answers like that release."""
    path = program(root / "bin" / "nvcc")
    sms = SMS[release] if sms is None else sms
    fp.register(
        [str(path), "--version"],
        stdout=f"Cuda compilation tools, release {release}, V{release}.100\n",
        occurrences=9,
    )
    fp.register(
        [str(path), "--list-gpu-code"],
        stdout="".join(f"sm_{sm}\n" for sm in sms),
        occurrences=9,
    )
    return root


def gxx(fp: FakeProcess, path: Path, version: str = "12 2") -> Path:
    """Make a g++ that answers with these version macros."""
    program(path)
    fp.register(
        [str(path), *ASK_GXX],
        stdout=f"__clang_major__ __clang_minor__\n{version}\n",
        occurrences=9,
    )
    return path


def toolkit(release: str, root: str | Path = "", origin: str = "/usr/local") -> Toolkit:
    """Return a toolkit that works."""
    place = Path(root or f"/usr/local/cuda-{release}")
    nvcc_ = place / "bin" / "nvcc"
    return Toolkit(place, nvcc_, f"{release}.100", SMS[release], origin)


def compiler(name: str, version: str) -> HostCompiler:
    """Return a compiler that works, like ``compiler("g++-11", "11.4")``."""
    family = "clang" if "clang" in name else "gcc"
    return HostCompiler(Path("/usr/bin", name), family, version)
