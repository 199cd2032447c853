# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Signed packages of the distribution, without root and without touching the system.

apt-get runs with lists, state, cache and sources of its own below one folder. The
mirror address is the machine's: it is read from the machine's apt configuration, so a
site mirror or a proxy keeps working. Packages are only unpacked (``dpkg-deb``), never
installed; no maintainer script runs.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import regex as re

from tools.rig.base.errors import CannotError, StepFailed
from tools.rig.base.run import Result, run
from tools.rig.base.state import write_text
from tools.rig.host.system import Distribution

APT_S = 900.0
"""Seconds that one apt-get or download may take."""

_KEYRINGS = {
    "debian": Path("/usr/share/keyrings/debian-archive-keyring.gpg"),
    "ubuntu": Path("/usr/share/keyrings/ubuntu-archive-keyring.gpg"),
}


@dataclass(frozen=True)
class Archive:
    """One suite of a distribution's archive: where it is and who signs it."""

    uri: str
    suite: str
    components: tuple[str, ...]
    keyring: Path

    def source(self) -> str:
        """Return the deb822 stanza for apt."""
        return (
            f"Types: deb\nURIs: {self.uri}\nSuites: {self.suite}\n"
            f"Components: {' '.join(self.components)}\nSigned-By: {self.keyring}\n"
        )


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
        for sub in ("state/lists/partial", "cache/archives/partial", "parts"):
            (folder / sub).mkdir(parents=True, exist_ok=True)
        (folder / "status").touch()
        stanzas = "\n".join(a.source() for a in archives)
        write_text(folder / "parts" / "rig.sources", stanzas)
        write_text(folder / "apt.conf", self._config())

    def update(self) -> None:
        """Read the archives' signed indexes.

        Raises
        ------
        StepFailed
            When the mirror cannot be reached or a signature is wrong.
        """
        self._must(run(["apt-get", "-q", "update"], env=self.env, timeout=APT_S))

    def download(self, packages: Sequence[str]) -> list[Path]:
        """Fetch packages and return their files; files already there are kept.

        A download that breaks off is tried again, and apt continues the part that it
        has.

        Raises
        ------
        StepFailed
            When a package is not in the archive or cannot be fetched.
        """
        target = self.folder / "debs"
        target.mkdir(exist_ok=True)
        argv = ["apt-get", "-q", "download", *packages]
        result = run(argv, env=self.env, cwd=target, timeout=APT_S)
        if not result.ok:
            result = run(argv, env=self.env, cwd=target, timeout=APT_S)
        self._must(result)
        found = []
        for package in packages:
            name = package.partition("=")[0]
            newest = sorted(target.glob(f"{name}_*.deb"), key=os.path.getmtime)
            if not newest:
                raise StepFailed(f"apt-get brought no file for {name}")
            found.append(newest[-1])
        return found

    def _must(self, result: Result) -> None:
        if result.code == 127:
            raise CannotError(
                "apt-get is not installed",
                usual="A toolkit can only be brought on Debian and Ubuntu.",
                hint="install a CUDA 12.x toolkit and set CUDA_HOME",
            )
        # apt-get update answers 0 when an index could not be read
        bad = [ln for ln in result.err.splitlines() if ln.startswith(("E:", "Err:"))]
        unread = [ln for ln in result.err.splitlines() if "Failed to fetch" in ln]
        if result.ok and not bad and not unread:
            return
        raise StepFailed(
            f"{' '.join(result.argv[:3])} failed",
            details=(bad + unread or result.err.splitlines())[-6:],
            usual="Usually the mirror cannot be reached, or the disk is full.",
            hint="check the network and proxy, then run the command again",
        )

    def _config(self) -> str:
        f = self.folder
        return (
            f'Dir::State "{f}/state";\nDir::State::status "{f}/status";\n'
            f'Dir::Cache "{f}/cache";\nDir::Etc::sourcelist "/dev/null";\n'
            f'Dir::Etc::sourceparts "{f}/parts";\n'
            # as root apt drops to a user who may not write below a private folder
            'APT::Sandbox::User "root";\nAcquire::Retries "3";\n'
            'Acquire::Languages "none";\n'
        )


def unpack(deb: Path, into: Path, exclude: Sequence[str] = ()) -> None:
    """Unpack a package's files below `into`, without those that match `exclude`.

    Raises
    ------
    StepFailed
        When the package is broken or the disk is full.
    """
    into.mkdir(parents=True, exist_ok=True)
    data = into / f".{deb.name}.tar"
    argv = ["dpkg-deb", "--fsys-tarfile", deb]
    globs = [f"--exclude={pattern}" for pattern in exclude]
    try:
        run(argv, timeout=APT_S, check=True, output_file=data)
        argv = ["tar", "-x", "-f", data, "-C", into, "--no-same-owner", *globs]
        run(argv, timeout=APT_S, check=True)
    finally:
        data.unlink(missing_ok=True)


def machine_archive(
    distribution: str,
    suite: str,
    component: str,
    mirror: str | None = None,
    etc: Path = Path("/etc/apt"),
) -> Archive:
    """Return the archive of `suite` at the mirror that this machine itself uses.

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

    Raises
    ------
    CannotError
        When the machine has no mirror of that distribution or lacks its keyring.
    """
    keyring = _KEYRINGS[distribution]
    if not keyring.is_file():
        raise CannotError(
            f"the signing keys of {distribution} are missing ({keyring})",
            hint=f"install the package {distribution}-archive-keyring",
        )
    uri = mirror or next(iter(_machine_uris(etc, distribution)), None)
    if uri is None:
        raise CannotError(
            f"no mirror of {distribution} in {etc}",
            hint="set ONECAT_APT_MIRROR to the address of one",
        )
    components = ("main", "contrib" if distribution == "debian" else "universe")
    return Archive(uri, suite, (*components, component), keyring)


def _machine_uris(etc: Path, distribution: str) -> list[str]:
    """Return addresses of whole mirrors (not security ones) in order of files."""
    lists = [etc / "sources.list"]
    parts = etc / "sources.list.d"
    if parts.is_dir():
        lists += sorted(parts.iterdir())
    found = []
    for file in lists:
        try:
            text = file.read_text(errors="replace")
        except OSError:
            continue
        if file.suffix == ".sources":
            found += re.findall(r"^URIs:\s*(\S+)", text, re.MULTILINE)
        else:
            found += re.findall(r"^deb\s+(?:\[[^\]]*\]\s+)?(\S+)", text, re.MULTILINE)
    wanted = re.compile(rf"/{distribution}/?$")
    return [u for u in found if wanted.search(u) and "security" not in u]


def archive_owner(here: Distribution) -> str:
    """Return whose archive a machine can read: ``debian``, ``ubuntu`` or nothing."""
    kin = (here.id, *here.like)
    return next((name for name in ("ubuntu", "debian") if name in kin), "")


def have_dpkg() -> bool:
    """Say whether packages can be unpacked here."""
    return all(shutil.which(name) for name in ("apt-get", "dpkg-deb", "tar"))
