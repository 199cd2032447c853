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
from tools.rig.base.state import StateRoot
from tools.rig.builds import apt_sources
from tools.rig.builds.apt_sources import Source
from tools.rig.builds.candidates import Candidate
from tools.rig.host import reach
from tools.rig.host.pythons import Python
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


def test_a_silent_index_is_a_failure() -> None:
    """Both servers are asked; the one that is silent is named with its reason."""
    found, seen = asked(INDEX, **NEW_CUDA)
    assert seen == [INDEX["UV_DEFAULT_INDEX"], "http://mirror.invalid/debian"]
    assert found.status == "fail"
    assert found.detail == "cannot be reached: it: no route (for packages)"
    assert found.hint


@pytest.mark.parametrize("name", ["UV_NO_INDEX", "UV_FIND_LINKS"])
def test_packages_from_elsewhere(name: str) -> None:
    """An index that a build may do without is a warning only."""
    assert asked({**INDEX, name: "x"})[0].status == "warn"


def test_what_was_fetched_before(tmp_path: Path) -> None:
    """A filled cache may be enough, an empty one is not."""
    env = {**INDEX, "UV_CACHE_DIR": str(tmp_path)}
    assert asked(env)[0].status == "fail"
    (tmp_path / "wheels-v5" / "index").mkdir(parents=True)
    assert asked(env)[0].status == "warn"
    root = StateRoot(tmp_path / "root")
    assert asked(INDEX, root=root)[0].status == "fail"
    (root.cache / "uv" / "wheels-v5" / "index").mkdir(parents=True)
    assert asked(INDEX, root=root)[0].status == "warn"


def test_a_silent_mirror_is_a_failure() -> None:
    """A toolkit or compiler that must be brought, and cannot, is no work-round."""
    silent = {"reach": lambda url: "m: no route"}
    found = network.network(fake.facts(**NEW_CUDA, **silent))
    assert found.status == "fail"
    assert found.detail == "cannot be reached: m: no route (for CUDA 12.4)"
    new = {"compilers": lambda env: [fake.compiler("14.2")]}
    assert network.network(fake.facts(**new, **silent)).detail.endswith("older g++)")


class TestPython:
    """A Python that uv would bring."""

    def look(
        self, env: dict[str, str], found: tuple[Python, ...], up: str = ""
    ) -> tuple[Any, list[str]]:
        """Look at a machine with these Pythons, where only one server answers."""
        seen: list[str] = []

        def note(url: str) -> str:
            seen.append(url)
            return "" if url == up else f"{url}: no route"

        survey = fake.survey(pythons=found)
        return network.network(fake.facts(env, survey=survey, reach=note)), seen

    def test_another_takes_its_place(self) -> None:
        """The one that is here is what the verdict names."""
        other = Python(Path("/usr/bin/python3.13"), "3.13.1", "PATH", True)
        found, seen = self.look({}, (other,))
        assert (found.status, len(seen)) == ("warn", 2)
        assert found.measured["instead"] == {
            "Python 3.12 through uv": "Python 3.13 instead of 3.12"
        }

    def test_none_is_here(self) -> None:
        """Without any, this machine cannot."""
        found, seen = self.look({"UV_PYTHON_INSTALL_MIRROR": "http://m"}, ())
        assert (found.status, seen) == ("fail", ["http://m"])
        assert found.detail.endswith("(for Python 3.12)")

    def test_one_server_is_enough(self) -> None:
        """Either of uv's own will do."""
        found, seen = self.look({}, (), up=network._PYTHONS[1])
        assert (found.status, seen) == ("ok", list(network._PYTHONS))

    def test_no_disk(self) -> None:
        """Without a place there is no Python to speak of."""
        full = Candidate(Path("/s"), "state folder", fake.disk("/s", free=0))
        survey = fake.survey(pythons=(), candidates=(full,))
        assert network.network(fake.facts(survey=survey)).status == "skip"


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
