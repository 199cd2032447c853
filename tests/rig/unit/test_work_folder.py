# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The lasting build folder: its links, and what others put in their places."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tools.rig.base.errors import StepFailed
from tools.rig.base.state import SENTINEL, StateRoot
from tools.rig.builds import ninja_log, work_folder
from tools.rig.builds.work_folder import Names, WorkFolder

NAMES = Names("linux-x86_64", "cpython-312")
TEMP = Path("build/temp.linux-x86_64-cpython-312")
LIB = Path("build/lib.linux-x86_64-cpython-312")


class Bench:
    """A checkout with a project below it, and a state root."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = StateRoot(folder / "root")
        self.checkout = folder / "code"
        (self.checkout / "sub").mkdir(parents=True)
        self.env = folder / "env"

    def plan(self, name: str = "p-cuda12.4-gcc12") -> WorkFolder:
        """Plan the folder of a variant."""
        near = {"env": self.env}
        projects = ("sub", "not-here")
        return work_folder.plan(
            self.root, "code-1", name, self.checkout, NAMES, near, projects
        )

    def lay_out(self, name: str = "p-cuda12.4-gcc12") -> list[str]:
        """Lay the folder of a variant out."""
        return work_folder.lay_out(self.plan(name), self.root)

    @property
    def temp(self) -> Path:
        """Where the checkout's objects go."""
        return self.checkout / TEMP


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Return a bench."""
    return Bench(tmp_path)


def test_variant() -> None:
    """A name says profile, toolkit and compiler, without odd signs."""
    made = work_folder.variant("v100", "12.4", "gcc12")
    assert made == "v100-cuda12.4-gcc12"
    assert work_folder.variant("v100", "", "g/c") == "v100-g-c"


class TestLayOut:
    """Links in the checkout lead to the folder."""

    def test_fresh(self, bench: Bench) -> None:
        """A checkout without a build folder gets links, a second time no other."""
        assert bench.lay_out() == [] and bench.lay_out() == []
        work = bench.plan()
        assert len(work.links) == 6
        for below, target in work.links.items():
            assert os.readlink(bench.checkout / below) == str(target)
            assert target.is_dir()
        assert (work.home / SENTINEL).is_file()
        assert (work.home / "near" / "src").resolve() == bench.checkout
        assert os.readlink(work.home / "near" / "env") == str(bench.env)
        assert not (bench.checkout / "not-here").exists()

    def test_another_variant(self, bench: Bench) -> None:
        """Another toolkit's folder takes the place, and the first keeps its objects."""
        bench.lay_out()
        (bench.temp / "a.o").write_text("one")
        assert bench.lay_out("p-cuda12.8-gcc13") == []
        assert not any(bench.temp.iterdir())
        bench.lay_out()
        assert (bench.temp / "a.o").read_text() == "one"

    def test_a_copied_checkout(self, bench: Bench) -> None:
        """Links that were copied with a checkout are turned to its own folder."""
        theirs = bench.folder / "old" / "work" / "code-2" / "p" / TEMP
        bench.temp.parent.mkdir()
        bench.temp.symlink_to(theirs)
        assert bench.lay_out() == []
        assert bench.temp.resolve() == bench.plan().links[TEMP]

    def test_a_link_of_the_users(self, bench: Bench) -> None:
        """A link to somewhere else stays, and what lies there is left alone."""
        theirs = bench.folder / "scratch"
        theirs.mkdir()
        (theirs / "empty.o").touch()
        bench.temp.parent.mkdir()
        bench.temp.symlink_to(theirs)
        said = bench.lay_out()
        assert said == [f"{bench.temp} is a link of your own, to {theirs}, and stays"]
        assert (theirs / "empty.o").exists()

    def test_a_real_folder_moves_in(self, bench: Bench) -> None:
        """What was built in the checkout goes on in the lasting folder."""
        bench.temp.mkdir(parents=True)
        (bench.temp / "a.o").write_text("built")
        said = bench.lay_out()
        target = bench.plan().links[TEMP]
        assert said == [f"{bench.temp} was moved to {target}"]
        assert (target / "a.o").read_text() == "built" and bench.temp.is_symlink()

    def test_an_empty_folder(self, bench: Bench) -> None:
        """An empty one is no news."""
        bench.temp.mkdir(parents=True)
        assert bench.lay_out() == [] and bench.temp.is_symlink()

    def test_a_real_folder_beside_ours(self, bench: Bench) -> None:
        """Where both hold objects, the checkout's is put aside and kept."""
        bench.lay_out()
        (bench.temp / "a.o").write_text("ours")
        bench.temp.unlink()
        bench.temp.mkdir()
        (bench.temp / "a.o").write_text("theirs")
        (said,) = bench.lay_out()
        aside = Path(said.rpartition(": ")[2])
        assert (aside / "a.o").read_text() == "theirs"
        assert (bench.temp / "a.o").read_text() == "ours"
        # what looks for build folders does not find this one
        assert not aside.name.startswith("temp")

    def test_another_disk(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        """From another disk nothing is moved: it is put aside there."""
        bench.temp.mkdir(parents=True)
        (bench.temp / "a.o").touch()
        rename = os.rename

        def renamed(old: Path, new: Path) -> None:
            if bench.root.path in Path(new).parents:
                raise OSError(errno.EXDEV, "another disk")
            rename(old, new)

        monkeypatch.setattr(os, "rename", renamed)
        (said,) = bench.lay_out()
        assert said.startswith("an earlier build folder was put aside: ")

    def test_no_links(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        """On a disk without links a real folder stays as it is."""
        bench.temp.mkdir(parents=True)
        (bench.temp / "a.o").write_text("built")
        link = Path.symlink_to

        def linked(self: Path, target: Path, **options: bool) -> None:
            if bench.checkout in self.parents:
                raise PermissionError(errno.EPERM, "Operation not permitted")
            link(self, target, **options)

        monkeypatch.setattr(Path, "symlink_to", linked)
        said = bench.lay_out()
        assert said[0] == f"{bench.temp} stays in the checkout: Operation not permitted"
        assert (bench.temp / "a.o").read_text() == "built" and len(said) == 6

    def test_no_room(self, bench: Bench) -> None:
        """A root that cannot be written fails before the checkout is touched."""
        bench.root.make(bench.root.path / "work")
        bench.plan().home.parent.mkdir()
        bench.root.make(bench.plan().home)
        (bench.plan().home / "near").touch()
        with pytest.raises(StepFailed):
            bench.lay_out()
        assert not (bench.checkout / "build").exists()


class TestTidy:
    """What would make the next build wait, fail or be wrong is taken away."""

    def test_torchs_lock(self, bench: Bench) -> None:
        """A lock that a killed build of torch's left goes, other files stay."""
        bench.lay_out()
        for name in ("ext", "other"):
            (bench.temp / name).mkdir()
            (bench.temp / name / "lock").touch()
        (bench.temp / "ext" / "build.ninja").touch()
        bench.lay_out()
        assert not (bench.temp / "ext" / "lock").exists()
        assert (bench.temp / "other" / "lock").exists()

    def test_empty_objects(self, bench: Bench) -> None:
        """An object that a power cut emptied is made again."""
        bench.lay_out()
        (bench.temp / "cut.o").touch()
        (bench.temp / "whole.o").write_text("x")
        bench.lay_out()
        assert [p.name for p in bench.temp.iterdir()] == ["whole.o"]

    def test_odd_objects(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        """A link that leads nowhere is left; what cannot be removed is named."""
        bench.lay_out()
        (bench.temp / "a.o").symlink_to("nowhere")
        bench.lay_out()
        assert (bench.temp / "a.o").is_symlink()
        (bench.temp / "b.o").touch()

        def refuse(path: Path, missing_ok: bool = False) -> None:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(path))

        monkeypatch.setattr(Path, "unlink", refuse)
        with pytest.raises(StepFailed, match=r"cannot write .*b\.o: Operation not"):
            bench.lay_out()

    def test_files_that_left(self, bench: Bench) -> None:
        """A file that is no more in the checkout goes into no wheel; libraries stay."""
        bench.lay_out()
        lib = bench.checkout / LIB
        (bench.checkout / "pkg").mkdir()
        (bench.checkout / "pkg" / "here.py").touch()
        (lib / "pkg").mkdir()
        for name in ("here.py", "gone.py", "_C.abi3.so"):
            (lib / "pkg" / name).touch()
        bench.lay_out()
        names = {p.name for p in (lib / "pkg").iterdir()}
        assert names == {"here.py", "_C.abi3.so"}

    def test_a_projects_libraries(self, bench: Bench) -> None:
        """Those of a project below go: setuptools would not look at its headers."""
        bench.lay_out()
        library = bench.checkout / "sub" / LIB / "x.so"
        library.touch()
        bench.lay_out()
        assert not library.exists()


def test_logs_through_links(bench: Bench) -> None:
    """Ninja's logs are found through the links, those of projects below too."""
    bench.lay_out()
    (bench.temp / "ext").mkdir()
    for n, folder in enumerate(
        (bench.temp, bench.temp / "ext", bench.checkout / "sub" / TEMP)
    ):
        (folder / ".ninja_log").write_text(f"# ninja log v7\n0\t9\t1\to{n}\tabc\n")
    steps = ninja_log.of_checkout(bench.checkout)
    assert {step.output for step in steps} == {"o0", "o1", "o2"}
