# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Python and program checks, on a machine with one thing changed."""

from pathlib import Path

import pytest

from tests.rig.support import fakemachine as fake
from tools.rig.builds.candidates import Candidate
from tools.rig.host.pythons import Python
from tools.rig.steps.checks import python


class TestPython:
    """Python and the programs around it."""

    def test_profile_python_is_here(self):
        """The profile's Python is named."""
        found = python.python(fake.facts())
        assert found.status == "ok"
        assert found.data == {"wanted": "3.12", "release": "3.12"}

    def test_uv_brings_a_missing_python(self):
        """Another Python stands in when uv cannot reach it."""
        other = Python(Path("/usr/bin/python3.11"), "3.11.2", "PATH")
        found = python.python(fake.facts(survey=fake.survey(pythons=(other,))))
        assert (found.status, found.workaround) == ("warn", "Python 3.12 through uv")
        assert "else 3.11.2" in found.detail

    def test_offline_takes_what_is_here(self):
        """Offline an admitted Python will do, and is named as a work-round."""
        other = Python(Path("/usr/bin/python3.11"), "3.11.2", "PATH")
        seen = fake.survey(pythons=(other,), offline=True)
        found = python.python(fake.facts(survey=seen))
        assert found.workaround == "Python 3.11 instead of 3.12"

    def test_offline_without_any_python_fails(self):
        """Then the line says what to install."""
        seen = fake.survey(pythons=(), offline=True)
        found = python.python(fake.facts(survey=seen))
        assert (found.status, "python3.12" in found.hint) == ("fail", True)

    def test_environment_that_is_there(self):
        """An environment that is ready keeps its Python."""
        ready = Candidate(
            Path("/s"), "chosen before", fake.disk("/s"), False, "ready", "3.12.4"
        )
        found = python.python(fake.facts(survey=fake.survey(candidates=(ready,))))
        assert (found.status, "3.12.4" in found.detail) == ("ok", True)

    @pytest.mark.parametrize(
        ("check", "name"), [(python.uv, "uv"), (python.git, "git")]
    )
    def test_needed_program(self, check, name):
        """Missing is a failure with a hint, nonsense is unknown."""
        assert check(fake.facts()).status == "ok"
        missing = check(fake.facts(program=fake.programs(**{name: None})))
        assert missing.status == "fail"
        assert missing.hint
        odd = check(fake.facts(program=fake.programs(**{name: "!talks nonsense"})))
        assert odd.status == "unknown"

    def test_git_with_a_broken_configuration(self):
        """A git that does not run stops every build, and it says why itself."""
        said = "does not run (status 128): fatal: bad config line 1"
        found = python.git(fake.facts(program=fake.programs(git=f"!{said}")))
        assert (found.status, found.hint) == ("fail", "git config --list")
        assert "bad config line 1" in found.detail

    @pytest.mark.parametrize(
        ("version", "word"),
        [
            ("4.0.1", "4.0.1"),
            ("3.25.1", "too old"),
            (None, "not here"),
            ("!hangs", "hangs"),
            ("4..x", "too old"),
        ],
    )
    def test_cmake_comes_as_a_wheel(self, version, word):
        """An old or missing CMake is no obstacle while wheels can be fetched."""
        texts = {
            fake.SOURCE / "pyproject.toml": 'requires = ["cmake>=3.26.1", "ninja"]',
            fake.SOURCE / "CMakeLists.txt": "cmake_minimum_required(VERSION 3.26)\n",
        }
        facts = fake.facts(
            program=fake.programs(cmake=version),
            text=lambda path: (texts.get(path), ""),
        )
        found = python.cmake(facts)
        assert (found.status, word in found.detail) == ("ok", True)
        assert found.data["asked"] == "3.26.1"

    def test_offline_an_old_cmake_is_a_warning(self):
        """Offline the wheel may not be in the cache."""
        facts = fake.facts(
            program=fake.programs(cmake=None, ninja=None),
            settings=fake.settings(offline=True),
        )
        assert python.cmake(facts).status == "warn"
        assert python.ninja(facts).hint == "install ninja"

    def test_ninja_of_any_version(self):
        """Ninja is asked for in any version."""
        assert python.ninja(fake.facts()).status == "ok"

    @pytest.mark.parametrize(
        ("version", "text", "env", "status"),
        [
            ("2.7.6", None, {}, "ok"),
            (None, None, {}, "skip"),
            (None, "PATCH_COMMAND x", {}, "fail"),
            (None, "PATCH_COMMAND x", {"VLLM_FLASH_ATTN_SRC_DIR": "/x"}, "skip"),
        ],
    )
    def test_patch_is_needed_where_sources_are_patched(
        self, version, text, env, status
    ):
        """The target's CMake files say whether patch is needed."""
        facts = fake.facts(
            env, program=fake.programs(patch=version), text=lambda path: (text, "")
        )
        assert python.patch(facts).status == status

    @pytest.mark.parametrize(
        ("versions", "status", "word"),
        [
            ({"sccache": "0.8.1"}, "ok", "sccache 0.8.1, ccache 4.7.5"),
            ({"ccache": None}, "warn", "neither"),
            ({"ccache": "!does not run"}, "warn", "does not run"),
        ],
    )
    def test_compile_cache(self, versions, status, word):
        """Without a cache a failed build starts from nothing."""
        found = python.cache(fake.facts(program=fake.programs(**versions)))
        assert (found.status, word in found.detail) == (status, True)

    @pytest.mark.parametrize(
        ("torch", "variant", "status"),
        [
            ("2.10.0", "cu128", "ok"),
            ("2.11.0", "cu128", "fail"),
            ("2.15.0", "cu132", "fail"),
            ("2.10.0", "cu999", "unknown"),
            (None, None, "skip"),
        ],
    )
    def test_torch_wheel(self, torch, variant, status):
        """Only wheels with code for the card will do; unknown ones are unknown."""
        profile = fake.profile(torch=torch, torch_variant=variant)
        assert python.torch(fake.facts(profile=profile)).status == status

    def test_torch_names_the_variants_that_do(self):
        """2.11 still has Volta in cu126."""
        profile = fake.profile(torch="2.11.0", torch_variant="cu128")
        assert "cu126 does" in python.torch(fake.facts(profile=profile)).detail

    def test_automatic_backend_is_warned_about(self):
        """Uv's auto looks at the driver only and takes a wheel without sm_70."""
        found = python.torch(fake.facts({"UV_TORCH_BACKEND": "auto"}))
        assert (found.status, found.hint) == ("warn", "unset UV_TORCH_BACKEND")
