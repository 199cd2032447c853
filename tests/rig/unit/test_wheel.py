# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Reading built wheels."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tools.rig.base.errors import StepFailed
from tools.rig.builds import wheel

METADATA = """\
Metadata-Version: 2.1
Name: demo
Version: 1.2+cu128
Requires-Dist: torch==2.10.0
Requires-Dist: numpy<3 ; python_version >= "3.12"
Requires-Dist: old ; python_version < "3.12"
Requires-Dist: nvidia-x[cu13] (>=1) ; platform_system == "Linux"
Requires-Dist: win ; platform_system == "Windows"
Requires-Dist: matplotlib ; extra == "plot"

Text of the description.
"""


def make(folder: Path, metadata: str | None = METADATA) -> Path:
    """Write a wheel."""
    made = folder / "demo-1.2+cu128-cp38-abi3-linux_x86_64.whl"
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("demo/", "")
        archive.writestr("demo/__init__.py", "")
        archive.writestr("demo/_version.py", "")
        archive.writestr("demo/_C.abi3.so", "code")
        archive.writestr("demo/vendor/other-1.dist-info/METADATA", "Name: other\n")
        archive.writestr("demo-1.2+cu128.data/scripts/tool", "")
        archive.writestr("demo-1.2+cu128.dist-info/WHEEL", "Wheel-Version: 1.0\n")
        if metadata is not None:
            archive.writestr("demo-1.2+cu128.dist-info/METADATA", metadata)
    return made


class TestOnlyWheel:
    """The one wheel of a folder."""

    def test_one(self, tmp_path: Path) -> None:
        """It is found beside other files."""
        made = make(tmp_path)
        (tmp_path / "constraints.txt").touch()
        assert wheel.only_wheel(tmp_path) == made

    def test_none(self, tmp_path: Path) -> None:
        """No wheel is a failure."""
        with pytest.raises(StepFailed, match="found none"):
            wheel.only_wheel(tmp_path)

    def test_two(self, tmp_path: Path) -> None:
        """Two are one too many, and both are named."""
        for name in ("a.whl", "b.whl"):
            (tmp_path / name).touch()
        with pytest.raises(StepFailed, match="found a.whl, b.whl"):
            wheel.only_wheel(tmp_path)


class TestRequirements:
    """What it needs at run time."""

    def test_markers_and_extras(self, tmp_path: Path) -> None:
        """Markers are weighed for the Python asked for; extras are left out."""
        made = make(tmp_path)
        new, old = ["torch==2.10.0", "numpy<3"], ["torch==2.10.0", "old"]
        both = ["nvidia-x[cu13]>=1"]
        assert wheel.requirements(made, "3.12.3") == new + both
        assert wheel.requirements(made, "3.9.1") == old + both

    def test_our_own_python(self, tmp_path: Path) -> None:
        """Without one, our own Python counts."""
        found = wheel.requirements(make(tmp_path))
        assert len(found) == 3 and found[0] == "torch==2.10.0"

    def test_none(self, tmp_path: Path) -> None:
        """A wheel that needs nothing gives an empty list."""
        made = make(tmp_path, "Name: demo\nVersion: 1\n")
        assert wheel.requirements(made) == []

    def test_bad_line(self, tmp_path: Path) -> None:
        """A requirement that cannot be read is quoted."""
        made = make(tmp_path, "Name: demo\nRequires-Dist: ???\n")
        with pytest.raises(StepFailed, match=r"a requirement '\?\?\?'"):
            wheel.requirements(made)


class TestMetadata:
    """What it says of itself."""

    def test_version(self, tmp_path: Path) -> None:
        """Its own metadata counts, not that of a package inside."""
        assert wheel.version(make(tmp_path)) == "1.2+cu128"

    def test_no_metadata(self, tmp_path: Path) -> None:
        """A zip file without metadata is no wheel."""
        with pytest.raises(StepFailed, match="it is no wheel"):
            wheel.version(make(tmp_path, None))

    @pytest.mark.parametrize("content", ["", "text"])
    def test_no_zip(self, tmp_path: Path, content: str) -> None:
        """A file that was cut short is named with what that means."""
        made = tmp_path / "a b.whl"
        made.write_text(content)
        with pytest.raises(StepFailed, match="cannot read") as caught:
            wheel.version(made)
        assert "cut short" in caught.value.usual
        assert caught.value.hint == f"ls -l '{made}'"

    def test_missing(self, tmp_path: Path) -> None:
        """So is one that is not there."""
        with pytest.raises(StepFailed, match="cannot read"):
            wheel.version(tmp_path / "none.whl")


def test_made_files(tmp_path: Path) -> None:
    """What git does not track was made by the build; metadata and scripts are not."""
    found = wheel.made_files(make(tmp_path), ["demo/__init__.py", "setup.py"])
    assert found == [
        "demo/_version.py",
        "demo/_C.abi3.so",
        "demo/vendor/other-1.dist-info/METADATA",
    ]


class TestHollow:
    """A copy with the metadata alone."""

    def test_only_metadata(self, tmp_path: Path) -> None:
        """It has the same name and no library to unpack."""
        made = wheel.hollow(make(tmp_path), tmp_path / "in" / "hollow")
        assert made.name == "demo-1.2+cu128-cp38-abi3-linux_x86_64.whl"
        with zipfile.ZipFile(made) as archive:
            assert archive.namelist() == [
                "demo-1.2+cu128.dist-info/WHEEL",
                "demo-1.2+cu128.dist-info/METADATA",
            ]
        assert wheel.version(made) == "1.2+cu128"

    def test_cannot_be_written(self, tmp_path: Path) -> None:
        """A folder that cannot be made is a message."""
        (tmp_path / "file").touch()
        with pytest.raises(StepFailed, match="cannot write"):
            wheel.hollow(make(tmp_path), tmp_path / "file")


class TestSame:
    """Whether a new wheel, or a file in a checkout, is what is there already."""

    def test_same(self, tmp_path: Path) -> None:
        """Content counts, neither order nor dates; what is no wheel is not the same."""
        (tmp_path / "one").mkdir()
        (tmp_path / "two").mkdir()
        one, two = make(tmp_path / "one"), make(tmp_path / "two")
        with zipfile.ZipFile(one) as old, zipfile.ZipFile(two, "w") as new:
            for name in reversed(old.namelist()):
                new.writestr(
                    zipfile.ZipInfo(name, (2001, 1, 1, 0, 0, 0)), old.read(name)
                )
        assert wheel.same(one, two)
        with zipfile.ZipFile(two, "a") as new:
            new.writestr("demo/more.py", "")
        assert not wheel.same(one, two)
        two.write_text("no wheel")
        assert not wheel.same(one, two) and not wheel.same(one, tmp_path / "gone")

    @pytest.mark.parametrize(
        ("text", "held"), [("code", True), ("cope", False), ("codes", False)]
    )
    def test_holds(self, tmp_path: Path, text: str, held: bool) -> None:
        """Length and checksum of a library tell."""
        built, file = make(tmp_path), tmp_path / "lib.so"
        file.write_text(text)
        assert wheel.holds(built, "demo/_C.abi3.so", file) is held
        assert not wheel.holds(built, "demo/_C.abi3.so", tmp_path / "gone")
        assert not wheel.holds(built, "demo/gone.so", file)
