# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What the plan says is made, and a run that dies between two steps does no harm."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tools.rig.base import run
from tools.rig.base.config import resolve
from tools.rig.base.console import Console
from tools.rig.base.errors import CannotError, InUseError, StepFailed
from tools.rig.builds import place, settle, survey
from tools.rig.builds.candidates import Candidate
from tools.rig.builds.place import Environment, PlaceFacts, PlacePlan
from tools.rig.host import pythons
from tools.rig.host.look import Checkout, Disk, Link
from tools.rig.host.pythons import Python
from tools.rig.host.storage import Mount, Rates
from tools.rig.steps import venv

MOUNT = Mount(Path("/"), "ext4", "/dev/sda", "rw", "8:1")
PY312 = Python(Path("/usr/bin/python3.12"), "3.12.3", "PATH")
PY311 = Python(Path("/usr/bin/python3.11"), "3.11.2", "PATH")


class Fake:
    """A world with a fake uv on the path; everything else is files below `tmp`."""

    def __init__(self, tmp: Path) -> None:
        self.tmp = tmp
        self.bin = tmp / "bin"
        self.bin.mkdir()
        (self.bin / "uv").touch(mode=0o755)
        self.checkout = tmp / "src"
        self.checkout.mkdir()
        self.root = tmp / "root"
        self.out = io.StringIO()
        self.argvs: list[list[str]] = []
        self.works = True
        self.brings = ""
        self.brought = PY312
        self.links: list[tuple[Path, Path]] = []

    def plan(self, **more: Any) -> PlacePlan:
        """Return a plan for this world; `more` changes the facts."""
        root = more.pop("root", self.root)
        chosen = more.pop("chosen", False)
        link = more.pop("link", Link("absent"))
        path, place_name = self.checkout, "src-0a1b2c3d"
        writable = more.pop("writable", True)
        environment = root / "venvs" / place_name
        venv_state = survey.inspect(environment, self.ask)
        disk = Disk(
            root, root, MOUNT, writable=True, rates=Rates(9e3, 9e3, 9e3, 9e3, 0.1, 1)
        )
        facts = PlaceFacts(
            checkout=Checkout(path, path, place_name, os.getuid(), writable, link),
            checkout_disk=disk,
            candidates=(
                Candidate(Path("/nas"), "test", replace(disk, writable=False), True),
                Candidate(root, "test", disk, chosen, *venv_state),
            ),
            uid=os.getuid(),
            pythons=(PY312,),
            wanted="3.12",
            remembered_in=self.tmp / "home" / "root.json",
            remembered=more.pop("remembered", None),
        )
        return place.plan(replace(facts, **more), 0)

    def ask(self, argv: list[Any], **how: Any) -> run.Result:
        """Stand for `run.run`: uv makes folders, its Pythons answer."""
        args = [str(a) for a in argv]
        if args[1] == "venv":
            self.argvs.append(args)
            made = Path(args[-1])
            (made / "bin").mkdir(parents=True)
            (made / "bin" / "python").touch()
            (made / "pyvenv.cfg").touch()
            return run.Result((), 0, "", "", 0.1)
        if args[1:3] == ["python", "find"]:
            return run.Result((), 0, self.brings, "", 0.1)
        if args[-1] == pythons._ASK:
            problem = self.brought.problem
            said = {
                "version": self.brought.version,
                "base": args[0],
                "implementation": "pypy" if problem else "cpython",
                "free_threaded": False,
                "wide": True,
                "headers": self.brought.headers,
            }
            return run.Result((), 0, json.dumps(said), "", 0.1)
        there = Path(args[0]).exists() and self.works
        return run.Result((), 0 if there else 1, "3 12 3 final 0", "", 0.1)

    def stream(self, argv: list[str], *, on_line: Any, **how: Any) -> run.Result:
        """Stand for `run.stream`: uv brings a Python, or not."""
        self.argvs.append(argv)
        if self.brings:
            return run.Result((), 0, "", "", 0.1)
        on_line("error: x")
        on_line("cause: dns error")
        return run.Result((), 1, "", "", 0.1)

    def act(
        self,
        plan: PlacePlan,
        problem: str = "",
        before_moving: Callable[[], object] | None = None,
        relink: bool = False,
    ) -> Environment:
        """Act in this world."""

        def make_link(link: Path, target: Path, instead: str) -> str:
            self.links.append((link, target))
            return problem

        return settle.act(
            plan,
            Console(self.out, {}),
            env={"PATH": str(self.bin)},
            ask=self.ask,
            stream=self.stream,
            make_link=make_link,
            before_moving=before_moving,
            relink=relink,
        )


@pytest.fixture(autouse=True)
def no_uv_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the fake uv on the path, never the one beside this interpreter."""
    real = settle.uv.program
    monkeypatch.setattr(settle.uv, "program", lambda env: real(env, "/none/python"))


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    """Return a fresh world."""
    return Fake(tmp_path)


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
        made = fake.act(fake.plan())
        assert made.path.is_symlink() and made.path.resolve() == made.bench
        assert old.with_name("src-0a1b2c3d.broken").is_dir()

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


def test_the_step(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Facts, plan and act in a row; the document holds what scripts need."""
    facts = fake.plan().facts
    asked: dict[str, Any] = {}

    def survey_facts(settings: Any, checkout: Path, **how: Any) -> PlaceFacts:
        asked.update(how)
        slow = Candidate(Path("/slow"), "test", facts.candidates[0].disk)
        return replace(facts, candidates=(slow, facts.candidates[1]))

    def act(
        plan: PlacePlan,
        console: Console,
        *,
        env: Any,
        before_moving: Any,
        relink: bool,
    ) -> Environment:
        assert env == {"A": "1"} and relink
        before_moving()
        return fake.act(plan)

    monkeypatch.setattr(venv, "facts", survey_facts)
    monkeypatch.setattr(venv, "act", act)
    got = venv.venv_local(
        resolve({}, {}),
        fake.checkout,
        Console(fake.out, {}),
        need_bytes=0,
        python="3.11",
        env={"A": "1"},
    )
    assert asked == {"python": "3.11", "env": {"A": "1"}, "need_headers": False}
    doc = json.loads(json.dumps(got.to_json()))
    assert doc["environment"] == str(fake.root / "venvs" / "src-0a1b2c3d")
    assert doc["fetchcontent_base_dir"] == str(fake.root / "deps" / "src-0a1b2c3d")
    assert doc["link"] == str(fake.checkout / ".venv") and doc["was"] == "absent"
    assert [p["refused"] for p in doc["places"]] == ["you may not write there", None]
    assert "/slow (test): you may not write there" in fake.out.getvalue()
