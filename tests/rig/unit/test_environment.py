# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The environment of a build: the user's values stay."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tools.rig.base.errors import CannotError, UsageError
from tools.rig.builds import environment, profile
from tools.rig.builds.compile_cache import CompileCache
from tools.rig.builds.environment import Composed, Places

PLACES = Places(
    *map(Path, ("/src", "/home", "/venv", "/new", "/tmp-here", "/deps", "/cache"))
)
V100 = profile.load("v100-cu128")
CHAIN = {"CUDA_HOME": "/cuda", "CUDACXX": "/cuda/bin/nvcc", "PATH": "/cuda/bin:/bin"}


def compose(user: dict[str, str], cache: str = "", **chain: str) -> Composed:
    """Compose for the V100."""
    chosen = CompileCache(cache, f"/bin/{cache}") if cache else None
    return environment.compose(
        user, V100, PLACES, 3, {**CHAIN, **chain}, {"XDG_CONFIG_HOME": "/git"}, chosen
    )


def test_a_clean_user() -> None:
    """All that a build needs is added."""
    add = compose({}).add
    assert add["PATH"] == "/venv/bin:/cuda/bin:/bin"
    assert add["VIRTUAL_ENV"] == "/venv" and add["MAX_JOBS"] == "3"
    assert add["TORCH_CUDA_ARCH_LIST"] == V100.arch_list
    assert add["TMPDIR"] == "/tmp-here" and add["UV_CACHE_DIR"] == "/cache/uv"
    assert add["FETCHCONTENT_BASE_DIR"] == "/deps"
    assert add["FLASH_ATTN_V100_CUDA_ARCH_LIST"] == "7.0"
    assert add["XDG_CONFIG_HOME"] == "/git" and add["CUDA_HOME"] == "/cuda"
    assert compose({}).notes == ()


@pytest.mark.parametrize(
    "name", ["TMPDIR", "UV_CACHE_DIR", "FETCHCONTENT_BASE_DIR", "NVCC_THREADS"]
)
def test_the_users_values_stay(name: str) -> None:
    """What the user has set is not touched, and is worth a line."""
    found = compose({name: "/theirs"})
    assert name not in found.add
    assert found.notes == (f"{name}=/theirs is yours and stays",)


def test_the_same_value_is_no_news() -> None:
    """A value that is ours anyway needs no line."""
    assert compose({"TMPDIR": "/tmp-here"}).notes == ()


@pytest.mark.parametrize("name", environment.ASTRAY)
def test_what_leads_astray(name: str) -> None:
    """What would install elsewhere is told, and not handed on as the user's own."""
    found = compose({name: "/elsewhere"})
    assert name not in found.add
    [note] = found.notes
    assert note.startswith(f"{name}=/elsewhere is dropped for the build")


def test_path_without_a_toolchain() -> None:
    """Without a toolchain the user's own PATH is extended."""
    found = environment.compose({"PATH": "/bin"}, V100, PLACES, 1, {}, {})
    assert found.add["PATH"] == "/venv/bin:/bin"


class TestArchList:
    """TORCH_CUDA_ARCH_LIST."""

    @pytest.mark.parametrize(
        "given", ["7.0;8.0", "7.0+PTX", "8.0 7.0", "7.0,8.6+PTX", "Volta"]
    )
    def test_kept(self, given: str) -> None:
        """A list with the profile's card in it is the user's business."""
        assert compose({"TORCH_CUDA_ARCH_LIST": given}).add["TORCH_CUDA_ARCH_LIST"] == (
            given
        )

    @pytest.mark.parametrize("given", ["8.0", "7.5+PTX", "Ampere", "70"])
    def test_refused(self, given: str) -> None:
        """One without it would end in a build that does not run there."""
        with pytest.raises(CannotError, match="leaves out 7.0") as caught:
            compose({"TORCH_CUDA_ARCH_LIST": given})
        assert caught.value.hint == "unset TORCH_CUDA_ARCH_LIST"

    def test_two_cards(self) -> None:
        """Every card of the profile must be in it."""
        both = replace(V100, sms=(70, 80), arch_list="7.0;8.0")
        with pytest.raises(CannotError, match="leaves out 8.0"):
            environment.compose(
                {"TORCH_CUDA_ARCH_LIST": "7.0"}, both, PLACES, 1, CHAIN, {}
            )


class TestTmpdir:
    """A folder for temporary files that the user names."""

    def test_good_or_not_set(self, tmp_path: Path) -> None:
        """Nothing is said of a folder, nor where none is named."""
        environment.check_tmpdir({"TMPDIR": str(tmp_path)})
        environment.check_tmpdir({"TMPDIR": ""})

    def test_no_folder(self, tmp_path: Path) -> None:
        """A path that is missing or a file is refused by its name."""
        file = tmp_path / "file"
        file.touch()
        for bad in (file, tmp_path / "none"):
            with pytest.raises(UsageError) as caught:
                environment.check_tmpdir({"TMPDIR": str(bad)})
            assert caught.value.what == f"TMPDIR={bad} is no folder"
            assert caught.value.hint == "unset TMPDIR"

    def test_not_writable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """One that cannot be written to is refused, too."""
        monkeypatch.setattr(environment.os, "access", lambda path, mode: False)
        with pytest.raises(UsageError, match="cannot be written to"):
            environment.check_tmpdir({"TMPDIR": "/"})


class TestCompileCache:
    """What makes a second build hit."""

    def test_ccache(self) -> None:
        """It looks through build folders and dates."""
        add = compose({}, "ccache").add
        assert add["CCACHE_DIR"] == "/cache/ccache"
        assert add["CCACHE_NOHASHDIR"] == "true" and add["CCACHE_BASEDIR"] == "/src"
        assert add["CCACHE_COMPILERCHECK"] == "content"

    def test_the_users_cache(self) -> None:
        """A cache folder of the user's own stays."""
        found = compose({"CCACHE_DIR": "/big"}, "ccache")
        assert "CCACHE_DIR" not in found.add
        assert "CCACHE_DIR=/big is yours and stays" in found.notes

    def test_what_is_to_know(self) -> None:
        """What choosing it had to say is said."""
        chosen = CompileCache(note="none here")
        found = environment.compose({}, V100, PLACES, 1, {}, {}, chosen)
        assert found.notes == ("none here",)

    def test_other_caches(self) -> None:
        """Without ccache nothing is said of it."""
        for cache in ("", "sccache"):
            assert not [k for k in compose({}, cache).add if k.startswith("CCACHE")]
