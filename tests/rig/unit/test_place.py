# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Where the environment goes: decisions from facts alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.candidates import (
    HOME,
    ME,
    NAS,
    PY312,
    SLOW,
    STRANGER,
    candidate,
    disk,
    mount,
)
from tools.rig.base.errors import CannotError
from tools.rig.builds import place
from tools.rig.builds.candidates import Candidate
from tools.rig.builds.interpreter import Choice
from tools.rig.builds.place import PlaceFacts
from tools.rig.host.look import Checkout, Link

CHECKOUT = Checkout(
    path=Path("/src/it's"),
    real=Path("/src/it's"),
    place="it-s-12345678",
    owner=ME,
    writable=True,
    link=Link("absent"),
)


def facts(*candidates: Candidate, **more: Any) -> PlaceFacts:
    """Return facts with these candidates; `more` changes them."""
    return replace(
        PlaceFacts(
            checkout=CHECKOUT,
            checkout_disk=disk("/src", mount=mount(device="8:2")),
            candidates=candidates or (candidate(),),
            uid=ME,
            pythons=(PY312,),
            wanted="3.12",
        ),
        **more,
    )


class TestPlan:
    """The whole decision."""

    def test_first_that_will_do(self) -> None:
        """Places are tried in order, refused ones keep their reason."""
        bad = candidate("/nas/root", mount=NAS, chosen=True)
        got = place.plan(facts(bad, candidate(), candidate("/other")))
        assert got.root.path == Path("/home/me/state") and not got.chosen
        assert got.environment == Path("/home/me/state/venvs/it-s-12345678")
        assert got.deps == Path("/home/me/state/deps/it-s-12345678")
        assert got.link == Path("/src/it's/.venv") and got.link_action == "make"
        assert [bool(v.reason) for v in got.verdicts] == [True, False]
        lines = got.lines()
        assert lines[0].startswith("not /nas/root (test): nfs4 from srv:/export is")
        assert "root: /home/me/state (test)" in lines
        made = "is made with Python 3.12.3 (/usr/bin/python3.12)"
        assert f"environment: {got.environment} {made}" in lines
        assert f"link: /src/it's/.venv -> {got.environment}" in lines

    def test_none(self) -> None:
        """Without a place the machine cannot do it, and each reason is told."""
        with pytest.raises(CannotError) as caught:
            place.plan(facts(candidate(mount=NAS), candidate(writable=False)))
        assert len(caught.value.details) == 2
        assert "12.0 GiB" in caught.value.usual

    @pytest.mark.parametrize(
        ("setting", "undo"),
        [
            ("environment (ONECAT_LOCAL_ROOT)", "unset ONECAT_LOCAL_ROOT"),
            ("/my/rig.toml", "take local_root out"),
        ],
    )
    def test_named_is_not_replaced(self, setting: str, undo: str) -> None:
        """What the user's settings name now is taken or refused, never replaced."""
        named = replace(candidate("/nas/root", True, mount=NAS), setting=setting)
        with pytest.raises(CannotError, match="is a network file system") as caught:
            place.plan(facts(named, candidate()))
        assert setting in caught.value.usual
        want = f"{undo}, or name a folder on a local disk with 12 GiB free"
        assert caught.value.hint == want

    @pytest.mark.parametrize(
        ("more", "seen"),
        [
            ({"free_inodes": 7}, "df -i /home"),
            ({"mount": replace(HOME, options="ro")}, "findmnt --target /home"),
            ({"mount": replace(HOME, options="rw,noexec")}, "findmnt --target /home"),
            ({"writable": False}, "namei -l /home/me/state"),
            ({"free_bytes": 7}, ""),
        ],
    )
    def test_what_shows_it(self, more: dict[str, Any], seen: str) -> None:
        """The hint names the command that shows what the place lacks."""
        setting = "environment (ONECAT_LOCAL_ROOT)"
        named = replace(candidate(**more), setting=setting)
        with pytest.raises(CannotError) as caught:
            place.plan(facts(named))
        undo = "unset ONECAT_LOCAL_ROOT"
        whole = f"{seen} shows it; make it fit, or {undo}"
        space = f"{undo}, or name a folder on a local disk with 12 GiB free"
        assert caught.value.hint == (whole if seen else space)
        with pytest.raises(CannotError) as caught:
            place.plan(facts(candidate(**more), candidate(mount=NAS)))
        other = "export ONECAT_LOCAL_ROOT=<a folder on a local disk>"
        whole = f"{seen} shows the first; make it fit, or {other}"
        assert caught.value.hint == (whole if seen else other)

    @pytest.mark.parametrize("setting", ["environment (ONECAT_LOCAL_ROOT)", ""])
    @pytest.mark.parametrize(
        "more",
        [{"made": True}, {"venv": "ready", "version": "3.12.3"}],
    )
    def test_who_reads_needs_no_permission(
        self, setting: str, more: dict[str, Any]
    ) -> None:
        """A root that is there will do for looking; that no build takes it is told."""
        closed = {"exists": True, "owner": ME, "writable": False, **more}
        named = replace(candidate(**closed), setting=setting)
        with pytest.raises(CannotError, match="you may not write there|no disk"):
            place.plan(facts(named))
        full = candidate("/full", free_bytes=0)
        got = place.plan(facts(*([] if setting else [full]), named, reading=True))
        assert got.root.path == named.root
        assert got.notes[-1] == (
            "a build will not take /home/me/state: you may not write there"
        )
        better = place.plan(facts(replace(named, setting=""), full, reading=True))
        assert better.root.path == named.root
        other = place.plan(
            facts(replace(named, setting=""), candidate("/other"), reading=True)
        )
        assert other.root.path == Path("/other")
        assert not any("will not take" in note for note in other.notes)

    @pytest.mark.parametrize(
        "more",
        [
            {"writable": False},
            {"exists": True, "writable": False, "empty": False},
            {"exists": True, "made": True, "hung": True, "problem": "no answer"},
        ],
    )
    def test_nothing_there_to_read(self, more: dict[str, Any]) -> None:
        """A place without anything of ours is refused to who reads, too."""
        named = replace(candidate(**more), setting="environment")
        with pytest.raises(CannotError):
            place.plan(facts(named, reading=True))
        with pytest.raises(CannotError):
            place.plan(facts(candidate(**more), reading=True))

    @pytest.mark.parametrize(
        ("link", "action", "note"),
        [
            (
                Link("link", "x", "/home/me/state/venvs/it-s-12345678", False),
                "keep",
                "",
            ),
            (
                Link("link", "/other", "/other", True),
                "leave",
                "points to /other; it",
            ),
            (Link("link", "/o", "/o", False), "leave", "/o, which is not there; it"),
            (Link("directory"), "leave", "is a directory of yours and is left"),
            (Link("file"), "leave", "is a file of yours and is left"),
        ],
    )
    def test_link(self, link: Link, action: str, note: str) -> None:
        """What stands at .venv is kept, whatever it is."""
        got = place.plan(facts(checkout=replace(CHECKOUT, link=link)))
        assert got.link_action == action and note in got.link_note
        assert bool(got.link_hint) == (action == "leave")
        assert (got.link_note in got.lines()) == (action == "leave")

    @pytest.mark.parametrize(
        ("link", "more", "action"),
        [
            # it came along when the checkout was copied or moved
            (Link("link", "x", "/r/venvs/src-87654321", True, made=True), {}, "switch"),
            # of another state root, and of one that is gone
            (Link("link", "x", "/r/venvs/it-s-12345678", made=True), {}, "switch"),
            (Link("link", "x", "/r/venvs/it-s-12345678"), {}, "switch"),
            # another user's, another host's, or nothing of ours
            (Link("link", "x", "/r/venvs/it-s-12345678", True), {}, "leave"),
            (
                Link("link", "x", "/r/venvs/it-s-12345678"),
                {"checkout_disk": disk("/src", mount=NAS)},
                "leave",
            ),
            (Link("link", "x", "/r/venvs/src-87654321"), {}, "leave"),
            (Link("directory", made=True), {}, "leave"),
        ],
    )
    def test_our_link_elsewhere(
        self, link: Link, more: dict[str, Any], action: str
    ) -> None:
        """A link that is recognisably ours is to lead to this checkout's own."""
        got = place.plan(facts(checkout=replace(CHECKOUT, link=link), **more))
        assert got.link_action == action
        told = f"link: {got.link} -> {got.environment} (it was x)"
        assert (told in got.lines()) == (action == "switch")
        closed = replace(CHECKOUT, link=link, writable=False)
        assert place.plan(facts(checkout=closed, **more)).link_action == "leave"

    def test_read_only_checkout(self) -> None:
        """Where no link can be made the environment's own path is told."""
        got = place.plan(facts(checkout=replace(CHECKOUT, writable=False)))
        assert got.link_action == "leave" and "cannot be written to" in got.link_note
        assert got.link_hint == f"source {got.environment}/bin/activate"

    @pytest.mark.parametrize("kind", ["directory", "file"])
    def test_closed_checkout(self, kind: str) -> None:
        """Where .venv may not be moved the hint is a build's: take a copy."""
        seen = replace(CHECKOUT, link=Link(kind), writable=False)
        got = place.plan(facts(checkout=seen))
        assert got.link_action == "leave" and got.link_hint == place.COPY_IT

    @pytest.mark.parametrize(
        ("more", "note"),
        [
            ({"mount": HOME}, "the checkout's own disk is fast and serves"),
            ({"mount": HOME, "rates": SLOW}, ""),
            ({}, "fast too"),
            ({"rates": SLOW}, "the checkout's own disk is slow"),
            ({"mount": NAS}, ""),
            ({"rates": None}, ""),
        ],
    )
    def test_the_checkouts_own_disk(self, more: dict[str, Any], note: str) -> None:
        """It is told whether the checkout's disk would have served."""
        own = disk("/src", **{"mount": mount(device="8:2"), **more})
        notes = place.plan(facts(checkout_disk=own)).notes
        assert any(note in n for n in notes) if note else notes == ()

    def test_other_notes(self) -> None:
        """A stranger's checkout and a cache on another disk are worth a word."""
        own = disk("/src", rates=None)
        got = place.plan(
            facts(
                checkout=replace(CHECKOUT, owner=STRANGER),
                checkout_disk=own,
                cache=disk("/nas/cache", mount=NAS),
            )
        )
        stranger, cache = got.notes
        assert "user 4711, you are 1000" in stranger
        assert "UV_CACHE_DIR=/nas/cache is on another disk (/nas (nfs4" in cache
        same = facts(checkout_disk=own, cache=disk("/home/me/c"))
        assert place.plan(same).notes == ()

    def test_existing_environments(self) -> None:
        """A ready one is kept with its Python, a broken one is made anew."""
        ready = candidate(venv="ready", version="3.11.2")
        got = place.plan(facts(ready, pythons=()))
        assert got.existing == "ready" and got.python.installed is not None
        assert got.python.installed.version == "3.11.2"
        assert f"environment: {got.environment} is there" in got.lines()
        got = place.plan(facts(candidate(venv="broken")))
        assert got.existing == "broken" and got.python == Choice(PY312)
        assert any("broken and made anew" in line for line in got.lines())
