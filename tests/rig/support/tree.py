# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A fresh Debian tree to type the README's commands in, as a new user would."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from filelock import FileLock

from tests.rig.support.toolkit import cache_folder
from tools.rig.base.errors import RigError
from tools.rig.builds.private_apt import machine_archive

PASSED_ON = ("http_proxy", "https_proxy", "no_proxy", "PIP_INDEX_URL", "UV_INDEX_URL")
"""What a machine behind a proxy or mirror needs in any tree."""

_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")

_ENTER = r"""
set -e
tree=$1; shift
mount --bind "$tree" "$tree"
mount -t proc proc "$tree/proc"
mount --bind /sys "$tree/sys"
mount --rbind /dev "$tree/dev"
exec setsid chroot "$tree" "$@"
"""


class Tree:
    """A root file system; commands run in a mount namespace of their own."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def run(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        timeout: float = 1500,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program in the tree and return what it said, both streams in one."""
        here = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        inside = {
            "HOME": "/root",
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            **here,
            **(env or {}),
        }
        words = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        return subprocess.run(
            [*words, "sh", "-c", _ENTER, "enter", str(self.path), *argv],
            env=inside,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout,
        )


def debian(suite: str, packages: Sequence[str], into: Path) -> Tree:
    """Return a fresh tree of `suite` with `packages`; skips where none can be made.

    The downloaded packages are kept between runs, the tree is not.
    """
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        pytest.skip("a Debian tree needs root and debootstrap")
    try:
        archive = machine_archive("debian", suite, "main")
    except RigError as exc:
        pytest.skip(f"no Debian mirror here: {exc.what}")
    keyring = next(
        k for k in map(str, archive.keyrings) if k.endswith((".gpg", ".pgp"))
    )
    kept = cache_folder() / f"debs-{suite}"
    kept.mkdir(exist_ok=True)
    words = [
        "debootstrap",
        "--variant=minbase",
        f"--keyring={keyring}",
        f"--cache-dir={kept.resolve()}",
        f"--include={','.join(['ca-certificates', *packages])}",
        suite,
        str(into),
        archive.uri,
    ]
    with FileLock(str(kept / "lock")):
        made = subprocess.run(words, capture_output=True, text=True, timeout=900)
    if made.returncode:
        pytest.fail(f"debootstrap failed:\n{(made.stdout + made.stderr)[-2000:]}")
    shutil.copy("/etc/resolv.conf", into / "etc" / "resolv.conf")
    if Path("/etc/hosts").exists():
        shutil.copy("/etc/hosts", into / "etc" / "hosts")
    if _CERTIFICATES.exists():
        # a site's own authority is part of how this machine reaches anything
        shutil.copy(_CERTIFICATES, into / "etc/ssl/certs/ca-certificates.crt")
    return Tree(into)
