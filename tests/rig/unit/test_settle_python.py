# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A Python that the plan wants is brought, or replaced by one that is here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.rig.support.candidates import PY311, PY312
from tests.rig.support.settled import Fake
from tests.rig.support.settled import fake as fake
from tests.rig.support.settled import no_uv_beside as no_uv_beside
from tools.rig.base.errors import CannotError
from tools.rig.builds.place import PlacePlan


class TestPython:
    """Bringing a Python."""

    def wish(self, fake: Fake, **more: Any) -> PlacePlan:
        """Return a plan that wants a Python which is not there."""
        return fake.plan(**{"pythons": (PY311,), **more})

    def test_brought(self, fake: Fake) -> None:
        """Uv's own is used when it comes."""
        fake.brings = "/r/python3.12"
        made = fake.act(self.wish(fake))
        assert fake.argvs[0][1:] == ["python", "install", "--no-bin", "3.12"]
        assert "/r/python3.12" in fake.argvs[1] and made.notes[1:] == ()

    def test_not_brought(self, fake: Fake) -> None:
        """Else the installed one, and it is told why."""
        made = fake.act(self.wish(fake))
        assert str(PY311.path) in fake.argvs[1]
        assert "instead of 3.12: uv cannot bring it: dns error" in made.notes[-1]

    def test_brought_and_unfit(self, fake: Fake) -> None:
        """One that does not serve is not used."""
        fake.brings, fake.brought = "/r/pypy", replace(PY312, problem="x")
        made = fake.act(self.wish(fake))
        assert "uv cannot bring it: it is pypy" in made.notes[-1]

    def test_none(self, fake: Fake) -> None:
        """Without any, what to install is told."""
        with pytest.raises(CannotError) as caught:
            fake.act(self.wish(fake, pythons=()))
        assert caught.value.details == ("uv could not bring it: dns error",)
        assert not list((fake.root / "venvs").glob("src-*"))

    def test_offline_and_without_headers(self, fake: Fake) -> None:
        """Nothing is fetched; missing headers are told with their package."""
        bare = replace(PY311, headers=False)
        made = fake.act(self.wish(fake, pythons=(bare,), offline=True))
        assert fake.argvs[0][1] == "venv"
        assert "instead of 3.12: no Python 3.12 is installed" in made.notes[-2]
        assert "apt-get install python3.11-dev" in made.notes[-1]
