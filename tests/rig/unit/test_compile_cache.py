# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Which compile cache is chosen, what it is told, and what it said."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.rig.base.errors import CannotError, StepFailed
from tools.rig.builds import compile_cache
from tools.rig.builds.compile_cache import CompileCache
from tools.rig.builds.work_folder import WorkFolder

CCACHE = CompileCache("ccache", "/bin/ccache")
SCCACHE = CompileCache("sccache", "/bin/sccache")
REDIS = {"SCCACHE_REDIS": "redis://host"}


def have(*names: str) -> Callable[..., str | None]:
    """Return a look-up that knows these programs."""
    return lambda name, path: f"/bin/{name}" if name in names else None


def choose(
    setting: str, *names: str, python: str = "/py/bin/python", **env: str
) -> CompileCache:
    """Choose among these programs."""
    return compile_cache.choose(setting, env, python, have(*names))


class TestChoose:
    """The setting, the user's shared cache, and what is installed decide."""

    def test_auto(self) -> None:
        """Without a wish ccache goes first, then sccache."""
        assert choose("auto", "ccache", "sccache") == CCACHE
        assert choose("auto", "sccache") == SCCACHE

    def test_ours(self, tmp_path: Path) -> None:
        """The sccache beside our own Python serves where none is installed."""
        (tmp_path / "sccache").touch()
        python = str(tmp_path / "python")
        assert choose("auto", python=python).program == str(tmp_path / "sccache")
        assert choose("auto", "sccache", python=python) == SCCACHE

    def test_shared(self) -> None:
        """A shared cache of the user's is used, by the program that can."""
        found = choose("auto", "ccache", "sccache", **REDIS)
        assert found == CompileCache("sccache", "/bin/sccache", True)
        assert not choose("ccache", "ccache", **REDIS).shared
        lost = choose("auto", "ccache", **REDIS)
        assert lost.name == "ccache"
        assert lost.note == "sccache is not here, so the shared cache is not used"
        off = choose("auto", "ccache", "sccache", **REDIS, VLLM_DISABLE_SCCACHE="1")
        assert off.note == "sccache is switched off, so the shared cache is not used"

    def test_by_name(self) -> None:
        """A cache that is asked for is taken, or its absence is an error."""
        assert choose("sccache", "ccache", "sccache") == SCCACHE
        assert choose("none", "ccache") == CompileCache()
        with pytest.raises(CannotError, match="sccache is not installed") as caught:
            choose("sccache", "ccache")
        assert caught.value.hint == "export ONECAT_COMPILE_CACHE=auto"

    def test_switched_off(self) -> None:
        """Who switched sccache off for the target does not get it from us."""
        off = {"VLLM_DISABLE_SCCACHE": "1"}
        assert choose("auto", "sccache", **off).name == ""
        assert choose("auto", "sccache", VLLM_DISABLE_SCCACHE="0") == SCCACHE

    def test_nothing_here(self) -> None:
        """Without any, what that means is said."""
        assert choose("auto").note.startswith("neither ccache nor sccache")


class TestEnvironment:
    """What caches and script are told."""

    def test_defaults(self) -> None:
        """Each has its folder and its size; none has nothing."""
        paths = Path("/cache"), Path("/src")
        found = compile_cache.defaults(CCACHE, *paths)
        assert found["CCACHE_DIR"] == "/cache/ccache"
        assert found["CCACHE_MAXSIZE"] == "10G"
        found = compile_cache.defaults(SCCACHE, *paths)
        assert found["SCCACHE_DIR"] == "/cache/sccache"
        assert found["SCCACHE_IGNORE_SERVER_IO_ERROR"] == "1"
        assert compile_cache.defaults(CompileCache(), *paths) == {}

    def test_launchers(self) -> None:
        """CMake and torch start our script, whatever cache it is; a user's stays."""
        script = Path("/shims/rig-cache")
        env = {"CUDACXX": "/cuda/nvcc", "CMAKE_ARGS": "-DMORE=1"}
        for cache in (CCACHE, SCCACHE, CompileCache()):
            found = compile_cache.forced(cache, script, env, None, ["/admit"])
            assert found["CMAKE_ARGS"] == (
                "-DCMAKE_C_COMPILER_LAUNCHER=/admit;/shims/rig-cache "
                "-DCMAKE_CXX_COMPILER_LAUNCHER=/admit;/shims/rig-cache "
                "-DCMAKE_CUDA_COMPILER_LAUNCHER=/admit;/shims/rig-cache -DMORE=1"
            )
            assert found["PYTORCH_NVCC"] == "/admit /shims/rig-cache /cuda/nvcc"
            assert found["RIG_CACHE"] == cache.program

    @pytest.mark.parametrize(
        "env",
        [{}, {"CUDACXX": "/a b/nvcc"}, {"CUDACXX": "/n", "PYTORCH_NVCC": "theirs"}],
    )
    def test_torch(self, env: dict[str, str]) -> None:
        """A path that torch would split is not handed over, nor a user's replaced."""
        found = compile_cache.forced(CCACHE, Path("/s"), env, None)
        assert "PYTORCH_NVCC" not in found

    def test_folder(self) -> None:
        """The folder that must have room is the one in force, if it is here."""
        env = {"CCACHE_DIR": "/big"}
        assert compile_cache.environment(CCACHE, env, None)["RIG_CACHE_DIR"] == "/big"
        shared = CompileCache("sccache", "/bin/sccache", True)
        env = {"SCCACHE_DIR": "/here"}
        assert compile_cache.environment(shared, env, None)["RIG_CACHE_DIR"] == ""

    def test_the_warning(self) -> None:
        """Nvcc's words about old cards are switched off for sccache alone, once."""
        quiet = "-Wno-deprecated-gpu-targets"
        add = compile_cache.environment
        assert add(SCCACHE, {}, None)["NVCC_APPEND_FLAGS"] == quiet
        theirs = {"NVCC_APPEND_FLAGS": "-g"}
        assert add(SCCACHE, theirs, None)["NVCC_APPEND_FLAGS"] == f"-g {quiet}"
        theirs = {"NVCC_PREPEND_FLAGS": quiet}
        assert "NVCC_APPEND_FLAGS" not in add(SCCACHE, theirs, None)
        assert "NVCC_APPEND_FLAGS" not in add(CCACHE, {}, None)

    def test_near(self, tmp_path: Path) -> None:
        """A path and what it really is have one link."""
        (tmp_path / "real").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "real")
        near = {tmp_path / "link": Path("/w/near/env"), Path("/src"): Path("/w/near/s")}
        work = WorkFolder(Path("/src"), Path("/w"), near, {})
        found = compile_cache.environment(CCACHE, {}, work)["RIG_NEAR"]
        assert found.split("\n") == [
            "/w",
            *(f"{tmp_path}/link", "/w/near/env"),
            *(f"{tmp_path}/real", "/w/near/env"),
            *("/src", "/w/near/s"),
        ]


class TestLauncher:
    """The script that ninja knows."""

    def test_content(self, tmp_path: Path) -> None:
        """It runs a copy of ours by a Python without site, and says so plainly."""
        script = compile_cache.launcher(tmp_path, Path("/a b/python"))
        assert script == tmp_path / "rig-cache"
        assert script.stat().st_mode & 0o777 == 0o700
        copy = tmp_path / "rig-cache.py"
        assert script.read_text().splitlines()[1] == (
            f"exec '/a b/python' -I -S {copy} \"$@\""
        )
        assert "def rewrite(" in copy.read_text()

    def test_again(self, tmp_path: Path) -> None:
        """What is right is not touched: another build may be starting it."""
        script = compile_cache.launcher(tmp_path, Path("/python"))
        before = script.stat().st_ino
        compile_cache.launcher(tmp_path, Path("/python"))
        assert script.stat().st_ino == before
        script.chmod(0o600)
        compile_cache.launcher(tmp_path, Path("/python"))
        assert script.stat().st_mode & 0o777 == 0o700

    def test_never_without_its_rights(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Under its name it can be started from the first moment on."""
        seen = []
        real = os.replace

        def replace(old: Path, new: Path) -> None:
            seen.append((new.name, old.stat().st_mode & 0o777))
            real(old, new)

        monkeypatch.setattr(os, "replace", replace)
        compile_cache.launcher(tmp_path, Path("/python"))
        assert seen == [("rig-cache.py", 0o600), ("rig-cache", 0o700)]

    def test_no_folder(self, tmp_path: Path) -> None:
        """A place that cannot be written is named."""
        (tmp_path / "file").touch()
        with pytest.raises(StepFailed):
            compile_cache.launcher(tmp_path / "file")


class TestCounts:
    """What a build's record says of the cache."""

    def test_ccache(self, tmp_path: Path) -> None:
        """Each call is one of hit, miss, error and not cached; questions are none."""
        log = tmp_path / "log"
        log.write_text(
            "before the first\n"
            "# a.cu\ndirect_cache_hit\nlocal_storage_hit\n"
            "# b.cu\npreprocessed_cache_hit\n"
            "# c.cu\ncache_miss\nlocal_storage_miss\n"
            "# d.cu\ninternal_error\n"
            "# k.d\nmultiple_source_files\n"
            "# \nno_input_file\n"
        )
        counts = compile_cache.counts_of_ccache(log)
        want = {"hits": 2, "misses": 1, "errors": 1, "not_cached": 1}
        assert counts == {"program": "ccache", **want}

    def test_no_compile(self, tmp_path: Path) -> None:
        """A build in which nothing was compiled has zeros."""
        counts = compile_cache.counts_of_ccache(tmp_path / "none")
        assert sum(n for n in counts.values() if isinstance(n, int)) == 0
