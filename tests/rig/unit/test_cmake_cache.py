# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A build folder of other compilers is configured anew."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tools.rig.base.errors import StepFailed
from tools.rig.builds import cmake_cache

CACHE = (
    "# a comment\nCMAKE_CUDA_COMPILER:FILEPATH=/k/cuda-12.4/bin/nvcc\n"
    "CMAKE_CXX_COMPILER:STRING=/usr/bin/g++-12\nOTHER:BOOL=ON\n"
)
SAME = {"CUDACXX": "/k/cuda-12.4/bin/nvcc", "CXX": "/usr/bin/g++-12"}


@pytest.mark.parametrize(
    ("env", "other"),
    [
        (SAME, ""),
        ({}, ""),
        ({**SAME, "CUDACXX": "/k/cuda-11.8/bin/nvcc"}, "/k/cuda-12.4/bin/nvcc"),
        ({**SAME, "CXX": "/usr/bin/g++-11"}, "/usr/bin/g++-12"),
        ({"CUDAHOSTCXX": "/usr/bin/g++-11"}, "/usr/bin/g++-12"),
    ],
    ids=["the same", "nothing asked", "nvcc", "g++", "the host compiler of nvcc"],
)
def test_whose_cache(env: dict[str, str], other: str) -> None:
    """Either compiler decides; what is not asked for does not."""
    assert cmake_cache.foreign(CACHE, env) == other


def test_only_cmakes_notes_go(tmp_path: Path) -> None:
    """Objects and ninja's log stay, so what is still good is not compiled again."""
    folder = tmp_path / "build" / "temp.linux"
    notes = folder / "CMakeFiles" / "3.31.2"
    notes.mkdir(parents=True)
    for kept in ("CMakeFiles/_C.dir", "other"):
        (folder / kept).mkdir()
    (folder / ".ninja_log").touch()
    (folder / "CMakeCache.txt").write_text(CACHE)
    said = cmake_cache.refresh(tmp_path, {**SAME, "CUDACXX": "/other/nvcc"})
    assert said == ["temp.linux was configured for /k/cuda-12.4/bin/nvcc: anew"]
    assert sorted(p.name for p in folder.iterdir()) == [
        ".ninja_log",
        "CMakeFiles",
        "other",
    ]
    assert [p.name for p in (folder / "CMakeFiles").iterdir()] == ["_C.dir"]
    assert cmake_cache.refresh(tmp_path, SAME) == []


@pytest.mark.parametrize("line", ["CMAKE_CACHEFILE_DIR", "CMAKE_HOME_DIRECTORY"])
def test_moved(tmp_path: Path, line: str) -> None:
    """A cache that was made in another place is forgotten, a link to ours is ours."""
    checkout = tmp_path / "copy"
    folder = checkout / "build" / "temp.linux"
    folder.mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(checkout)
    own = {
        "CMAKE_CACHEFILE_DIR": f"{link}/build/temp.linux",
        "CMAKE_HOME_DIRECTORY": str(link),
    }

    def refresh(**values: str) -> list[str]:
        lines = [f"{k}:INTERNAL={v}\n" for k, v in {**own, **values}.items()]
        (folder / "CMakeCache.txt").write_text(CACHE + "".join(lines))
        return cmake_cache.refresh(checkout, SAME)

    assert refresh() == []
    assert refresh(CMAKE_HOME_DIRECTORY=f"{checkout}/csrc") == []
    (tmp_path / "first").mkdir()
    for other in (f"{tmp_path}/first", f"{tmp_path}/gone"):
        said = refresh(**{line: other})
        assert said == [f"temp.linux was configured for {other}: anew"]
        assert not (folder / "CMakeCache.txt").exists()


def test_odd_names(tmp_path: Path) -> None:
    """A place keeps its bytes, whatever the locale takes them for."""
    checkout = tmp_path / os.fsdecode(b"caf\xe9 \xe4\xb8\xad")
    folder = checkout / "build" / "temp.linux"
    folder.mkdir(parents=True)
    line = f"CMAKE_CACHEFILE_DIR:INTERNAL={folder}\n"
    (folder / "CMakeCache.txt").write_bytes(os.fsencode(line))
    assert cmake_cache.refresh(checkout, {}) == []


def test_cannot_be_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache that must go and stays stops the build: it would be configured wrong."""
    folder = tmp_path / "build" / "temp.linux"
    folder.mkdir(parents=True)
    (folder / "CMakeCache.txt").write_text(CACHE)

    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(StepFailed, match=r"cannot write .*CMakeCache\.txt"):
        cmake_cache.refresh(tmp_path, {**SAME, "CUDACXX": "/other/nvcc"})
