# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Signed packages of the distribution, without root and without touching the system.

apt-get runs with lists, state, cache and sources of its own below one folder. The
mirror address is the machine's: it is read from the machine's apt configuration, so a
site mirror or a proxy keeps working. Packages are only unpacked (``dpkg-deb``), never
installed; no maintainer script runs.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.rig.base.errors import CannotError, StepFailed, quoted
from tools.rig.base.run import Result, run
from tools.rig.base.state import write_text
from tools.rig.builds import apt_sources
from tools.rig.host.system import Distribution

APT_S = 900.0
"""Seconds that one apt-get or one download may take before it must show progress."""

_ELSEWHERE = "export ONECAT_APT_MIRROR=ADDRESS, and run the command again"
_HELPER = "/usr/lib/apt/apt-helper"
_KEYRINGS = {
    "debian": Path("/usr/share/keyrings/debian-archive-keyring.gpg"),
    "ubuntu": Path("/usr/share/keyrings/ubuntu-archive-keyring.gpg"),
}
# as root apt drops to a user who may not write below a private folder
_CONFIG = """\
APT::Sandbox::User "root";
Acquire::Retries "3";
Acquire::Languages "none";
Dir::Etc::sourcelist "/dev/null";
"""


@dataclass(frozen=True)
class Archive:
    """One suite of a distribution's archive: where it is and who signs it."""

    uri: str
    suite: str
    components: tuple[str, ...]
    keyrings: tuple[Path, ...]

    def source(self) -> str:
        """Return the deb822 stanza for apt."""
        return (
            f"Types: deb\nURIs: {self.uri}\nSuites: {self.suite}\n"
            f"Components: {' '.join(self.components)}\n"
            f"Signed-By: {','.join(map(str, self.keyrings))}\n"
        )


@dataclass(frozen=True)
class Package:
    """A package file as the signed index describes it; ``size`` in bytes."""

    uri: str
    file: str
    size: int
    digest: str


class PrivateApt:
    """An apt-get of our own below `folder`.

    Parameters
    ----------
    folder
        A folder of ours; made when missing.
    archives
        The suites to read.
    env
        The environment, for proxies. ``APT_CONFIG`` in it is replaced.
    """

    def __init__(
        self, folder: Path, archives: Sequence[Archive], env: Mapping[str, str]
    ) -> None:
        self.folder = folder
        self.env = {**env, "APT_CONFIG": str(folder / "apt.conf"), "LC_ALL": "C.UTF-8"}
        for sub in ("state/lists/partial", "cache/archives/partial", "parts", "debs"):
            (folder / sub).mkdir(parents=True, exist_ok=True)
        (folder / "status").touch()
        stanzas = "\n".join(a.source() for a in archives)
        write_text(folder / "parts" / "rig.sources", stanzas)
        write_text(folder / "apt.conf", _CONFIG)

    def update(self) -> None:
        """Read the archives' signed indexes.

        Raises
        ------
        StepFailed
            When the mirror cannot be reached or a signature is wrong.
        """
        _must(self._run("apt-get", "-q", "update"), "reading the package lists")

    def known(self, package: str) -> bool:
        """Say whether the archives have a package of that name."""
        return self._run("apt-cache", "show", "--no-all-versions", package).ok

    def download(self, packages: Sequence[str]) -> list[Path]:
        """Fetch packages and return their files; whole ones already there are kept.

        Raises
        ------
        StepFailed
            When a package is not in the archive or cannot be fetched.
        """
        answer = self._run("apt-get", "-q", "download", "--print-uris", *packages)
        _must(answer, f"looking up {', '.join(packages)}")
        listed = [_package(line) for line in answer.out.splitlines()]
        found = [one for one in listed if one is not None]
        for name in packages:
            if not any(one.file.startswith(f"{name}_") for one in found):
                raise StepFailed(f"apt-get names no file for {name}", hint=_ELSEWHERE)
        return [self.fetch(one) for one in found]

    def fetch(self, package: Package) -> Path:
        """Fetch one package file, checked against the digest of the signed index.

        A download that breaks off goes on where it was, as often as it gets further;
        ``apt-get download`` would begin again.

        Raises
        ------
        StepFailed
            When it cannot be fetched, or is not the file that was signed.
        """
        target = self.folder / "debs" / package.file
        if _is_whole(target, package):
            return target
        argv = ("download-file", package.uri, str(target), package.digest)
        while True:
            before = _size(target)
            answer = self._run(_HELPER, *argv)
            if answer.ok and _is_whole(target, package):
                return target
            if answer.ok or _size(target) <= before:
                _must(answer, f"fetching {package.file}")
                raise StepFailed(
                    f"{package.file} is not the file that the archive signed",
                    usual="A proxy or mirror on the way changes or cuts files.",
                    hint=f"rm {quoted(target)}, and run the command again",
                )

    def _run(self, program: str, *args: str) -> Result:
        f = self.folder
        # given here and not in apt.conf, which cannot quote a quote in a path
        places = {
            "Dir::State": f / "state",
            "Dir::State::status": f / "status",
            "Dir::Cache": f / "cache",
            "Dir::Etc::sourceparts": f / "parts",
        }
        options = [w for key, path in places.items() for w in ("-o", f"{key}={path}")]
        return run([program, *options, *args], env=self.env, timeout=APT_S)


def unpack(deb: Path, into: Path, exclude: Sequence[str] = ()) -> None:
    """Unpack a package's files below `into`, without those that match `exclude`.

    Raises
    ------
    StepFailed
        When the package is broken or the disk is full.
    """
    into.mkdir(parents=True, exist_ok=True)
    data = into / f".{deb.name}.tar"
    globs = [f"--exclude={pattern}" for pattern in exclude]
    try:
        run(
            ["dpkg-deb", "--fsys-tarfile", deb],
            timeout=APT_S,
            check=True,
            output_file=data,
        )
        run(
            ["tar", "-x", "-f", data, "-C", into, "--no-same-owner", *globs],
            timeout=APT_S,
            check=True,
        )
    finally:
        data.unlink(missing_ok=True)


def machine_archive(
    distribution: str,
    suite: str,
    component: str,
    mirror: str | None = None,
    etc: Path = apt_sources.ETC,
    keyrings: Mapping[str, Path] = _KEYRINGS,
) -> Archive:
    """Return the archive of `suite` at the mirror that this machine itself uses.

    The keys that the machine's own source names come first, since a site mirror may
    sign anew; the distribution's keyring is taken beside them, since an older one on
    the machine may not know a newer suite.

    Parameters
    ----------
    distribution
        ``debian`` or ``ubuntu``.
    suite, component
        What to read; ``main`` is added.
    mirror
        An address that the user has set; it wins over the machine's.
    etc
        Where apt's configuration lies.
    keyrings
        Where the distributions' own keyrings lie.

    Raises
    ------
    CannotError
        When the machine has no mirror of that distribution or lacks its keyring.
    """
    own = apt_sources.mirrors(apt_sources.read(etc), distribution)
    keys = [*(own[0].keyrings if own else ()), keyrings[distribution]]
    known = tuple(dict.fromkeys(key for key in keys if key.is_file()))
    if not known:
        raise CannotError(
            f"the signing keys of {distribution} are missing "
            f"({keyrings[distribution]})",
            hint=f"install the package {distribution}-archive-keyring",
        )
    uri = mirror or (own[0].uri if own else None)
    if uri is None:
        raise CannotError(
            f"no mirror of {distribution} in {etc}",
            hint=_ELSEWHERE,
        )
    second = "contrib" if distribution == "debian" else "universe"
    components = tuple(dict.fromkeys(("main", second, component)))
    return Archive(uri, suite, components, known)


def archive_owner(here: Distribution) -> str:
    """Return whose archive a machine can read: ``debian``, ``ubuntu`` or nothing."""
    kin = (here.id, *here.like)
    return next((name for name in ("ubuntu", "debian") if name in kin), "")


def have_dpkg() -> bool:
    """Say whether packages can be unpacked here."""
    return all(shutil.which(name) for name in ("apt-get", "dpkg-deb", "tar"))


def _must(result: Result, doing: str) -> None:
    if result.code == 127:
        raise CannotError(
            f"{result.argv[0]} is not installed",
            usual="A toolkit can only be brought on Debian and Ubuntu.",
            hint="install a CUDA 12.x toolkit and set CUDA_HOME",
        )
    # apt-get update answers 0 when an index could not be read
    lines = result.err.splitlines()
    bad = [line for line in lines if line.startswith("E:") or "Failed to fetch" in line]
    if result.ok and not bad:
        return
    usual = "Usually the mirror cannot be reached, or the disk is full."
    hint = "check the network and proxy, then run the command again"
    if any("NO_PUBKEY" in line for line in lines):
        usual = "The distribution's signing keys on this machine are too old."
        hint = "install the newest package debian-archive-keyring or ubuntu-keyring"
    elif any("Unable to locate" in line for line in lines):
        usual = "The distribution's archive does not have it."
        hint = ""
    what = f"{doing} failed"
    if result.timed_out:
        what = f"{doing} stood still for {result.seconds:.0f} s"
    raise StepFailed(what, details=(bad or lines)[-6:], usual=usual, hint=hint)


def _package(line: str) -> Package | None:
    """Read one line of ``apt-get download --print-uris``; None for any other line."""
    if not line.startswith("'"):
        return None
    words = shlex.split(line)
    strong = len(words) == 4 and words[3].startswith(("SHA256:", "SHA512:"))
    if not strong or not words[2].isdigit() or os.sep in words[1]:
        raise StepFailed(
            f"apt-get names a file without a strong digest: {line}",
            usual="The archive's index is older than apt-secure asks for.",
            hint=_ELSEWHERE,
        )
    return Package(words[0], words[1], int(words[2]), words[3])


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else -1


def _is_whole(file: Path, package: Package) -> bool:
    if _size(file) != package.size:
        return False
    name, _, wanted = package.digest.partition(":")
    digest = hashlib.new(name.lower())
    with file.open("rb") as fh:
        while chunk := fh.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest() == wanted.lower()
