# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What may lie at ``.venv`` is left as it is, and said."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig.support.workshop import Workshop
from tools.rig.base.state import place_id

pytestmark = pytest.mark.real


class TestVenv:
    """What may lie at ``.venv`` is left as it is, and said."""

    @pytest.fixture
    def link(self, shop: Workshop) -> Iterator[Path]:
        """Return the name ``.venv`` of the sample, free for a test."""
        link = shop.sample / ".venv"
        target = os.readlink(link)
        link.unlink()
        yield link
        if link.is_dir() and not link.is_symlink():
            shutil.rmtree(link)
        else:
            link.unlink(missing_ok=True)
        link.symlink_to(target)

    def test_folder(self, shop: Workshop, link: Path) -> None:
        """A real folder stays."""
        link.mkdir()
        (link / "mine").touch()
        got = shop.invoke("venv-local")
        assert got.returncode == 0, got.stderr
        assert "is a directory of yours and is left" in got.stderr
        assert (link / "mine").exists()

    @pytest.mark.parametrize("target", ["/tmp", "/nonexistent/elsewhere"])
    def test_other_link(self, shop: Workshop, link: Path, target: str) -> None:
        """A link to elsewhere stays, also one that dangles."""
        link.symlink_to(target)
        got = shop.invoke("venv-local")
        assert got.returncode == 0, got.stderr
        assert f"points to {target}" in got.stderr
        assert os.readlink(link) == target

    def test_link_of_another_host(self, shop: Workshop) -> None:
        """Our own link that dangles on this host gets its target, and stays."""
        place = shop.environment
        aside = place.with_name("aside")
        os.rename(place, aside)
        try:
            got = shop.invoke("venv-local")
            assert got.returncode == 0, got.stderr
            assert (place / "bin" / "python").exists()
            place.unlink()
        finally:
            os.rename(aside, place)
        assert place.name == place_id(shop.sample)
