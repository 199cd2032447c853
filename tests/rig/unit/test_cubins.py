# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What cuobjdump lists, and when its answer is not believed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_subprocess import FakeProcess

from tests.rig.support import elf_file
from tools.rig.host import cubins
from tools.rig.host.cubins import Content

TOOL = Path("/tk/bin/cuobjdump")


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """Return a whole library with a section for GPU code."""
    return elf_file.write(tmp_path / "a b/x.so", sections=[".nv_fatbin"])


def listing(
    fp: FakeProcess, library: Path, elf: tuple[str, int], ptx: tuple[str, int]
) -> None:
    """Let cuobjdump answer; a text that starts with "cuobjdump" goes to stderr."""
    for flag, (text, code) in (("--list-elf", elf), ("--list-ptx", ptx)):
        err = text if text.startswith("cuobjdump") else ""
        fp.register(
            [str(TOOL), flag, str(library)],
            stdout="" if err else text,
            stderr=err,
            returncode=code,
        )


NO_PTX = ("cuobjdump info    : No PTX file found to extract from 'x.so'. Try -all.", 0)


class TestRead:
    """Listings as real tools print them."""

    def test_cubins_and_ptx(self, fp: FakeProcess, library: Path) -> None:
        """Architectures are sorted and unique, cubins are counted."""
        elf = (
            "ELF file    1: x.1.sm_80.cubin\n"
            "ELF file    2: x.2.sm_70.cubin\n"
            "ELF file    3: x.3.sm_70.cubin\n"
            "ELF file    4: x.4.sm_90a.cubin\n"
        )
        listing(fp, library, (elf, 0), ("PTX file    1: x.1.sm_70.ptx\n", 0))
        assert cubins.read(library, TOOL) == Content((70, 80, 90), 4, (70,))

    def test_no_ptx(self, fp: FakeProcess, library: Path) -> None:
        """A library without PTX is good, and said to be without by cuobjdump."""
        listing(fp, library, ("ELF file    1: x.1.sm_70.cubin\n", 0), NO_PTX)
        assert cubins.read(library, TOOL) == Content((70,), 1)

    def test_only_ptx(self, fp: FakeProcess, library: Path) -> None:
        """PTX alone is listed as such."""
        none = "cuobjdump info    : No ELF file found to extract from 'x.so'. Try -all."
        listing(fp, library, (none, 0), ("PTX file    1: x.1.sm_70.ptx\n", 0))
        assert cubins.read(library, TOOL) == Content((), 0, (70,))

    def test_no_device_code(self, fp: FakeProcess, tmp_path: Path) -> None:
        """A plain library is empty, which is no problem in itself."""
        library = elf_file.write(tmp_path / "x.so")
        none = f"cuobjdump info    : File '{library}' does not contain device code"
        listing(fp, library, (none, 255), (none, 255))
        content = cubins.read(library, TOOL)
        assert content == Content()
        assert content.empty


class TestDoubt:
    """Anything odd is a problem, and a problem is never "fine"."""

    def test_an_empty_answer_with_a_section_for_code(
        self, fp: FakeProcess, library: Path
    ) -> None:
        """An answer of "none" is not believed where there is a section for it."""
        none = f"cuobjdump info    : File '{library}' does not contain device code"
        listing(fp, library, (none, 255), (none, 255))
        content = cubins.read(library, TOOL)
        assert content.problem == "cuobjdump finds nothing in its .nv_fatbin"
        assert not content.empty

    def test_a_file_that_was_cut_short(self, fp: FakeProcess, library: Path) -> None:
        """Cuobjdump calls it a library without GPU code, so it is not even asked."""
        library.write_bytes(library.read_bytes()[:-10])
        assert "cut short" in cubins.read(library, TOOL).problem
        assert not fp.calls

    @pytest.mark.parametrize(
        ("elf", "ptx", "words"),
        [
            (("", 0), NO_PTX, "--list-elf ended with status 0 and said: nothing"),
            (("", 1), NO_PTX, "--list-elf ended with status 1 and said: nothing"),
            (("hello\n", 0), NO_PTX, "status 0 and said: hello"),
            (("cuobjdump fatal   : broken", 255), NO_PTX, "broken"),
            (("ELF file    1: x.sm_70.cubin\n", 1), NO_PTX, "ended with status 1"),
            (("ELF file    1: x.sm_70.cubin\nhm\n", 0), NO_PTX, "said: hm"),
            (("ELF file    1: x.sm_70.cubin\n", 0), ("", 139), "--list-ptx ended"),
        ],
        ids=[
            "silence",
            "silent failure",
            "nonsense",
            "fatal",
            "listing and then failure",
            "nonsense among the listing",
            "crash in the second listing",
        ],
    )
    def test_a_bad_answer(
        self,
        fp: FakeProcess,
        library: Path,
        elf: tuple[str, int],
        ptx: tuple[str, int],
        words: str,
    ) -> None:
        """The problem quotes what cuobjdump did."""
        listing(fp, library, elf, ptx)
        content = cubins.read(library, TOOL)
        assert words in content.problem
        assert content.sass == ()

    def test_no_cuobjdump(self, fp: FakeProcess, library: Path) -> None:
        """A tool that is not there is a problem of its own."""
        fp.allow_unregistered(True)
        problem = cubins.read(library, library.with_name("none")).problem
        assert problem.startswith("cuobjdump cannot be started")
