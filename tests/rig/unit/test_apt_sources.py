# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Reading the machine's own apt configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.rig.builds import apt_sources
from tools.rig.builds.apt_sources import Source

DEBIAN_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
DEBIAN_12 = f"""\
Types: deb
# a comment between fields
URIs: http://deb.example.org/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: {DEBIAN_KEYS}

Types: deb
URIs: http://deb.example.org/debian-security
Suites: bookworm-security
Components: main
Signed-By: {DEBIAN_KEYS}
"""


@pytest.fixture
def etc(tmp_path: Path) -> Path:
    """Return an apt configuration without any source."""
    (tmp_path / "sources.list.d").mkdir()
    return tmp_path


def put(etc: Path, name: str, text: str) -> None:
    """Write one file of sources."""
    (etc / "sources.list.d" / name).write_text(text)


def uris(etc: Path, distribution: str = "debian") -> list[str]:
    """Return the mirrors of a distribution."""
    return [s.uri for s in apt_sources.mirrors(apt_sources.read(etc), distribution)]


class TestRead:
    """Both forms."""

    def test_nothing(self, tmp_path: Path) -> None:
        """A machine without apt has no sources."""
        assert apt_sources.read(tmp_path / "none") == []

    def test_stanzas(self, etc: Path) -> None:
        """Comments, several suites and the keys are read."""
        put(etc, "debian.sources", DEBIAN_12)
        first, second = apt_sources.read(etc)
        assert first == Source(
            "http://deb.example.org/debian",
            ("bookworm", "bookworm-updates"),
            ("main",),
            (Path(DEBIAN_KEYS),),
        )
        assert second.suites == ("bookworm-security",)

    def test_odd_stanzas(self, etc: Path) -> None:
        """Several addresses, folded lines, names in any case, written-out keys."""
        put(
            etc,
            "odd.sources",
            "types: deb-src deb\nURIS: http://a/debian\n\thttp://b/debian\n"
            "Suites: trixie\nComponents: main contrib\nSigned-By:\n"
            " -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mQINBF/abc\n"
            " -----END PGP PUBLIC KEY BLOCK-----\n",
        )
        assert apt_sources.read(etc) == [
            Source("http://a/debian", ("trixie",), ("main", "contrib")),
            Source("http://b/debian", ("trixie",), ("main", "contrib")),
        ]

    @pytest.mark.parametrize("word", ["no", "No", "false", "0", "off"])
    def test_disabled_stanza(self, etc: Path, word: str) -> None:
        """A stanza that is switched off is not there."""
        put(etc, "d.sources", f"Enabled: {word}\n{DEBIAN_12}")
        assert [s.suites for s in apt_sources.read(etc)] == [("bookworm-security",)]

    def test_source_packages_only(self, etc: Path) -> None:
        """Stanzas and lines for source packages are passed over."""
        put(etc, "d.sources", DEBIAN_12.replace("Types: deb", "Types: deb-src"))
        put(etc, "d.list", "deb-src http://a/debian bookworm main\n")
        assert apt_sources.read(etc) == []

    @pytest.mark.parametrize(
        ("options", "keys"),
        [
            (" ", ()),
            (" [arch=amd64] ", ()),
            (" [ signed-by=/k.gpg arch=amd64 ] ", ("/k.gpg",)),
            ("\t[signed-by=/k.gpg,/l.asc,ABCD1234]  ", ("/k.gpg", "/l.asc")),
            (" [trusted=yes]", ()),
        ],
    )
    def test_lines(self, etc: Path, options: str, keys: tuple[str, ...]) -> None:
        """Options with and without blanks, comments, several keyrings."""
        line = f"  deb{options}http://a/debian  bookworm main contrib # note"
        (etc / "sources.list").write_text(f"# head\n{line}\n\n#deb http://b x main\n")
        assert apt_sources.read(etc) == [
            Source(
                "http://a/debian",
                ("bookworm",),
                ("main", "contrib"),
                tuple(map(Path, keys)),
            )
        ]

    def test_files_that_apt_does_not_read(self, etc: Path) -> None:
        """Only two suffixes count; a folder of that name is passed over."""
        for name in ("a.list.disabled", "b.sources.save", "c.list~"):
            put(etc, name, "deb http://a/debian bookworm main\n")
        (etc / "sources.list.d" / "d.list").mkdir()
        assert apt_sources.read(etc) == []

    def test_local_mirror_list(self, etc: Path) -> None:
        """The addresses in the file of mirror+file stand for it."""
        listed = etc / "mirrors.txt"
        listed.write_text("# first\nhttp://a/debian\tpriority:1\n\nhttp://b/debian\n")
        (etc / "sources.list").write_text(
            f"deb mirror+file:{listed} bookworm main\n"
            f"deb mirror+file://{listed} trixie main\n"
            "deb mirror+file:/nowhere bookworm main\n"
        )
        assert [(s.uri, s.suites[0]) for s in apt_sources.read(etc)] == [
            ("http://a/debian", "bookworm"),
            ("http://b/debian", "bookworm"),
            ("http://a/debian", "trixie"),
            ("http://b/debian", "trixie"),
        ]


class TestMirrors:
    """Which source serves the distribution."""

    def test_security_does_not(self, etc: Path) -> None:
        """An archive of updates alone is no mirror."""
        put(etc, "debian.sources", DEBIAN_12)
        assert uris(etc) == ["http://deb.example.org/debian"]
        assert uris(etc, "ubuntu") == []

    def test_third_parties(self, etc: Path) -> None:
        """Others whose address ends alike come last, or not at all."""
        (etc / "sources.list").write_text(
            "deb http://docker.example/linux/debian bookworm stable\n"
            "deb [signed-by=/k/wine.gpg] http://wine.example/debian/ bookworm main\n"
            "deb http://other.example/pub bookworm main\n"
            "deb http://plain.example/debian bookworm main\n"
            f"deb [signed-by={DEBIAN_KEYS}] http://nexus.example/proxy bookworm main\n"
            f"deb [signed-by={DEBIAN_KEYS}] http://own.example/debian bookworm main\n"
        )
        assert uris(etc) == [
            "http://own.example/debian",
            "http://plain.example/debian",
            "http://nexus.example/proxy",
            "http://wine.example/debian/",
        ]

    def test_ubuntu(self, etc: Path) -> None:
        """Ubuntu's archive and its ports; its security host serves updates only."""
        put(
            etc,
            "ubuntu.sources",
            "Types: deb\nURIs: http://security.ubuntu.example/ubuntu\n"
            "Suites: noble\nComponents: main\n\n"
            "Types: deb\nURIs: http://ports.ubuntu.example/ubuntu-ports/\n"
            "Suites: noble noble-updates\nComponents: main universe\n"
            "Signed-By: /usr/share/keyrings/ubuntu-archive-keyring.gpg\n",
        )
        assert uris(etc, "ubuntu") == ["http://ports.ubuntu.example/ubuntu-ports/"]


class TestSuite:
    """Which suite the machine's own packages come from."""

    def test_codename(self, etc: Path) -> None:
        """The codename, where a source offers it."""
        put(etc, "debian.sources", DEBIAN_12)
        read = apt_sources.read(etc)
        assert apt_sources.suite(read, "debian", "bookworm") == "bookworm"

    def test_derivative(self, etc: Path) -> None:
        """A derivative's own codename is no suite of the archive that it builds on."""
        (etc / "sources.list").write_text(
            "deb http://a/ubuntu noble-security main\ndeb http://a/ubuntu noble main\n"
        )
        read = apt_sources.read(etc)
        assert apt_sources.suite(read, "ubuntu", "wilma") == "noble"

    def test_nothing_known(self) -> None:
        """Without sources the codename remains."""
        assert apt_sources.suite([], "debian", "trixie") == "trixie"
