# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""An older g++ is brought beside the system's; apt, dpkg and tar are fakes."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from pytest_subprocess import FakeProcess

from tests.rig.support.fakecuda import ASK_GXX, compiler, program
from tools.rig.base.errors import CannotError, StepFailed
from tools.rig.base.state import SENTINEL
from tools.rig.builds import compiler_kit, inventory, private_apt
from tools.rig.builds.apt_sources import Source
from tools.rig.host.system import Distribution

DIGEST = f"SHA256:{hashlib.sha256(b'deb').hexdigest()}"


class Machine:
    """A Debian machine with a g++ 14, whose archive has some older ones."""

    def __init__(
        self, fp: FakeProcess, tmp_path: Path, patch: pytest.MonkeyPatch
    ) -> None:
        self.fp = fp
        self.toolkits = tmp_path / "toolkits"
        keys = {"debian": program(tmp_path / "keys.gpg")}
        archive = private_apt.machine_archive

        def with_keys(*args: Any) -> private_apt.Archive:
            return archive(*args, etc=tmp_path, keyrings=keys)

        here = Distribution("debian", "13", "Debian 13", "trixie")
        patch.setattr(compiler_kit, "machine_archive", with_keys)
        patch.setattr(compiler_kit, "have_dpkg", lambda: True)
        self.listed: int | None = None
        self.offered = compiler_kit.offered
        patch.setattr(compiler_kit, "offered", lambda newest, here: self.listed)
        patch.setattr(compiler_kit.system, "distribution", lambda: here)
        patch.setattr(compiler_kit.apt_sources, "read", lambda *etc: [])
        self.hosts = [compiler("g++", "14.2")]
        patch.setattr(compiler_kit.compilers, "find", lambda env: self.hosts)

    def packages(self, major: int, split: bool = True) -> list[str]:
        """Return the packages of one gcc."""
        tools = [f"g++-{major}", f"gcc-{major}", f"cpp-{major}"]
        rest = [f"libstdc++-{major}-dev", f"libgcc-{major}-dev", f"gcc-{major}-base"]
        more = [f"{name}-x86-64-linux-gnu" for name in tools] if split else []
        return [*tools, *rest, *more]

    def archive(self, major: int, *, split: bool = True, version: str = "") -> None:
        """Let the archive have one gcc, and fetching and unpacking work."""
        fp, any_ = self.fp, self.fp.any()
        names = self.packages(major, split)
        fp.register([fp.program("apt-get"), any_, "update"], occurrences=2)
        for other in range(20, 9, -1):
            fp.register(
                [fp.program("apt-cache"), any_, f"g++-{other}"],
                returncode=0 if other == major else 100,
                occurrences=2,
            )
        fp.register(
            [fp.program("apt-cache"), any_, f"g++-{major}-x86-64-linux-gnu"],
            returncode=0 if split else 100,
        )
        fp.register(
            [fp.program("apt-get"), any_, "--print-uris", *names],
            stdout="".join(f"'http://m/{n}' {n}_1.deb 3 {DIGEST}\n" for n in names),
        )
        fp.register(
            ["/usr/lib/apt/apt-helper", any_],
            callback=lambda p: Path(p.args[11]).write_text("deb"),
            occurrences=9,
        )
        fp.register(["dpkg-deb", any_], occurrences=9)
        fp.register(
            ["tar", any_],
            callback=lambda p: program(Path(p.args[5]) / f"usr/bin/g++-{major}"),
            occurrences=9,
        )
        macros = version or f"{major} 3"
        fp.register(
            [fp.program(f"g++-{major}"), *ASK_GXX],
            stdout=f"__clang_major__ __clang_minor__\n{macros}\n",
            occurrences=9,
        )
        fp.register(["sync", any_])

    def bring(self, newest: int = 13) -> Any:
        """Bring a compiler."""
        return compiler_kit.bring(newest, self.toolkits, {}, "http://m/debian")


@pytest.fixture
def machine(
    fp: FakeProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Machine:
    """Return the machine."""
    monkeypatch.setattr(compiler_kit.platform, "machine", lambda: "x86_64")
    return Machine(fp, tmp_path, monkeypatch)


class TestBring:
    """The whole road."""

    @pytest.mark.parametrize("split", [True, False])
    def test_the_newest_that_will_do(self, machine: Machine, split: bool) -> None:
        """The archive is asked from the newest down; old releases have fewer parts."""
        machine.archive(12, split=split)
        found = machine.bring(13)
        path = machine.toolkits / "gcc-12" / "usr" / "bin" / "g++-12"
        assert (found.path, found.version) == (path, "12.3")
        assert (machine.toolkits / "gcc-12" / SENTINEL).is_file()
        left = sorted(p.name for p in machine.toolkits.iterdir())
        assert left == [".lock", "downloads", "gcc-12"]
        assert not list(machine.toolkits.rglob("*.deb"))

    def test_brought_once(self, machine: Machine) -> None:
        """The second time it is there."""
        machine.archive(12)
        machine.bring()
        before = len(machine.fp.calls)
        assert machine.bring().major == 12
        assert [c[0] for c in list(machine.fp.calls)[before:]] == [
            str(machine.toolkits / "gcc-12" / "usr" / "bin" / "g++-12")
        ]

    def test_brought_meanwhile(
        self, machine: Machine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A compiler that another run brought while this one waited is taken."""
        machine.archive(12)
        bench = compiler_kit.workbench

        def slow(toolkits: Path, name: str) -> Any:
            program(toolkits / "gcc-12" / "usr" / "bin" / "g++-12")
            (toolkits / "gcc-12" / SENTINEL).touch()
            return bench(toolkits, name)

        monkeypatch.setattr(compiler_kit, "workbench", slow)
        assert machine.bring().major == 12
        assert not any(c[0] == "tar" for c in machine.fp.calls)

    def test_something_else_in_its_place(self, machine: Machine) -> None:
        """Somebody else's folder is refused before anything is fetched."""
        machine.archive(12)
        (machine.toolkits / "gcc-12").mkdir(parents=True)
        with pytest.raises(StepFailed, match="is in the way"):
            machine.bring()

    @pytest.mark.parametrize(
        ("version", "words"), [("11 2", "is another"), ("x y", "does not say")]
    )
    def test_not_what_was_asked_for(
        self, machine: Machine, version: str, words: str
    ) -> None:
        """A compiler that is another, or does not run, is not kept."""
        machine.archive(12, version=version)
        with pytest.raises(StepFailed, match=words):
            machine.bring()
        assert not (machine.toolkits / "gcc-12").exists()


class TestCannot:
    """What is not possible."""

    def test_no_gcc_at_all(self, machine: Machine) -> None:
        """Without any g++ the parts that it stands on are missing: install one."""
        machine.hosts = [compiler("clang++-17", "17.0")]
        machine.listed = 12
        with pytest.raises(CannotError, match="no host C") as caught:
            machine.bring(13)
        assert caught.value.hint == "sudo apt-get install g++-12"

    def test_no_dpkg(self, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nor on a distribution without dpkg."""
        monkeypatch.setattr(compiler_kit, "have_dpkg", lambda: False)
        with pytest.raises(CannotError, match="no host C"):
            machine.bring()

    def test_archive_has_none(self, machine: Machine, fp: FakeProcess) -> None:
        """An archive with newer ones only is named, with the way to help oneself."""
        machine.archive(15)
        with pytest.raises(CannotError, match="debian trixie has no g.. from 10 to 13"):
            machine.bring(13)
        assert sum(1 for c in fp.calls if c[0] == "apt-cache") == 4

    def test_no_network(self, machine: Machine, fp: FakeProcess) -> None:
        """The lists are read once, and a failure there ends it."""
        err = "W: Failed to fetch http://m\n"
        fp.register([fp.program("apt-get"), fp.any(), "update"], stderr=err)
        with pytest.raises(StepFailed, match="reading the package lists"):
            machine.bring()
        assert len(fp.calls) == 1


class TestDamaged:
    """What was brought, and lost something since."""

    def test_made_again(self, machine: Machine) -> None:
        """A compiler with a file cut short is switched for a new one."""
        machine.archive(12)
        machine.bring()
        final = machine.toolkits / "gcc-12"
        (final / "usr/bin/g++-12").write_text("cut")
        (found,) = compiler_kit.brought(machine.toolkits)
        assert found.problem == "is damaged: usr/bin/g++-12 has 3 of 0 bytes"
        machine.archive(12)
        assert machine.bring().problem == ""
        assert not inventory.damage(final)
        left = sorted(p.name for p in machine.toolkits.iterdir())
        assert left == [".lock", "downloads", "gcc-12"]


class TestOffered:
    """What the machine's own package lists know."""

    @pytest.mark.parametrize(
        ("out", "code", "owner", "parts", "best"),
        [
            (" g++ | 4:12 | m\n g++-12 | 12.2 | m\n", 0, "debian", (), 12),
            (" g++ | 4:15 | m\n", 0, "debian", (), 0),
            (" g++ | 4:15 | m\n", 0, "ubuntu", ("main",), None),
            (" g++ | 4:15 | m\n", 0, "ubuntu", ("main", "universe"), 0),
            ("", 0, "debian", (), None),
            ("", 127, "debian", (), None),
        ],
    )
    def test_answers(
        self,
        machine: Machine,
        monkeypatch: pytest.MonkeyPatch,
        out: str,
        code: int,
        owner: str,
        parts: tuple[str, ...],
        best: int | None,
    ) -> None:
        """None is said to be there only where all parts of the archive are listed."""
        machine.fp.register(
            ["apt-cache", "madison", "g++", *(f"g++-{n}" for n in (13, 12, 11, 10))],
            stdout=out,
            returncode=code,
        )
        source = Source(f"http://m/{owner}", ("x",), parts)
        monkeypatch.setattr(compiler_kit.apt_sources, "read", lambda: [source])
        here = Distribution(owner, "1", owner, "x")
        assert machine.offered(13, here) == best

    def test_an_archive_without_any(self, machine: Machine) -> None:
        """What the archive lacks is told before anything is fetched."""
        machine.listed = 0
        why, hint = compiler_kit.cannot(
            11, machine.hosts, Distribution("debian", "", "")
        )
        assert why == "this distribution's archive has no g++ from 10 to 11"
        assert hint.endswith("export NVCC_CCBIN=/where/it/lies/g++-11")

    def test_another_package_manager(self) -> None:
        """Where there is no apt, the package is named in its own words."""
        why, hint = compiler_kit.cannot(13, [], Distribution("fedora", "42", "Fedora"))
        assert why == "none can be brought on this distribution"
        assert hint == "sudo dnf install gcc-c++"


class TestBrought:
    """What earlier runs brought."""

    def test_newest_first_and_only_ours(self, machine: Machine) -> None:
        """Folders without a sentinel or compiler do not count."""
        for major in (9, 12, 13):
            machine.fp.register(
                [machine.fp.program(f"g++-{major}"), *ASK_GXX], stdout=f"a b\n{major} 1"
            )
            program(machine.toolkits / f"gcc-{major}" / "usr/bin" / f"g++-{major}")
            (machine.toolkits / f"gcc-{major}" / SENTINEL).touch()
        program(machine.toolkits / "gcc-11" / "usr/bin/g++-11")
        (machine.toolkits / "gcc-10").mkdir()
        (machine.toolkits / "gcc-10" / SENTINEL).touch()
        (machine.toolkits / "gcc-odd").mkdir()
        found = compiler_kit.brought(machine.toolkits)
        assert [c.major for c in found] == [13, 12, 9]


class TestMendLinks:
    """Links whose target is the system's."""

    def test_to_the_systems_place(self, tmp_path: Path) -> None:
        """A dangling link leads to the same place of the system, where that exists."""
        tree, system = tmp_path / "tree", tmp_path / "system"
        libs = tree / "usr/lib/gcc/x86_64-linux-gnu/11"
        libs.mkdir(parents=True)
        real = program(system / "usr/lib/x86_64-linux-gnu/libstdc++.so.6")
        (libs / "libstdc++.so").symlink_to("../../../x86_64-linux-gnu/libstdc++.so.6")
        (libs / "libasan.so").symlink_to("../../../x86_64-linux-gnu/libasan.so.6")
        program(libs / "libwhole.so.1")
        (libs / "libwhole.so").symlink_to("libwhole.so.1")
        program(libs / "libgcc_s.so", "GROUP ( libgcc_s.so.1 -lgcc )")
        compiler_kit.mend_links(tree, system)
        assert os.readlink(libs / "libstdc++.so") == str(real)
        assert os.readlink(libs / "libasan.so").startswith("..")
        assert os.readlink(libs / "libwhole.so") == "libwhole.so.1"
        assert not (libs / "libgcc_s.so").is_symlink()
