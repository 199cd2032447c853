# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""``build-sm70`` in places that are not made for it: odd names, foreign, full disks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig.support import disks
from tests.rig.support.nobody import NOBODY
from tests.rig.support.workshop import Workshop, copy_of, executed, settings_file
from tools.rig.steps.trees import LINK_PLACES, link_for

pytestmark = pytest.mark.real

ODD = "a b 'c' (d) & ~e %f \u00fc \u4e2d"
"""Blanks, quotes, signs of shells and build files, letters of two scripts."""


class Built:
    """A finished build in an odd place: the workshop, the checkout, what was said."""

    def __init__(self, shop: Workshop, folder: Path) -> None:
        self.shop = Workshop(folder, folder / f"root {ODD}")
        self.checkout = copy_of(shop.sample, folder / f"checkout {ODD}")
        self.foreign = os.geteuid() == 0
        if self.foreign:
            subprocess.run(["chown", "-R", str(NOBODY), str(self.checkout)], check=True)
        mirror = shop.root.path / "sample" / "rig-sample-dep.git"
        url = "https://github.com/1CatAI/rig-sample-dep.git"
        linked = folder / f"mirror {ODD}.git"
        linked.symlink_to(mirror)
        values = {"git_mirrors": {url: str(linked)}}
        self.shop.env["ONECAT_CONFIG"] = str(settings_file(folder / "rig.toml", values))
        words = ("build-sm70", "--json", "--source", str(self.checkout))
        self.got = self.shop.invoke(*words)


@pytest.fixture(scope="module")
def odd(shop: Workshop) -> Iterator[Built]:
    """Return a build of a checkout of another user; every path of it is odd."""
    folder = shop.folder.parent / "odd workshop"
    shutil.rmtree(folder, ignore_errors=True)
    made = Built(shop, folder)
    assert made.got.returncode == 0, made.got.stderr
    yield made
    shutil.rmtree(folder)
    for link in (link_for(folder, place).parent for place in LINK_PLACES):
        for path in link.glob("*"):
            if path.is_symlink() and os.readlink(path).startswith(str(folder)):
                path.unlink()


class TestOddPlace:
    """Any path may hold blanks, quotes and letters of any script."""

    def test_builds(self, odd: Built) -> None:
        """The checkout's libraries are built, proved and imported from there."""
        record = json.loads(odd.got.stdout)
        assert record["checkout"] == str(odd.checkout)
        assert record["environment"].startswith(str(odd.shop.root.path))
        assert record["verify"]["libraries"][0]["sms"] == [70]
        assert odd.shop.imports() == "7.0"
        link = odd.checkout / ".venv"
        assert os.readlink(link) == record["environment"]

    def test_owner(self, odd: Built) -> None:
        """Another user's checkout builds, and nobody's git configuration is written."""
        if not odd.foreign:
            pytest.skip("only root can give a checkout away")
        record = json.loads(odd.got.stdout)
        assert "belongs to another user: git trusts it" in " ".join(record["notes"])
        assert record["commit"].startswith("v0.1.0")
        assert not (odd.shop.home / ".gitconfig").exists()
        assert not (odd.shop.home / ".config").exists()

    def test_plan(self, odd: Built) -> None:
        """The plan tells it in the same words, links for nvcc included."""
        words = ("plan", "--json", "--source", str(odd.checkout))
        plan = json.loads(odd.shop.invoke(*words).stdout)
        done = executed(json.loads(odd.got.stdout))
        assert plan["commands"] == done["commands"]
        assert plan["env"] == done["env"]


class TestRefused:
    """Names that no tool below can quote."""

    @pytest.mark.parametrize("way", ["--source", "ONECAT_LOCAL_ROOT", "rig.toml"])
    def test_line_break(self, shop: Workshop, tmp_path: Path, way: str) -> None:
        """A path with a line break is refused with exit 2, wherever it comes from."""
        place = tmp_path / "a\nb"
        words, env = ["build-sm70"], {}
        if way == "--source":
            words += ["--source", str(place)]
        elif way == "rig.toml":
            file = settings_file(tmp_path / "rig.toml", {"local_root": str(place)})
            env = {"ONECAT_CONFIG": str(file), "ONECAT_LOCAL_ROOT": ""}
        else:
            env = {"ONECAT_LOCAL_ROOT": str(place)}
        got = shop.invoke(*words, **env)
        assert got.returncode == 2
        assert "line break" in got.stderr or "one line" in got.stderr
        assert got.stderr.splitlines()[-1].startswith("hint: ")
        assert not place.exists()

    @pytest.mark.parametrize("sign", ['"', "$", ";", "#", "[", "\\"])
    def test_sign(self, shop: Workshop, tmp_path: Path, sign: str) -> None:
        """What CMake or nvcc cannot take is told before anything is made, exit 2."""
        checkout = copy_of(shop.sample, tmp_path / f"check{sign}out")
        got = shop.invoke("build-sm70", "--source", str(checkout))
        assert got.returncode == 2
        assert f"holds {sign}, with which " in got.stderr
        assert got.stderr.splitlines()[-1].startswith("hint: mv ")
        assert not (checkout / ".venv").exists()


@pytest.fixture(scope="module")
def small(shop: Workshop) -> Iterator[Workshop]:
    """Return a workshop whose state root is a disk of its own."""
    folder = shop.folder.parent / "small"
    # of a run that was killed
    left = folder / "mount" / "disk"
    subprocess.run(["umount", "-l", str(left)], capture_output=True, check=False)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    why = disks.refused(disks.ext4(folder / "try", 16))
    if why:
        pytest.skip(f"no disk can be mounted here: {why}")
    with disks.ext4(folder / "mount", 3072) as point:
        made = Workshop(folder / "shop", point / "root")
        got = made.invoke("build-sm70")
        assert got.returncode == 0, got.stderr
        yield made
    shutil.rmtree(folder)


class TestFullDisk:
    """A disk that becomes full in the middle of a build."""

    def test_while_compiling(self, small: Workshop) -> None:
        """It is named, the old state stays in force, and room is all that is needed."""
        os.utime(small.sample / "csrc" / "wide.cu")
        filler = small.root.path.parent / "filler"
        fill = f"cat /dev/zero >'{filler}' 2>/dev/null; rm {small.gate.folder}/closed"
        small.gate.close(trap=fill)
        got = small.invoke("build-sm70", CCACHE_DISABLE="1")
        assert got.returncode == 1
        assert "No space left on device" in got.stderr
        assert "Traceback" not in got.stderr
        assert got.stderr.splitlines()[-1].startswith("hint: ")
        assert small.imports() == "7.0"
        filler.unlink()
        got = small.invoke("build-sm70")
        assert got.returncode == 0, got.stderr
        assert small.imports() == "7.0"
