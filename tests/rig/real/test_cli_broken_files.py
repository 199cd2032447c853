# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Our own files that were cut short or edited by hand are named, and left alone."""

from __future__ import annotations

import json

import pytest

from tests.rig.support.newcomer import BUILD, refused
from tests.rig.support.newcomer import user as user
from tests.rig.support.workshop import Workshop
from tools.rig.builds import switch

pytestmark = pytest.mark.real


class TestBrokenFiles:
    """Our own files, cut short or edited by hand."""

    def test_record(self, shop: Workshop) -> None:
        """A record that cannot be read is listed as such and hides no other."""
        bad = shop.root.records / "20200101-000000-bad.json"
        bad.write_text('{"id": ')
        try:
            got = shop.invoke("builds", "--json")
        finally:
            bad.unlink()
        assert got.returncode == 0, got.stderr
        results = {r["id"]: r["result"] for r in json.loads(got.stdout)}
        assert results["20200101-000000-bad"] == "unreadable"
        assert len(results) > 1

    def test_remembered_place(self, user: Workshop) -> None:
        """A broken memory of the chosen place is named and left alone."""
        memory = user.home / ".local" / "state" / "1cat-rig" / "root.json"
        memory.parent.mkdir(parents=True)
        memory.write_text("{")
        refused(user.invoke("builds", ONECAT_LOCAL_ROOT=""), 1, str(memory))
        refused(user.invoke(*BUILD), 1, str(memory))
        assert memory.read_text() == "{"

    def test_journal(self, shop: Workshop) -> None:
        """A broken list of files that were being put in place is named."""
        journal, _ = switch.journals_of(shop.root, shop.environment.name)
        journal.write_text('{"phase": 7}')
        try:
            refused(shop.invoke(*BUILD), 1, str(journal))
        finally:
            journal.unlink()
