# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Reading shared libraries without binutils."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.rig.support import elf_file
from tools.rig.host import elf


class TestRead:
    """Everything that the loader would look at."""

    def test_dynamic_section(self, tmp_path: Path) -> None:
        """Names, needs and search paths come back as they were linked."""
        image = elf.read(
            elf_file.write(
                tmp_path / "a.so",
                soname="liba.so.1",
                needed=["libb.so", "libc.so.6"],
                rpath="/one:$ORIGIN/two",
                runpath="$ORIGIN",
            )
        )
        assert image.soname == "liba.so.1"
        assert image.needed == ("libb.so", "libc.so.6")
        assert image.rpath == ("/one", "$ORIGIN/two")
        assert image.runpath == ("$ORIGIN",)
        assert image.machine == 62

    def test_symbols(self, tmp_path: Path) -> None:
        """Weak needs do not count, hidden and local symbols serve nobody."""
        image = elf.read(
            elf_file.write(
                tmp_path / "a.so",
                undefined=["f"],
                weak=["g"],
                defined=["h"],
                hidden=["i"],
                local=["j"],
            )
        )
        assert image.undefined == {"f"}
        assert image.defined == {"h"}

    def test_versions(self, tmp_path: Path) -> None:
        """Wanted versions keep their library; what only weak symbols want does not."""
        image = elf.read(
            elf_file.write(
                tmp_path / "a.so",
                wants={"libc.so.6": ["GLIBC_2.38", "?GLIBC_9"], "libm.so.6": ["M_1"]},
                gives=["A_1", "A_2"],
            )
        )
        assert image.wants == (("libc.so.6", "GLIBC_2.38"), ("libm.so.6", "M_1"))
        assert image.gives == {"A_1", "A_2"}

    def test_sections(self, tmp_path: Path) -> None:
        """Section names are told, and one without bytes in the file is no error."""
        image = elf.read(elf_file.write(tmp_path / "a.so", sections=[".nv_fatbin"]))
        assert {".nv_fatbin", ".bss"} <= image.sections

    def test_the_running_python(self) -> None:
        """A program of this machine can be read, and needs a C library."""
        image = elf.read(Path(sys.executable).resolve())
        assert any("libc" in n or "libpython" in n for n in image.needed)


class TestProblems:
    """A file that cannot be trusted is never read as one that holds nothing."""

    @pytest.mark.parametrize("keep", [-1, 500, 70, 10, 0])
    def test_cut_short(self, tmp_path: Path, keep: int) -> None:
        """Every length of a copy that broke off is noticed."""
        path = elf_file.write(tmp_path / "a.so", sections=[".nv_fatbin"])
        path.write_bytes(path.read_bytes()[:keep])
        with pytest.raises(elf.ElfProblem, match="short"):
            elf.read(path)

    def test_a_section_outside_the_file(self, tmp_path: Path) -> None:
        """Headers that survive in front of missing content do not help."""
        path = elf_file.write(tmp_path / "a.so")
        data = bytearray(path.read_bytes())
        table = int.from_bytes(data[40:48], "little")
        data[table + 64 + 32 : table + 64 + 40] = (1 << 40).to_bytes(8, "little")
        path.write_bytes(data)
        with pytest.raises(elf.ElfProblem, match="cut short"):
            elf.read(path)

    def test_no_elf_file(self, tmp_path: Path) -> None:
        """A text file, as a pointer left by git-lfs, is named as what it is not."""
        path = tmp_path / "a.so"
        path.write_text("version https://git-lfs.github.com/spec/v1\n" * 4)
        with pytest.raises(elf.ElfProblem, match="not an ELF file"):
            elf.read(path)

    def test_32_bit(self, tmp_path: Path) -> None:
        """Another word size is refused, not misread."""
        path = elf_file.write(tmp_path / "a.so")
        data = bytearray(path.read_bytes())
        data[4] = 1
        path.write_bytes(data)
        with pytest.raises(elf.ElfProblem, match="64-bit"):
            elf.read(path)

    def test_no_section_headers(self, tmp_path: Path) -> None:
        """A library whose headers were stripped is unknown, not empty."""
        path = elf_file.write(tmp_path / "a.so")
        data = bytearray(path.read_bytes())
        data[60:62] = b"\0\0"
        path.write_bytes(data)
        with pytest.raises(elf.ElfProblem, match="no section headers"):
            elf.read(path)

    def test_nonsense_inside(self, tmp_path: Path) -> None:
        """A name that points outside its table is a contradiction."""
        path = elf_file.write(tmp_path / "a.so", needed=["libb.so"])
        data = path.read_bytes()
        at = data.index((1).to_bytes(8, "little") + (1).to_bytes(8, "little"))
        broken = data[: at + 8] + (1 << 20).to_bytes(8, "little") + data[at + 16 :]
        path.write_bytes(broken)
        with pytest.raises(elf.ElfProblem, match="contradicts itself"):
            elf.read(path)

    def test_no_file(self, tmp_path: Path) -> None:
        """A file that is not there says so."""
        with pytest.raises(elf.ElfProblem, match="cannot be read: No such file"):
            elf.read(tmp_path / "none.so")
