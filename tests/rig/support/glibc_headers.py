# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Headers of another Debian's glibc, and a host compiler that sees them.

They come from the distribution's signed packages and are only unpacked. With them a
machine of any age meets the errors that a newer one gives.
"""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

import pytest
from filelock import FileLock

from tests.rig.support.toolkit import cache_folder
from tools.rig.base.errors import RigError
from tools.rig.builds import private_apt
from tools.rig.host import compilers
from tools.rig.host.compilers import HostCompiler
from tools.rig.host.cuda import Toolkit

_PACKAGES = ("libc6-dev", "linux-libc-dev")


def glibc_headers(suite: str) -> Path:
    """Return a folder with ``usr/include`` of a Debian suite, like ``trixie`` (2.41).

    Skips the test when the packages cannot be had here.
    """
    if not private_apt.have_dpkg():
        pytest.skip("apt-get and dpkg-deb are not here")
    place = cache_folder() / "glibc" / suite
    place.mkdir(parents=True, exist_ok=True)
    tree = place / "tree"
    with FileLock(str(place / "lock")):
        if not tree.is_dir():
            beside = place / "unpacking"
            shutil.rmtree(beside, ignore_errors=True)
            try:
                archive = private_apt.machine_archive("debian", suite, "contrib")
                apt = private_apt.PrivateApt(place / "apt", [archive], os.environ)
                apt.update()
                for deb in apt.download(_PACKAGES):
                    private_apt.unpack(deb, beside)
            except RigError as exc:
                pytest.skip(f"glibc headers of {suite} cannot be had: {exc.what}")
            os.rename(beside, tree)
            shutil.rmtree(place / "apt")
    return tree


def host_compiler(toolkit: Toolkit) -> HostCompiler:
    """Return a g++ of this machine that `toolkit` accepts, or skip the test."""
    for found in compilers.find(os.environ):
        refused = compilers.refusal(toolkit.release, found, 17)
        if found.family == "gcc" and not refused:
            return found
    pytest.skip(f"no g++ here that CUDA {toolkit.release} accepts")


def with_headers(compiler: HostCompiler, tree: Path, folder: Path) -> HostCompiler:
    """Return `compiler` behind a script that makes it see the C headers in `tree`.

    Linking is left alone: the machine's own C library serves.
    """
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "g++"
    real = shlex.quote(os.fspath(compiler.path))
    script.write_text(
        "#!/bin/sh\n"
        'for word in "$@"; do\n'
        '  case "$word" in\n'
        f'    -E|-c|-S) exec {real} --sysroot={shlex.quote(str(tree))} "$@";;\n'
        "  esac\n"
        "done\n"
        f'exec {real} "$@"\n'
    )
    script.chmod(0o755)
    return HostCompiler(script, compiler.family, compiler.version)
