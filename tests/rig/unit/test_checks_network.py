# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Servers that a build fetches from: which are asked, and what a silent one means."""

from __future__ import annotations

import socket
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pytest_subprocess import FakeProcess

from tests.rig.support import fakemachine as fake
from tools.rig.builds import apt_sources
from tools.rig.builds.apt_sources import Source
from tools.rig.builds.candidates import Candidate
from tools.rig.host import reach
from tools.rig.steps.checks import network, probes

INDEX = {"UV_DEFAULT_INDEX": "https://index.invalid/simple"}
NEW_CUDA: dict[str, Any] = {
    "toolkits": lambda env, folder: [fake.toolkit("13.0.88", (75, 80, 121))]
}


def asked(env: dict[str, str] | None = None, **changes: Any) -> tuple[Any, list[str]]:
    """Return the result and the addresses that were asked."""
    seen: list[str] = []

    def note(url: str) -> str:
        seen.append(url)
        return "it: no route" if "index" in url else ""

    return network.network(fake.facts(env, reach=note, **changes)), seen


def test_nothing_to_fetch() -> None:
    """Where the toolkit is here and no index is named, nobody is asked."""
    found, seen = asked()
    assert (found.status, seen) == ("skip", [])


@pytest.mark.parametrize(
    ("env", "offline"), [(INDEX, True), ({**INDEX, "https_proxy": "http://p"}, False)]
)
def test_offline_and_behind_a_proxy(env: dict[str, str], offline: bool) -> None:
    """No connection is tried where none is made, or a proxy makes it."""
    settings = fake.settings(offline=True) if offline else fake.settings()
    found, seen = asked(env, settings=settings)
    assert (found.status, seen) == ("skip", [])


def test_a_silent_index_is_a_warning() -> None:
    """Both servers are asked; the one that is silent is named with its reason."""
    found, seen = asked(INDEX, **NEW_CUDA)
    assert seen == [INDEX["UV_DEFAULT_INDEX"], "http://mirror.invalid/debian"]
    assert (found.status, found.detail) == ("warn", "cannot be reached: it: no route")
    assert found.hint


def test_a_mirror_that_answers() -> None:
    """One server that answers is in order, the user's own mirror first."""
    found, seen = asked(**NEW_CUDA)
    assert (found.status, len(seen)) == ("ok", 1)
    mine = fake.settings(apt_mirror="http://mine.invalid/debian")
    assert asked(settings=mine, **NEW_CUDA)[1] == ["http://mine.invalid/debian"]


def test_an_environment_that_is_there_needs_no_index() -> None:
    """The index is asked only for an environment that is to be made."""
    root = Candidate(Path("/s"), "state folder", fake.disk("/s"), venv="ready")
    ready = replace(fake.survey(), candidates=(replace(root, version="3.12.4"),))
    assert asked(INDEX, survey=ready)[1] == []
    full = replace(root, venv="absent", disk=fake.disk("/s", free=0))
    assert len(asked(INDEX, survey=fake.survey(candidates=(full,)))[1]) == 1


def test_a_named_index() -> None:
    """Uv takes NAME=URL, too."""
    env = {"UV_DEFAULT_INDEX": "near=https://index.invalid/simple"}
    assert asked(env)[1] == ["https://index.invalid/simple"]


@pytest.mark.parametrize(
    ("proxy", "urls"), [("", ["http://m.invalid/debian"]), ("P='http://p:3142'\n", [])]
)
def test_apt_behind_a_proxy_of_its_own(
    fp: FakeProcess, monkeypatch: pytest.MonkeyPatch, proxy: str, urls: list[str]
) -> None:
    """Where apt goes through a proxy the mirror itself need not answer."""
    source = Source("http://m.invalid/debian", ("bookworm",), ("main",))
    monkeypatch.setattr(apt_sources, "read", lambda: [source])
    fp.register(["apt-config", "shell", "P", "Acquire::http::Proxy"], stdout=proxy)
    assert probes.apt_mirrors("debian") == urls


class TestReach:
    """The connection itself."""

    def test_answers(self) -> None:
        """A server that listens has no problem, and gets no word."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            assert reach.problem(f"http://127.0.0.1:{port}/x") == ""

    def test_refused(self) -> None:
        """One that does not listen is named with the system's words."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        assert reach.problem(f"http://127.0.0.1:{port}").startswith("127.0.0.1: ")

    def test_hangs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A name that is looked up for ever is given up."""
        gate = threading.Event()

        def wait(*args: Any) -> None:
            gate.wait(30)
            raise OSError("too late")

        monkeypatch.setattr(reach.socket, "create_connection", wait)
        said = reach.problem("http://slow.invalid", timeout=0.2)
        gate.set()
        assert said == "slow.invalid: no answer within 0 s"

    @pytest.mark.parametrize("url", ["file:///srv/debian", "cdrom:x", ""])
    def test_no_server(self, url: str) -> None:
        """What is on this disk needs no connection."""
        assert reach.problem(url) == ""

    def test_nonsense(self) -> None:
        """An address with an impossible port is told."""
        assert reach.problem("http://a:99999/").startswith("no address")
