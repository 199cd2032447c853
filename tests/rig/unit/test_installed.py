# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Finding what an import would find, without importing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pytest_subprocess import FakeProcess

from tools.rig.base.errors import StepFailed
from tools.rig.builds import installed
from tools.rig.builds.installed import Found, Site


def touch(path: Path, text: str = "") -> Path:
    """Make a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def lib(tmp_path: Path) -> Path:
    """Return an empty site-packages folder."""
    (tmp_path / "site").mkdir()
    return tmp_path / "site"


def plain(lib: Path) -> Site:
    """Return the site of one folder."""
    return Site((lib,), (lib,), {})


class TestSite:
    """Asking the interpreter."""

    def test_search_path_and_finders(self, fp: FakeProcess, lib: Path) -> None:
        """Folders that exist, the distributions' folders once, and editable finders."""
        touch(
            lib / "__editable___rig_finder.py",
            "X = 1\nMAPPING: dict[str, str] = {'rig': '/src/it s/rig'}\n",
        )
        touch(lib / "__editable___old_finder.py", "MAPPING = {'old': '/src/old'}\n")
        touch(lib / "__editable___odd_finder.py", "MAPPING = {\n")
        touch(lib / "__editable___none_finder.py", "NAMESPACES = {}\n")
        answer = [["/no/python312.zip", str(lib), str(lib)], [str(lib), str(lib)]]
        fp.register(["/v/bin/python", "-I", "-c", fp.any()], stdout=json.dumps(answer))
        site = installed.site_of(Path("/v/bin/python"), {})
        assert site.path == (lib,)
        assert site.sites == (lib,)
        assert site.mapped == {
            "rig": Path("/src/it s/rig"),
            "old": Path("/src/old"),
        }
        assert site.roots == (lib, Path("/src"), Path("/src/it s"))

    @pytest.mark.parametrize("said", ["", "Fatal Python error", "{"])
    def test_a_broken_interpreter(self, fp: FakeProcess, said: str) -> None:
        """An interpreter that does not answer is an expected failure with a hint."""
        fp.register(["/v/bin/python", "-I", "-c", fp.any()], stdout=said, returncode=1)
        with pytest.raises(StepFailed, match="does not say where") as info:
            installed.site_of(Path("/v/bin/python"), {})
        assert info.value.hint.startswith("/v/bin/python -I -c")


class TestPackage:
    """Where an import would go."""

    def test_a_package(self, lib: Path) -> None:
        """A folder with an __init__.py is a package."""
        touch(lib / "p/__init__.py")
        assert installed.package(plain(lib), "p") == lib / "p"

    def test_a_module_inside(self, lib: Path) -> None:
        """A dotted name is followed into the package."""
        touch(lib / "p/__init__.py")
        touch(lib / "p/_C.abi3.so")
        assert installed.package(plain(lib), "p._C") == lib / "p/_C.abi3.so"
        assert installed.package(plain(lib), "p._D") is None

    def test_a_module_of_one_file(self, lib: Path) -> None:
        """Python files and extension modules count, other files do not."""
        touch(lib / "one.py")
        touch(lib / "two.cpython-312-x86_64-linux-gnu.so")
        touch(lib / "three.txt")
        assert installed.package(plain(lib), "one") == lib / "one.py"
        two = installed.package(plain(lib), "two")
        assert two == lib / "two.cpython-312-x86_64-linux-gnu.so"
        assert installed.package(plain(lib), "three") is None

    def test_a_folder_without_code(self, lib: Path) -> None:
        """A folder that is merely called like it is no package."""
        touch(lib / "p/data.bin")
        assert installed.package(plain(lib), "p") is None
        touch(lib / "p/_C.abi3.so")
        assert installed.package(plain(lib), "p") == lib / "p"

    def test_an_editable_install(self, lib: Path, tmp_path: Path) -> None:
        """The finder's table is asked after the folders, and may point nowhere."""
        touch(tmp_path / "src/p/__init__.py")
        mapped = {"p": tmp_path / "src/p", "q": tmp_path / "src/q"}
        site = Site((lib,), (lib,), mapped)
        assert installed.package(site, "p") == tmp_path / "src/p"
        assert installed.package(site, "q") is None
        touch(lib / "p/__init__.py")
        assert installed.package(site, "p") == lib / "p"


class TestLibraries:
    """Collecting the libraries of a target."""

    def test_folders_records_and_patterns(self, lib: Path) -> None:
        """One library is listed once, whichever way it was found."""
        touch(lib / "p/__init__.py")
        touch(lib / "p/_C.abi3.so")
        touch(lib / "p/sub/_D.abi3.so")
        touch(lib / "p/.half.so")
        touch(lib / "p/._C.abi3.so.rig-new")
        touch(lib / "extra.abi3.so")
        touch(lib / "beside.so")
        touch(
            lib / "p-1.dist-info/RECORD",
            "p/_C.abi3.so,,\np/gone.so,,\nextra.abi3.so,,\np.libs/libz.so.1.2,,\n\n",
        )
        touch(lib / "other-1.dist-info/RECORD", "other/x.so,,\n")
        found = installed.libraries(
            plain(lib), ["p", "p.sub"], ["beside*.so", "p/*.so"]
        )
        assert [f.name for f in found] == [
            "beside.so",
            "extra.abi3.so",
            "p.libs/libz.so.1.2",
            "p/_C.abi3.so",
            "p/gone.so",
            "p/sub/_D.abi3.so",
        ]

    def test_an_editable_checkout(self, lib: Path, tmp_path: Path) -> None:
        """Names are relative to the folder that the finder stands for."""
        touch(tmp_path / "src/p/__init__.py")
        path = touch(tmp_path / "src/p/_C.abi3.so")
        site = Site((lib,), (lib,), {"p": tmp_path / "src/p"})
        assert installed.libraries(site, ["p"], ["p/_C*.so"]) == [
            Found("p/_C.abi3.so", path)
        ]

    def test_a_module_that_is_a_library(self, lib: Path) -> None:
        """A top-level extension module is its own library, a Python file has none."""
        path = touch(lib / "fast.abi3.so")
        touch(lib / "slow.py")
        found = installed.libraries(plain(lib), ["fast", "slow", "none"], [])
        assert found == [Found("fast.abi3.so", path)]

    def test_an_unreadable_record(self, lib: Path) -> None:
        """A record that is no text is passed over; the folders are still searched."""
        touch(lib / "p/__init__.py")
        touch(lib / "p/_C.so")
        (lib / "p-1.dist-info").mkdir()
        (lib / "p-1.dist-info/RECORD").write_bytes(b"\xff\xfe\x00p/_C.so,,")
        found = installed.libraries(plain(lib), ["p"], [])
        assert [f.name for f in found] == ["p/_C.so"]


@pytest.mark.parametrize(
    ("name", "is_library"),
    [
        ("p/_C.abi3.so", True),
        ("p.libs/libz.so.1.2.3", True),
        ("p/._C.abi3.so.rig-new", False),
        ("p/_C.abi3.so.txt", False),
        ("p/so", False),
        ("p.so/readme", False),
    ],
)
def test_is_shared_object(name: str, is_library: bool) -> None:
    """Only names that the loader would be given count."""
    assert installed.is_shared_object(name) is is_library
