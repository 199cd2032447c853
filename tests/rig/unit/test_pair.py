# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Toolkit and host compiler are chosen together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.rig.support.fakecuda import compiler, program, toolkit
from tools.rig.builds import pair, profile
from tools.rig.builds.toolkit_kit import Recipe, recipes
from tools.rig.host.compilers import HostCompiler
from tools.rig.host.cuda import Toolkit

V100 = replace(profile.load("v100-cu128"), toolkit_parts="compiler")
A100 = replace(profile.load("a100-cu118"), toolkit_parts="compiler")
DEBIAN = tuple(recipes("debian", "compiler"))
GXX9, GXX11, GXX12, GXX13, GXX14 = (
    compiler(f"g++-{n}", f"{n}.2") for n in (9, 11, 12, 13, 14)
)
HANGS = Toolkit(Path("/cuda"), Path("/cuda/bin/nvcc"), "", (), "PATH", "hangs")


class TestChoose:
    """The table of cases."""

    @pytest.mark.parametrize(
        ("releases", "hosts", "wanted", "toolkit_", "recipe", "host", "ceiling"),
        [
            # what is here fits
            (["12.8"], [GXX14], V100, "12.8", None, GXX14, None),
            (["12.4"], [GXX14, GXX13], V100, "12.4", None, GXX13, None),
            (["11.8"], [GXX12, GXX11], A100, "11.8", None, GXX11, None),
            # torch's own release first, then the newest
            (["12.9", "12.8", "12.4"], [GXX12], V100, "12.8", None, GXX12, None),
            (["12.4", "12.9"], [GXX12], V100, "12.9", None, GXX12, None),
            # the next toolkit takes the compiler that the first one refuses
            (["12.4", "12.0"], [GXX13], V100, "12.4", None, GXX13, None),
            (["12.0", "12.4"], [GXX13], V100, "12.4", None, GXX13, None),
            # only the compiler is missing, and no recipe takes the one here
            (["12.4"], [GXX14], V100, "12.4", None, None, 13),
            (["12.4"], [], V100, "12.4", None, None, 13),
            (["11.8"], [GXX12], A100, "11.8", None, None, 11),
            # C++20 needs a newer compiler
            (["12.4"], [GXX9], V100, "12.4", None, None, 13),
            # a toolkit is brought
            (["13.0"], [GXX12], V100, None, "12.4", GXX12, None),
            ([], [GXX12], V100, None, "12.4", GXX12, None),
            (["13.0", "11.8"], [GXX12], V100, None, "12.4", GXX12, None),
            (["12.4"], [GXX11], A100, None, "11.8", GXX11, None),
            # one here that takes no compiler here: another one is brought
            (["12.0"], [GXX13], V100, None, "12.4", GXX13, None),
            # both are brought
            (["13.0"], [GXX14], V100, None, "12.4", None, 13),
            (["12.4"], [GXX12], A100, None, "11.8", None, 11),
        ],
    )
    def test_table(
        self,
        releases: list[str],
        hosts: list[HostCompiler],
        wanted: profile.Profile,
        toolkit_: str | None,
        recipe: str | None,
        host: HostCompiler | None,
        ceiling: int | None,
    ) -> None:
        """What the machine has decides what is used and what is brought."""
        found = pair.choose([toolkit(r) for r in releases], hosts, wanted, DEBIAN)
        assert not found.problem
        assert (found.toolkit.release if found.toolkit else None) == toolkit_
        assert (found.recipe.release if found.recipe else None) == recipe
        assert (found.compiler, found.compiler_max) == (host, ceiling)

    def test_reasons(self) -> None:
        """Each thing passed over is named once, with why."""
        found = pair.choose(
            [toolkit("13.0"), HANGS, toolkit("12.4"), toolkit("12.4", "/b")],
            [GXX14, HostCompiler(Path("/usr/bin/c++"), "", "", "does not run")],
            V100,
            (),
        )
        thirteen = "CUDA 13.0.100 in /usr/local/cuda-13.0 (/usr/local)"
        why = "CUDA 13.0 cannot compile for sm_70 (its lowest is sm_75)"
        assert found.reasons == (
            f"passed over {thirteen}: sm_75 to sm_121: {why}",
            "passed over /cuda (PATH): hangs",
            "passed over g++ 14.2 (/usr/bin/g++-14): CUDA 12.4 takes gcc up to 13",
            "passed over /usr/bin/c++: does not run",
        )

    def test_another_toolkit_is_a_reason(self) -> None:
        """A toolkit that is brought although one is here says so."""
        found = pair.choose([toolkit("12.0")], [GXX13], V100, DEBIAN)
        assert found.reasons[-1] == "no compiler here suits the toolkits here"

    def test_provisioned_comes_after_installed(self) -> None:
        """Of one release the installed one is taken."""
        ours = toolkit("12.4", "/state/cuda-12.4", "provisioned")
        found = pair.choose([ours, toolkit("12.4")], [GXX12], V100, ())
        assert found.toolkit is not None and found.toolkit.origin == "/usr/local"

    def test_a_profile_without_torch_takes_the_newest(self) -> None:
        """Where no torch names a release, the newest that fits is taken."""
        sample = profile.load("sample")
        found = pair.choose(
            [toolkit("12.4"), toolkit("12.9"), toolkit("11.8")], [GXX11], sample, ()
        )
        assert found.toolkit is not None and found.toolkit.release == "12.9"


class TestNothing:
    """No way out."""

    def test_no_recipe(self) -> None:
        """The problem names the range, the hint a change."""
        found = pair.choose([toolkit("13.0")], [GXX12], V100, ())
        assert found.problem == (
            "no CUDA toolkit between 12.0 and 12.9 here, and none can be brought on "
            "this distribution"
        )
        assert found.hint == "install CUDA 12.9 or older and set CUDA_HOME"
        assert found.toolkit is None and found.recipe is None

    def test_one_release_only(self) -> None:
        """A profile that admits one release names that one, and the caller's reason."""
        found = pair.choose([], [], A100, (), no_recipes="it rains")
        assert found.problem == "no CUDA toolkit 11.8 here, and it rains"
        assert found.hint == "install CUDA 11.8 and set CUDA_HOME"

    def test_recipe_of_other_parts(self) -> None:
        """A recipe for the compiler alone is nothing for a target that wants all."""
        full = replace(V100, toolkit_parts="full")
        assert pair.choose([], [GXX12], full, DEBIAN).problem
        everything = recipes("debian", "full")
        assert pair.choose([], [GXX12], full, everything).recipe in everything


class TestSetByUser:
    """What the user has set is honoured or refused, never replaced."""

    home = frozenset({"CUDA_HOME"})
    ccbin = frozenset({"NVCC_CCBIN"})

    def test_cuda_home_fits(self) -> None:
        """It is taken although a better one is there."""
        own = toolkit("12.0", "/mine", "CUDA_HOME")
        found = pair.choose(
            [own, toolkit("12.8")], [GXX12], V100, DEBIAN, set_by_user=self.home
        )
        assert found.toolkit == own

    def test_cuda_home_does_not_fit(self) -> None:
        """CUDA 13 there is a problem, although one that fits is at hand."""
        own = toolkit("13.0", "/mine", "CUDA_HOME")
        found = pair.choose(
            [own, toolkit("12.8")], [GXX12], V100, DEBIAN, set_by_user=self.home
        )
        assert found.problem == (
            "CUDA_HOME is set to /mine, but: CUDA 13.0 cannot compile for sm_70 "
            "(its lowest is sm_75)"
        )
        assert found.hint.startswith("unset CUDA_HOME")

    def test_cuda_home_lacks_a_compiler(self) -> None:
        """A compiler is brought for it; no other toolkit takes its place."""
        own = toolkit("12.0", "/mine", "CUDA_HOME")
        found = pair.choose(
            [own, toolkit("12.8")], [GXX13], V100, DEBIAN, set_by_user=self.home
        )
        assert (found.toolkit, found.compiler, found.compiler_max) == (own, None, 12)

    def test_unset_cuda_home_binds_nobody(self) -> None:
        """A toolkit that CUDA_HOME would name is one of several without it."""
        own = toolkit("13.0", "/mine", "CUDA_HOME")
        found = pair.choose([own, toolkit("12.8")], [GXX12], V100, DEBIAN)
        assert found.toolkit is not None and found.toolkit.release == "12.8"

    def test_cuda_home_nobody_found(self) -> None:
        """Without the toolkit in the list the others are looked at."""
        found = pair.choose([toolkit("12.8")], [GXX12], V100, (), set_by_user=self.home)
        assert found.toolkit is not None

    def test_compiler_fits(self) -> None:
        """The first compiler is the user's, and the toolkit is chosen for it."""
        found = pair.choose(
            [toolkit("12.4"), toolkit("12.9")],
            [GXX14, GXX12],
            V100,
            DEBIAN,
            set_by_user=self.ccbin,
        )
        assert found.compiler == GXX14
        assert found.toolkit is not None and found.toolkit.release == "12.9"

    def test_compiler_is_refused(self) -> None:
        """Where no toolkit takes it, it is refused and not replaced."""
        found = pair.choose(
            [toolkit("12.4")], [GXX14, GXX12], V100, DEBIAN, set_by_user=self.ccbin
        )
        assert found.problem == (
            "the host compiler is set to /usr/bin/g++-14, but: CUDA 12.4 takes gcc up "
            "to 13"
        )
        assert found.hint.startswith("unset NVCC_CCBIN")

    def test_both(self) -> None:
        """Both set and at odds: the compiler is refused for that toolkit."""
        own = toolkit("12.0", "/mine", "CUDA_HOME")
        found = pair.choose(
            [own], [GXX13], V100, DEBIAN, set_by_user=self.home | self.ccbin
        )
        assert "CUDA 12.0 takes gcc up to 12" in found.problem

    def test_read_from_the_environment(self, tmp_path: Path) -> None:
        """CUDA_HOME, and any of the ways to name a compiler."""
        program(tmp_path / "g++")
        flags = {"NVCC_PREPEND_FLAGS": f"-ccbin {tmp_path}"}
        assert pair.user_set({}) == frozenset()
        assert pair.user_set({"CUDA_HOME": "/x"}) == self.home
        assert pair.user_set({**flags, "CUDA_HOME": "/x"}) == self.home | self.ccbin


class TestToolkitRefusal:
    """Why a toolkit does not fit."""

    @pytest.mark.parametrize(
        ("found", "words"),
        [
            (toolkit("12.4"), ""),
            (toolkit("11.8"), "CUDA 11.8 is older than 12.0"),
            (
                replace(toolkit("13.0"), sms=(70, 75)),
                "CUDA 13.0 is newer than 12.9",
            ),
            (
                replace(toolkit("12.4"), version="12.7.1"),
                "no facts about CUDA 12.7",
            ),
            (HANGS, "hangs"),
        ],
    )
    def test_table(self, found: Toolkit, words: str) -> None:
        """Range, architectures and what is known of it."""
        assert pair.toolkit_refusal(found, V100) == words

    def test_parts(self, tmp_path: Path) -> None:
        """A target of libraries wants their headers, wherever a toolkit has them."""
        full = replace(V100, toolkit_parts="full")
        found = toolkit("12.4", tmp_path)
        assert pair.toolkit_refusal(found, full).startswith("has no cublas_v2.h")
        deep = tmp_path / "targets" / "x86_64-linux" / "include"
        names = ("cublas_v2.h", "cusparse.h", "cusolverDn.h", "curand.h", "nvrtc.h")
        for name in names:
            program(deep / name)
        assert pair.toolkit_refusal(found, full) == ""


def test_recipes_are_the_newest_first() -> None:
    """Debian's come in the order of their releases, and none for other systems."""
    assert [r.release for r in DEBIAN] == ["12.4", "11.8"]
    assert recipes("fedora", "full") == [] and recipes("debian", "none") == []
    assert isinstance(DEBIAN[0], Recipe)
    assert DEBIAN[0].folder_name == "cuda-12.4-compiler"
    assert recipes("debian", "full")[0].folder_name == "cuda-12.4"
