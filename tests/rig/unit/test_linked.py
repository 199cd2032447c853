# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Which environment a checkout's ``.venv`` points to, and what it was made for."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest

from tests.rig.support import fakescene
from tools.rig.base.config import resolve
from tools.rig.base.console import Console
from tools.rig.base.errors import UsageError
from tools.rig.base.state import SENTINEL, StateRoot
from tools.rig.builds import generations
from tools.rig.builds.generation import Generation
from tools.rig.builds.record import Record
from tools.rig.builds.target import HERE
from tools.rig.host.look import Checkout, Link
from tools.rig.steps import commands, linked
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


def build(root: Path, place: str, name: str = "one") -> Linked:
    """Make a build of some place, and return where it is in force."""
    folder = generations.folder_of(StateRoot(root), place) / name
    folder.mkdir(parents=True)
    mark = generations.mark_text(Generation(name, folder, checkout="/c"))
    (folder / generations.MARK).write_text(mark)
    return Linked(root / "venvs" / place, HERE)


class TestWithBuilds:
    """Whose builds ``rollback`` and ``activate`` choose from."""

    @pytest.fixture
    def links(self, monkeypatch: pytest.MonkeyPatch) -> dict[Path, Linked]:
        """Return where a ``.venv`` leads, by checkout."""
        out: dict[Path, Linked] = {}
        monkeypatch.setattr(linked, "of", lambda at, *_: out.get(at))
        return out

    def test_a_wheel_before_the_sample(
        self, tmp_path: Path, links: dict[Path, Linked]
    ) -> None:
        """Where our own .venv leads comes first, though the sample was built too."""
        at = replace(fakescene.scene(tmp_path), is_sample=True)
        build(at.root.path, at.environment.name)
        links[at.checkout] = Linked(at.environment, at.checkout)
        assert linked.with_builds(at) is at
        wheel = links[HERE] = build(at.root.path, "rig-1")
        got = linked.with_builds(at)
        assert (got.environment, got.checkout) == (wheel.environment, HERE)
        run = Record(at.root, "invoke install-wheel")
        run.update(environment=str(wheel.environment), profile="v100-cu128")
        assert linked.with_builds(at).environment == wheel.environment
        asked = replace(at, settings=resolve({"profile": "sample"}, {}))
        assert linked.with_builds(asked) is asked

    def test_in_another_root(self, tmp_path: Path, links: dict[Path, Linked]) -> None:
        """Where nothing was built in this root, the link tells in which."""
        at = fakescene.scene(tmp_path)
        other = build(tmp_path / "elsewhere", at.environment.name)
        links[at.checkout] = replace(other, checkout=at.checkout)
        got = linked.with_builds(at)
        assert got.root.path == tmp_path / "elsewhere"
        assert got.environment == other.environment and got.checkout == at.checkout
        build(at.root.path, at.environment.name)
        assert linked.with_builds(at) is at

    def test_of_another_checkout(
        self, tmp_path: Path, links: dict[Path, Linked]
    ) -> None:
        """A link that came along from elsewhere makes no other's builds our own."""
        at = fakescene.scene(tmp_path)
        links[at.checkout] = replace(build(at.root.path, "a-1"), checkout=at.checkout)
        links[HERE] = build(at.root.path, "rig-1")
        assert linked.with_builds(at) is at


class TestTargetOf:
    """A folder that is named with ``--source``."""

    def test_of_a_wheel(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """One that is no target, and got an environment, is meant by its name."""
        its = Linked(tmp_path / "venvs" / "c-1", tmp_path)
        monkeypatch.setattr(linked, "of", lambda at: its)
        named = {"source": str(tmp_path)}
        with pytest.raises(UsageError, match="is no target"):
            linked.target_of(resolve(named, {}))
        run = Record(StateRoot(tmp_path), "invoke install-wheel")
        run.update(environment=str(its.environment), profile="v100-cu128")
        got = linked.target_of(resolve(named, {}))
        assert got.path == tmp_path and got.profile.name == "v100-cu128"
        with pytest.raises(UsageError, match="is no target"):
            linked.target_of(resolve({**named, "profile": "sample"}, {}))

    def test_none(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Any other is refused, as for a build."""
        monkeypatch.setattr(linked, "of", lambda at: None)
        for name in (tmp_path, tmp_path / "none"):
            with pytest.raises(UsageError, match="--source|is no target"):
                linked.target_of(resolve({"source": str(name)}, {}))
        assert linked.target_of(resolve({}, {})).profile

    def test_who_asks(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """What looks at an environment takes such a folder; a plan does not."""
        asked: list[object] = []
        at = fakescene.scene(tmp_path)

        def find(*args: object, seams: commands.scenes.Seams, **how: object) -> object:
            asked.append(seams.find_target)
            return at

        monkeypatch.setattr(commands.scenes, "find", find)
        console = Console(io.StringIO(), {})
        commands.scene(console, {}, lay_out=False, python=False)
        commands.scene(console, {}, lay_out=False)
        assert asked[0] == linked.target_of and asked[1] != linked.target_of
