# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What is built: a checkout, or the bundled sample."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.rig.base.config import Settings, resolve
from tools.rig.base.errors import UsageError
from tools.rig.builds import profile, target


def settings(**cli: object) -> Settings:
    """Return settings with these flags."""
    return resolve(cli, {})


def checkout(folder: Path, text: str = '[project]\nname = "1Cat_vLLM"\n') -> Path:
    """Make a checkout of the fork."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(text)
    return folder


class TestProjectName:
    """From pyproject.toml."""

    def test_normalised(self, tmp_path: Path) -> None:
        """Spellings of one name are one name."""
        assert target.project_name(checkout(tmp_path)) == "1cat-vllm"

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "[project]\n",
            "[project]\nname = 3\n",
            'project = "x"\n',
            "[project\n",
            "[tool.x]\n",
        ],
    )
    def test_none(self, tmp_path: Path, text: str) -> None:
        """A file without a name, or that is no TOML, names nothing."""
        assert target.project_name(checkout(tmp_path, text)) is None

    def test_unreadable(self, tmp_path: Path) -> None:
        """Nor does one that is missing, or no UTF-8."""
        assert target.project_name(tmp_path) is None
        (tmp_path / "pyproject.toml").write_bytes(b"\xff\xfe[")
        assert target.project_name(tmp_path) is None


class TestSource:
    """With --source."""

    def test_found(self, tmp_path: Path) -> None:
        """The profile follows from the project's name."""
        place = checkout(tmp_path / "a b")
        found = target.find(settings(source=place), tmp_path)
        assert found.path == place and not found.is_sample
        assert found.profile.name == "v100-cu128"

    def test_with_its_profile(self, tmp_path: Path) -> None:
        """A profile of the same project is taken as it is asked for."""
        place = checkout(tmp_path, '[project]\nname = "vllm"\n')
        asked = settings(source=place, profile="a100-cu118")
        assert target.find(asked).profile.name == "a100-cu118"

    def test_does_not_exist(self, tmp_path: Path) -> None:
        """A folder that is not there."""
        with pytest.raises(UsageError, match="it does not exist") as caught:
            target.find(settings(source=tmp_path / "none"))
        assert "--source" in caught.value.hint

    def test_is_a_file(self, tmp_path: Path) -> None:
        """A file."""
        (tmp_path / "file").touch()
        with pytest.raises(UsageError, match="it is no folder"):
            target.find(settings(source=tmp_path / "file"))

    def test_no_project(self, tmp_path: Path) -> None:
        """A folder without a project."""
        with pytest.raises(UsageError, match="no pyproject.toml with a project name"):
            target.find(settings(source=tmp_path))

    def test_unknown_project(self, tmp_path: Path) -> None:
        """A project that no profile builds; the known ones are named."""
        place = checkout(tmp_path, '[project]\nname = "numpy"\n')
        with pytest.raises(UsageError, match="builds the project 'numpy'") as caught:
            target.find(settings(source=place))
        assert "1cat-vllm" in caught.value.hint and "vllm" in caught.value.hint

    def test_wrong_profile(self, tmp_path: Path) -> None:
        """A profile of another project."""
        asked = settings(source=checkout(tmp_path), profile="a100-cu118")
        with pytest.raises(UsageError, match="profile a100-cu118 builds vllm, but"):
            target.find(asked)

    def test_unknown_profile(self, tmp_path: Path) -> None:
        """A profile that does not exist; the known ones are named."""
        with pytest.raises(UsageError, match="unknown profile 'h100'") as caught:
            target.find(settings(profile="h100"), tmp_path)
        assert "v100-cu128" in caught.value.hint

    def test_newline(self, tmp_path: Path) -> None:
        """A line break in the path is refused before anything else."""
        with pytest.raises(UsageError):
            target.find(settings(source=f"{tmp_path}/a\nb"))


class TestHere:
    """Without --source."""

    def test_a_checkout_of_a_target(self, tmp_path: Path) -> None:
        """The checkout that the suite lies in is built."""
        found = target.find(settings(), checkout(tmp_path))
        assert found.path == tmp_path and found.profile.name == "v100-cu128"

    def test_sample(self, tmp_path: Path) -> None:
        """Anywhere else the sample is."""
        for place in (tmp_path, checkout(tmp_path / "x", '[project]\nname = "x"\n')):
            found = target.find(settings(), place)
            assert found.is_sample and found.profile.name == "sample"

    def test_sample_by_name(self, tmp_path: Path) -> None:
        """In a checkout of a target it can be asked for."""
        found = target.find(settings(profile="sample"), checkout(tmp_path))
        assert found.is_sample and found.profile == profile.load("sample")

    def test_real_profile_on_the_sample(self, tmp_path: Path) -> None:
        """A real profile without its target proves its toolchain on the sample."""
        found = target.find(settings(profile="a100-cu118"), tmp_path)
        assert found.is_sample and found.profile.sms == (80,)
        assert found.profile.project == "rig-sample"
        assert (found.profile.toolkit_min, found.profile.toolkit_max) == (
            "11.8",
            "11.8",
        )
        assert found.profile.toolkit_parts == "compiler"


class TestProfiles:
    """The data files."""

    @pytest.mark.parametrize("name", profile.names())
    def test_each(self, name: str) -> None:
        """Every profile can be read and its fields agree with each other."""
        found = profile.load(name)
        listed = [f"{sm // 10}.{sm % 10}" for sm in found.sms]
        assert found.arch_list.replace("+PTX", "").split(";") == listed
        assert found.modules and found.libraries and found.gib_per_job > 0
        assert found.toolkit_parts in ("full", "compiler")
        assert (found.torch is None) == (found.torch_variant is None)

    def test_of_project(self) -> None:
        """A project's profile is found by name; the V100's is asked first."""
        of = profile.of_project
        assert of("vllm") == profile.load("a100-cu118")
        assert of("1cat-vllm") == profile.load("v100-cu128") and of("x") is None


def test_where_the_user_stands(tmp_path: Path) -> None:
    """A suite that lies elsewhere builds the checkout around the current folder."""
    (tmp_path / "rig").mkdir()
    (tmp_path / "fork").mkdir()
    place = checkout(tmp_path / "fork")
    below = place / "vllm" / "v1"
    below.mkdir(parents=True)
    found = target.find(settings(), tmp_path / "rig", below)
    assert (found.path, found.profile.name) == (place, "v100-cu128")
    away = target.find(settings(), tmp_path / "rig", tmp_path / "rig")
    assert away.is_sample
