# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What the plan says is made, and a run that dies between two steps does no harm."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from tests.rig.support.settled import Fake
from tests.rig.support.settled import fake as fake
from tests.rig.support.settled import no_uv_beside as no_uv_beside
from tools.rig.base.errors import InUseError, StepFailed
from tools.rig.builds import settle
from tools.rig.host.look import Link


class TestAct:
    """Acting on a plan."""

    def test_makes_everything(self, fake: Fake) -> None:
        """Root, environment, folders, link, and the records last."""
        plan = fake.plan()
        made = fake.act(plan)
        assert made.path == fake.root / "venvs" / "src-0a1b2c3d"
        assert made.python == made.path / "bin/python"
        assert made.python_version == "3.12.3"
        assert fake.links == [(fake.checkout / ".venv", made.path)]
        assert made.link == fake.checkout / ".venv"
        for name in ("", "venvs", "deps/src-0a1b2c3d", "cache", "tmp"):
            assert (fake.root / name / ".rig-made").is_file()
        memory = json.loads((fake.tmp / "home/root.json").read_text())
        assert memory == {"chosen": False, "root": str(fake.root), "why": "test"}
        kept = json.loads((fake.root / "places/src-0a1b2c3d.json").read_text())
        assert kept["checkout"] == str(fake.checkout) and kept["python"] == "3.12.3"
        assert kept["refused"] == ["/nas (test): you may not write there"]
        assert "not used: /nas (test): you may not write there" in fake.out.getvalue()

    def test_second_run_changes_nothing(self, fake: Fake) -> None:
        """Uv is not asked again, the memory is not written again."""
        fake.act(fake.plan())
        stamp = (fake.tmp / "home/root.json").stat().st_mtime_ns
        fake.argvs.clear()
        made = fake.act(fake.plan(remembered=fake.root))
        assert fake.argvs == [] and made.python_version == "3.12.3"
        assert (fake.tmp / "home/root.json").stat().st_mtime_ns == stamp

    def test_broken_is_set_aside(self, fake: Fake) -> None:
        """Each broken one is kept under a name of its own."""
        for number in range(3):
            made = fake.act(fake.plan())
            (made.path / "pyvenv.cfg").unlink()
            (made.path / f"n{number}").touch()
        made = fake.act(fake.plan())
        assert [p.name for p in made.path.parent.glob("src-*")] == ["src-0a1b2c3d"]
        names = sorted(p.name for p in made.bench.parent.glob("src-*"))
        assert names == [
            "src-0a1b2c3d",
            "src-0a1b2c3d.broken",
            "src-0a1b2c3d.broken-2",
            "src-0a1b2c3d.broken-3",
        ]
        assert any("it is kept as" in n for n in made.notes)

    def test_broken_folder(self, fake: Fake) -> None:
        """One that an earlier version made at the place itself is kept as well."""
        old = fake.root / "venvs" / "src-0a1b2c3d"
        old.mkdir(parents=True)
        made = fake.act(fake.plan(), before_moving=lambda: None)
        assert made.path.is_symlink() and made.path.resolve() == made.bench
        assert old.with_name("src-0a1b2c3d.broken").is_dir()

    def test_broken_before_a_build(self, fake: Fake) -> None:
        """A build leaves it to its own switch, which looks who uses it."""
        made = fake.act(fake.plan())
        gone = fake.root / "generations" / made.path.name / "one"
        made.path.unlink()
        made.path.symlink_to(gone)
        again = fake.act(fake.plan())
        assert os.readlink(again.path) == str(gone) and again.bench.is_dir()
        assert "it is left until a switch" in fake.out.getvalue()

    def test_generation_in_force(self, fake: Fake) -> None:
        """A bench that went is made again, from the Python of what is in force."""
        made = fake.act(fake.plan())
        other = fake.root / "generations" / made.path.name / "one"
        other.parent.mkdir()
        made.bench.rename(other)
        made.path.unlink()
        made.path.symlink_to(other)
        fake.argvs.clear()
        again = fake.act(fake.plan())
        assert again.path.resolve() == other and again.bench.is_dir()
        assert str(made.path / "bin/python") in fake.argvs[0]

    def test_in_use_is_not_moved(self, fake: Fake) -> None:
        """Who uses a broken environment keeps it; one that serves asks nobody."""

        def refuse() -> None:
            raise InUseError("somebody uses it")

        made = fake.act(fake.plan(), before_moving=refuse)
        fake.act(fake.plan(), before_moving=refuse)
        (made.path / "pyvenv.cfg").unlink()
        with pytest.raises(InUseError):
            fake.act(fake.plan(), before_moving=refuse)
        assert [p.name for p in made.path.parent.glob("src-*")] == [made.path.name]
        assert not (made.path / "pyvenv.cfg").exists()
        fake.act(fake.plan(), before_moving=lambda: None)
        assert (made.path / "pyvenv.cfg").exists()

    def test_made_and_does_not_work(self, fake: Fake) -> None:
        """What uv made is asked before it is called good."""
        fake.works = False
        with pytest.raises(StepFailed, match="was made and does not work"):
            fake.act(fake.plan())

    def test_link_left(self, fake: Fake) -> None:
        """A name of the user's is not touched; message and command are told."""
        made = fake.act(fake.plan(link=Link("directory")))
        assert made.link is None and fake.links == []
        assert "is left" in made.notes[-1]
        assert "  hint: mv" in fake.out.getvalue().splitlines()[-1]

    def test_read_only(self, fake: Fake) -> None:
        """A checkout that cannot be written to gets no link."""
        made = fake.act(fake.plan(writable=False))
        assert made.link is None and "cannot be written" in fake.out.getvalue()

    def test_link_kept(self, fake: Fake) -> None:
        """Our own link stays."""
        target = fake.root / "venvs" / "src-0a1b2c3d"
        made = fake.act(fake.plan(link=Link("link", "x", str(target))))
        assert made.link == fake.checkout / ".venv" and fake.links == []

    @pytest.mark.parametrize("relink", [False, True])
    def test_link_of_ours_elsewhere(self, fake: Fake, relink: bool) -> None:
        """It is switched where that is asked for; a build does it later."""
        link = Link("link", "/r/venvs/a-1", "/r/venvs/a-1", True, made=True)
        made = fake.act(fake.plan(link=link), relink=relink)
        assert fake.links == ([(made.link, made.path)] if relink else [])

    def test_link_taken_meanwhile(self, fake: Fake) -> None:
        """Somebody else's link that appeared since is told and left."""
        made = fake.act(fake.plan(), problem="File exists")
        assert made.link is None and "(File exists)" in made.notes[-1]

    def test_root_of_a_stranger(
        self, fake: Fake, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A name that was taken before us is not used, unless the user named it."""
        plan, named = fake.plan(), fake.plan(chosen=True)
        monkeypatch.setattr(os, "getuid", lambda: 2**20 + 3)
        with pytest.raises(StepFailed, match="belongs to somebody else"):
            fake.act(plan)
        assert fake.act(named).root.path == fake.root

    def test_root_cannot_be_made(self, fake: Fake) -> None:
        """A file in the way is a message."""
        plan = fake.plan(root=fake.tmp / "file" / "root")
        (fake.tmp / "file").touch()
        with pytest.raises(StepFailed, match="cannot (make|write)"):
            fake.act(plan)


@pytest.mark.parametrize(
    "dies_at", ["_make_folders", "_python", "make_venv", "_link", "record"]
)
def test_a_run_that_dies_is_completed_by_the_next(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, dies_at: str
) -> None:
    """Between any two steps there is nothing that a second run trips over."""
    where = settle.uv if dies_at == "make_venv" else settle
    real = getattr(where, dies_at)

    def die(*args: Any, **how: Any) -> None:
        real(*args, **how)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(where, dies_at, die)
        with pytest.raises(KeyboardInterrupt):
            fake.act(fake.plan())
    made = fake.act(fake.plan())
    assert (made.path / "pyvenv.cfg").is_file() and made.python_version == "3.12.3"
    names = sorted(p.name for p in made.path.parent.iterdir())
    assert names == [".rig-made", "src-0a1b2c3d"]
    assert (fake.tmp / "home/root.json").is_file()
