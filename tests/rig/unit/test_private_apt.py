# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""apt-get below a folder of ours, with a fake apt-get."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from pytest_subprocess import FakeProcess

from tests.rig.support.fakecuda import program
from tools.rig.base.errors import CannotError, StepFailed
from tools.rig.builds import private_apt
from tools.rig.builds.private_apt import Archive, Package, PrivateApt
from tools.rig.host.system import Distribution

HELPER = "/usr/lib/apt/apt-helper"
KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
ARCHIVE = Archive("http://a/debian", "trixie", ("main", "non-free"), (KEYS,))
BODY = b"a package"
DIGEST = f"SHA256:{hashlib.sha256(BODY).hexdigest()}"
URI = "http://a/debian/pool/n/x_1%7e2_amd64.deb"
FILE = "x_1~2_amd64.deb"


@pytest.fixture
def apt(tmp_path: Path) -> PrivateApt:
    """Return an apt in a folder whose name holds what a configuration cannot quote."""
    return PrivateApt(tmp_path / 'a "b', [ARCHIVE], {"http_proxy": "http://p:1"})


def places(apt: PrivateApt) -> list[str]:
    """Return the options that keep apt below its folder."""
    f = apt.folder
    return [
        "-o", f"Dir::State={f}/state", "-o", f"Dir::State::status={f}/status",
        "-o", f"Dir::Cache={f}/cache", "-o", f"Dir::Etc::sourceparts={f}/parts",
    ]  # fmt: skip


def listing(apt: PrivateApt, fp: FakeProcess, text: str, **more: Any) -> None:
    """Let apt-get name the files of package x."""
    argv = ["apt-get", *places(apt), "-q", "download", "--print-uris", "x"]
    fp.register(argv, stdout=text, **more)


def fetching(apt: PrivateApt, fp: FakeProcess, *bodies: bytes, code: int = 0) -> Path:
    """Let the helper bring these bodies, one a call; all but the last break off."""
    target = apt.folder / "debs" / FILE
    for number, body in enumerate(bodies):
        last = number == len(bodies) - 1
        fp.register(
            [HELPER, *places(apt), "download-file", URI, str(target), DIGEST],
            callback=lambda process, body=body: target.write_bytes(body),
            returncode=code if last else 100,
            stderr="" if last and not code else "E: Failed to fetch it\n",
        )
    return target


class TestSetUp:
    """What apt is told."""

    def test_files(self, apt: PrivateApt) -> None:
        """Sources, keys and configuration are ours alone."""
        assert (apt.folder / "parts" / "rig.sources").read_text() == (
            "Types: deb\nURIs: http://a/debian\nSuites: trixie\n"
            f"Components: main non-free\nSigned-By: {KEYS}\n"
        )
        conf = (apt.folder / "apt.conf").read_text()
        assert 'Dir::Etc::sourcelist "/dev/null"' in conf and "State" not in conf
        assert apt.env["APT_CONFIG"] == f"{apt.folder}/apt.conf"
        assert apt.env["http_proxy"] == "http://p:1"

    def test_two_keyrings(self) -> None:
        """Several keyrings stand behind commas, as apt reads them."""
        both = Archive("u", "s", ("main",), (Path("/a.gpg"), Path("/b.gpg")))
        assert "Signed-By: /a.gpg,/b.gpg\n" in both.source()


class TestUpdate:
    """Reading the lists."""

    def test_argv(self, apt: PrivateApt, fp: FakeProcess) -> None:
        """Everything goes below the folder."""
        fp.register(["apt-get", *places(apt), "-q", "update"])
        apt.update()
        assert len(fp.calls) == 1

    @pytest.mark.parametrize(
        ("err", "code", "words"),
        [
            ("W: Failed to fetch http://a  Could not connect\n", 0, "mirror cannot"),
            ("E: The repository is not signed.\n", 0, "mirror cannot"),
            ("W: GPG error: NO_PUBKEY 12\nE: not signed\n", 100, "too old"),
            ("something\n", 1, "mirror cannot"),
        ],
    )
    def test_failures(
        self, apt: PrivateApt, fp: FakeProcess, err: str, code: int, words: str
    ) -> None:
        """An index that could not be read fails, also where apt-get answers 0."""
        fp.register([fp.program("apt-get"), fp.any()], stderr=err, returncode=code)
        with pytest.raises(StepFailed, match="reading the package lists") as caught:
            apt.update()
        assert words in caught.value.usual and caught.value.details

    def test_warnings_do_not_matter(self, apt: PrivateApt, fp: FakeProcess) -> None:
        """Other warnings are no failure."""
        fp.register([fp.program("apt-get"), fp.any()], stderr="W: old key format\n")
        apt.update()
        assert len(fp.calls) == 1

    @pytest.mark.allow_process
    def test_no_apt(self, tmp_path: Path) -> None:
        """Without apt-get the machine cannot do it."""
        apt = PrivateApt(tmp_path, [ARCHIVE], {"PATH": str(tmp_path)})
        with pytest.raises(CannotError, match="apt-get is not installed"):
            apt.update()

    @pytest.mark.allow_process
    def test_hangs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """An apt-get that stands still is stopped, and the message says so."""
        program(tmp_path / "bin" / "apt-get", "#!/bin/sh\nexec sleep 60\n")
        monkeypatch.setattr(private_apt, "APT_S", 0.3)
        env = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}
        apt = PrivateApt(tmp_path / "apt", [ARCHIVE], env)
        with pytest.raises(StepFailed, match="reading the package lists stood still"):
            apt.update()

    def test_known(self, apt: PrivateApt, fp: FakeProcess) -> None:
        """apt-cache says whether a package is there."""
        argv = ["apt-cache", *places(apt), "show", "--no-all-versions", "g++-13"]
        fp.register(argv)
        fp.register(argv, returncode=100)
        assert apt.known("g++-13") and not apt.known("g++-13")


class TestDownload:
    """Fetching packages."""

    def test_fetched_and_kept(self, apt: PrivateApt, fp: FakeProcess) -> None:
        """A package is fetched once; the whole file is known by its digest."""
        line = f"Reading lists...\n'{URI}' {FILE} {len(BODY)} {DIGEST}\n"
        listing(apt, fp, line)
        listing(apt, fp, line)
        target = fetching(apt, fp, BODY)
        assert apt.download(["x"]) == [target] == apt.download(["x"])
        assert len(fp.calls) == 3

    def test_goes_on(self, apt: PrivateApt, fp: FakeProcess) -> None:
        """A connection that breaks is taken up again as long as the file grows."""
        target = fetching(apt, fp, BODY[:2], BODY[:5], BODY)
        assert apt.fetch(Package(URI, FILE, len(BODY), DIGEST)) == target
        assert len(fp.calls) == 3

    def test_gives_up(self, apt: PrivateApt, fp: FakeProcess) -> None:
        """A try that gets no further is the last; what came stays for the next run."""
        target = fetching(apt, fp, BODY[:2], BODY[:2], code=100)
        with pytest.raises(StepFailed, match=f"fetching {FILE} failed"):
            apt.fetch(Package(URI, FILE, len(BODY), DIGEST))
        assert target.read_bytes() == BODY[:2] and len(fp.calls) == 2

    @pytest.mark.parametrize("code", [0, 100])
    def test_another_file(self, apt: PrivateApt, fp: FakeProcess, code: int) -> None:
        """A file of the right size and other content is refused."""
        target = fetching(apt, fp, b"x" * len(BODY), code=code)
        if code:
            target.write_bytes(b"x" * len(BODY))
        with pytest.raises(StepFailed):
            apt.fetch(Package(URI, FILE, len(BODY), DIGEST))

    def test_a_helper_that_only_says_yes(
        self, apt: PrivateApt, fp: FakeProcess
    ) -> None:
        """What the helper calls good is looked at again."""
        fetching(apt, fp, b"short")
        with pytest.raises(StepFailed, match="is not the file that the archive signed"):
            apt.fetch(Package(URI, FILE, len(BODY), DIGEST))

    @pytest.mark.parametrize(
        "line",
        [
            f"'{URI}' {FILE} 9 MD5Sum:00",
            f"'{URI}' {FILE} 9",
            f"'{URI}' ../{FILE} 9 {DIGEST}",
            f"'{URI}' {FILE} nine {DIGEST}",
        ],
    )
    def test_weak_digest(self, apt: PrivateApt, fp: FakeProcess, line: str) -> None:
        """A file that no strong digest vouches for is not fetched."""
        listing(apt, fp, f"{line}\n")
        with pytest.raises(StepFailed, match="without a strong digest"):
            apt.download(["x"])

    def test_no_such_package(self, apt: PrivateApt, fp: FakeProcess) -> None:
        """A package that the archive lacks is named."""
        err = "E: Unable to locate package x\n"
        listing(apt, fp, "", stderr=err, returncode=100)
        with pytest.raises(StepFailed, match="looking up x") as caught:
            apt.download(["x"])
        assert "does not have it" in caught.value.usual

    def test_nothing_named(self, apt: PrivateApt, fp: FakeProcess) -> None:
        """An answer without the package is a failure."""
        listing(apt, fp, "Reading package lists...\n")
        with pytest.raises(StepFailed, match="names no file for x"):
            apt.download(["x"])


class TestUnpack:
    """From a package to files."""

    def test_argv(self, fp: FakeProcess, tmp_path: Path) -> None:
        """dpkg-deb writes a tar file, tar unpacks it, and it goes."""
        deb, into = tmp_path / "x.deb", tmp_path / "tree"
        data = into / ".x.deb.tar"
        fp.register(["dpkg-deb", "--fsys-tarfile", str(deb)], stdout=b"tar")
        argv = ["tar", "-x", "-f", str(data), "-C", str(into), "--no-same-owner"]
        fp.register([*argv, "--exclude=*_static.a"])
        private_apt.unpack(deb, into, exclude=["*_static.a"])
        assert len(fp.calls) == 2 and list(into.iterdir()) == []

    def test_broken(self, fp: FakeProcess, tmp_path: Path) -> None:
        """A broken package is a failure, and nothing is left of the try."""
        fp.register([fp.program("dpkg-deb"), fp.any()], returncode=2, stderr="broken\n")
        with pytest.raises(StepFailed, match="dpkg-deb"):
            private_apt.unpack(tmp_path / "x.deb", tmp_path / "tree")
        assert list((tmp_path / "tree").iterdir()) == []


class TestMachineArchive:
    """Where the packages come from."""

    @pytest.fixture
    def keys(self, tmp_path: Path) -> dict[str, Path]:
        """Return keyrings that exist."""
        return {d: program(tmp_path / f"{d}.gpg") for d in ("debian", "ubuntu")}

    def etc(self, tmp_path: Path, line: str) -> Path:
        """Write a configuration of one line."""
        (tmp_path / "sources.list").write_text(line + "\n")
        return tmp_path

    def test_the_machines_own(self, tmp_path: Path, keys: dict[str, Path]) -> None:
        """Address and keys of the machine, the distribution's keys beside them."""
        own = program(tmp_path / "debian-archive-site.gpg")
        line = f"deb [signed-by={own}] http://a/debian bookworm main"
        found = private_apt.machine_archive(
            "debian", "trixie", "non-free", etc=self.etc(tmp_path, line), keyrings=keys
        )
        assert found == Archive(
            "http://a/debian",
            "trixie",
            ("main", "contrib", "non-free"),
            (own, keys["debian"]),
        )

    def test_the_users(self, tmp_path: Path, keys: dict[str, Path]) -> None:
        """A mirror that the user has set wins; ubuntu has a universe."""
        found = private_apt.machine_archive(
            "ubuntu", "noble", "main", "http://m/ubuntu", tmp_path / "no", keys
        )
        assert found.uri == "http://m/ubuntu"
        assert found.components == ("main", "universe")

    def test_no_keys(self, tmp_path: Path) -> None:
        """Without keys nothing is trusted."""
        with pytest.raises(CannotError, match="signing keys of debian") as caught:
            private_apt.machine_archive(
                "debian", "x", "main", "http://m", tmp_path, {"debian": tmp_path / "k"}
            )
        assert caught.value.hint == "install the package debian-archive-keyring"

    def test_no_mirror(self, tmp_path: Path, keys: dict[str, Path]) -> None:
        """Without an address the setting is named."""
        with pytest.raises(CannotError, match="no mirror of debian") as caught:
            private_apt.machine_archive(
                "debian", "x", "main", etc=tmp_path, keyrings=keys
            )
        assert "ONECAT_APT_MIRROR" in caught.value.hint


@pytest.mark.parametrize(
    ("id_", "like", "owner"),
    [
        ("debian", (), "debian"),
        ("ubuntu", ("debian",), "ubuntu"),
        ("linuxmint", ("ubuntu", "debian"), "ubuntu"),
        ("kali", ("debian",), "debian"),
        ("fedora", (), ""),
    ],
)
def test_archive_owner(id_: str, like: tuple[str, ...], owner: str) -> None:
    """A derivative reads the archive that it builds on."""
    here = Distribution(id_, "1", id_, "x", like)
    assert private_apt.archive_owner(here) == owner


def test_have_dpkg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All three programs must be there."""
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("apt-get", "dpkg-deb", "tar"):
        assert not private_apt.have_dpkg()
        program(tmp_path / name)
    assert private_apt.have_dpkg()
