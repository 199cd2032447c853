# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Which environment a checkout's ``.venv`` points to, and what it was made for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.rig.base.state import SENTINEL, StateRoot
from tools.rig.builds.record import Record
from tools.rig.host.look import Checkout, Link
from tools.rig.steps import linked
from tools.rig.steps.linked import Linked


def checkout(link: Link) -> Checkout:
    """Return a checkout with something at its ``.venv``."""
    return Checkout(Path("/c"), Path("/c"), "c-1", 0, True, link)


@pytest.mark.parametrize(
    ("folder", "mark", "ours"),
    [
        ("venvs/c-1", SENTINEL, True),
        ("venvs/c-1", "pyvenv.cfg", False),
        ("mine/c-1", SENTINEL, False),
    ],
)
def test_whose(tmp_path: Path, folder: str, mark: str, ours: bool) -> None:
    """Only an environment with our mark among environments is one of ours."""
    place = tmp_path / folder
    place.mkdir(parents=True)
    (place / mark).touch()
    got = linked.of(Path("/c"), checkout(Link("link", str(place), str(place), True)))
    assert got == (Linked(place, Path("/c")) if ours else None)


def test_gone(tmp_path: Path) -> None:
    """One that was moved away is still known by the folder that it lay in."""
    (tmp_path / "venvs").mkdir()
    (tmp_path / "venvs" / SENTINEL).touch()
    place = tmp_path / "venvs" / "c-1"
    got = linked.of(Path("/c"), checkout(Link("link", str(place), str(place), False)))
    assert got == Linked(place, Path("/c"))
    assert got.python == place / "bin" / "python"


@pytest.mark.parametrize("link", [Link("absent"), Link("link", "/v", "/v"), Link("x")])
def test_none(link: Link) -> None:
    """Without a link to something there is none."""
    assert linked.of(Path("/c"), checkout(link)) is None


def test_profile(tmp_path: Path) -> None:
    """The record says what it was made for, else the project that is in it."""
    place = tmp_path / "venvs" / "c-1"
    site = place / "lib" / "python3.12" / "site-packages"
    site.mkdir(parents=True)
    its = Linked(place, Path("/c"))
    assert its.profile() is None
    (site / "rig_sample-0.1.0.dist-info").mkdir()
    found = its.profile()
    assert found is not None and found.project == "rig-sample"
    run = Record(StateRoot(tmp_path), "invoke install-wheel")
    run.update(environment=str(place), profile="v100-cu128")
    found = its.profile()
    assert found is not None and found.name == "v100-cu128"
