# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""venv-local with real disks, the real uv and real Pythons."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.rig.support import disks, slowfs
from tools.rig.base import abandon
from tools.rig.base.config import resolve
from tools.rig.base.console import Console
from tools.rig.base.errors import CannotError, ExitCode, InUseError, StepFailed
from tools.rig.base.state import SENTINEL, write_json
from tools.rig.builds import place, survey
from tools.rig.builds.candidates import GIB
from tools.rig.builds.generation import Generation
from tools.rig.host import look, pythons, storage
from tools.rig.steps import gone, venv

pytestmark = pytest.mark.real

MIB = 1 << 20
needs_fuse = pytest.mark.skipif(
    bool(slowfs.unavailable()), reason=f"no FUSE: {slowfs.unavailable()}"
)


@pytest.fixture(scope="session")
def python() -> pythons.Python:
    """Return a Python of this machine that environments can be made with."""

    def enough(found: pythons.Python) -> bool:
        return pythons.choose([found], "3.12", ">=3.10") is not None

    found = [p for p in pythons.find(os.environ, enough=enough) if enough(p)]
    if not found:
        pytest.skip("no Python >= 3.10 besides this one")
    return found[0]


@dataclass
class Stage:
    """A home, a checkout and a console of a made-up user."""

    tmp: Path
    checkout: Path
    env: dict[str, str]
    python: Path
    out: io.StringIO

    def run(
        self, checkout: Path | None = None, need: int = 64 * MIB, **cli: object
    ) -> venv.VenvResult:
        """Run the whole step."""
        settings = resolve({"python": str(self.python), **cli}, self.env)
        return venv.venv_local(
            settings,
            checkout or self.checkout,
            Console(self.out, self.env),
            need_bytes=need,
            env=self.env,
        )

    def remember(self, root: Path) -> None:
        """Let `root` be the one that the user named at some time before."""
        memory = survey.remembered_file(self.env)
        write_json(memory, {"root": str(root), "chosen": True})

    @property
    def said(self) -> str:
        """What people were told."""
        return self.out.getvalue()


@pytest.fixture
def stage(tmp_path: Path, python: pythons.Python) -> Stage:
    """Set up a home and a checkout with names that are hard to quote."""
    if storage.kind(storage.mount_of(tmp_path).fs) in ("memory", "network"):
        pytest.skip("the folder for temporary files is not on a local disk")
    checkout = tmp_path / 'it\'s a "räk-kärra" $HOME'
    checkout.mkdir()
    (checkout / "pyproject.toml").write_text('[project]\nrequires-python = ">=3.10"\n')
    home = tmp_path / "hem måne"
    home.mkdir()
    env = {
        "HOME": str(home),
        "PATH": os.environ.get("PATH", os.defpath),
        "UV_OFFLINE": "1",
    }
    return Stage(tmp_path, checkout, env, python.path, io.StringIO())


def works(environment: Path) -> bool:
    """Ask the environment's Python where it lives."""
    code = "import sys; print(sys.prefix)"
    got = subprocess.run(
        [environment / "bin" / "python", "-c", code],
        capture_output=True,
        text=True,
        check=False,
    )
    return got.returncode == 0 and Path(got.stdout.strip()) == environment


def fill(filler: Path) -> None:
    """Write a file until the disk has no room for one byte more."""
    with filler.open("wb", buffering=0) as fh:
        for block in (1 << 16, 1):
            with contextlib.suppress(OSError):
                while fh.write(b"x" * block):
                    pass


class TestPlacing:
    """Where the environment ends up."""

    def test_a_good_disk_is_taken_and_remembered(self, stage: Stage) -> None:
        """The home's disk serves; the link works; a second run changes nothing."""
        first = stage.run()
        made = first.environment
        assert made.link == stage.checkout / ".venv"
        assert Path(os.readlink(made.link)) == made.path and works(made.path)
        assert made.path.resolve() == made.bench
        assert made.path.is_relative_to(stage.env["HOME"])
        stamp = (made.path / "pyvenv.cfg").stat().st_mtime_ns
        second = stage.run()
        assert second.plan.existing == "ready"
        assert (made.path / "pyvenv.cfg").stat().st_mtime_ns == stamp
        file = survey.remembered_file(stage.env)
        assert survey.remembered_root(file) == (made.root.path, False)

    @needs_fuse
    def test_a_slow_disk_is_refused_by_measurement(self, stage: Stage) -> None:
        """A disk with 60 ms a look and a stranger's files: only the link goes there."""
        nas = stage.tmp / "nas disk"
        nas.mkdir()
        with slowfs.mounted(stage.checkout, nas, delay_ms=60, uid=4711):
            stage.remember(nas / "root")
            got = stage.run(nas)
            (nas_first, *_, last) = got.plan.verdicts
            assert "too slow: fuse.slowfs" in nas_first.reason
            assert last.candidate.root.is_relative_to(stage.env["HOME"])
            assert works(got.environment.path)
            assert os.readlink(nas / ".venv") == str(got.environment.path)
            assert "files take about" in stage.said
            assert any("belongs to user 4711" in n for n in got.environment.notes)
            assert any("own disk is slow" in n for n in got.environment.notes)
        assert not (stage.checkout / "root").exists()

    def test_a_disk_in_memory_is_refused(self, stage: Stage) -> None:
        """What is gone after a restart is no place, however fast it is."""
        why = disks.refused(disks.memory())
        if why:
            pytest.skip(f"cannot mount: {why}")
        with disks.memory() as point:
            stage.remember(point / "root")
            got = stage.run()
            assert "lies in memory" in got.plan.verdicts[0].reason
            assert works(got.environment.path)
            assert list(point.iterdir()) == []

    def test_too_small_a_disk_is_refused(self, stage: Stage) -> None:
        """The bytes that will be needed are asked for before anything is made."""
        why = disks.refused(disks.ext4(stage.tmp / "try", 8))
        if why:
            pytest.skip(f"cannot mount: {why}")
        with disks.ext4(stage.tmp / "small", 8) as small:
            with pytest.raises(CannotError, match="no space") as caught:
                stage.run(local_root=small / "root")
            assert "GiB free" in caught.value.hint
            assert not (small / "root").exists()

    def test_no_place_at_all(self, stage: Stage) -> None:
        """Every place is named with its reason, and the exit code says cannot."""
        with pytest.raises(CannotError) as caught:
            stage.run(need=1 << 60)
        assert caught.value.code == ExitCode.CANNOT
        assert all("no space" in line for line in caught.value.details)
        assert "ONECAT_LOCAL_ROOT" in caught.value.hint
        assert not (stage.checkout / ".venv").is_symlink()

    def test_a_folder_full_of_other_things_is_not_claimed(self, stage: Stage) -> None:
        """A folder that the user names stays theirs: ours is one inside it."""
        full = stage.tmp / "mine"
        full.mkdir()
        (full / "thesis.tex").touch()
        got = stage.run(local_root=full)
        assert got.environment.root.path == full / survey.NAME
        assert sorted(p.name for p in full.iterdir()) == [survey.NAME, "thesis.tex"]

    def test_no_permission(self, stage: Stage) -> None:
        """A folder of somebody else is refused, once root lays down its powers."""
        if os.getuid() != 0 or shutil.which("setpriv") is None:
            pytest.skip("giving a folder away takes root and setpriv")
        closed = stage.tmp / "closed"
        closed.mkdir(mode=0o755)
        os.chown(closed, 65534, 65534)
        code = (
            "import sys; from pathlib import Path; from tools.rig.host import look; "
            "got = look.disk(Path(sys.argv[1])); print(got.writable, got.problem)"
        )
        powerless = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
        got = subprocess.run(
            [*powerless, sys.executable, "-c", code, str(closed / "x")],
            cwd=Path(look.__file__).parents[3],
            capture_output=True,
            text=True,
            check=False,
        )
        assert got.stdout.strip() == "False Permission denied", got.stderr


class TestFullDisk:
    """A disk that fills up while something is made."""

    @pytest.mark.parametrize("begun", [False, True], ids=["at once", "under uv"])
    def test_nothing_half_made_is_left(self, stage: Stage, begun: bool) -> None:
        """The disk is named, what was made beside is gone, a later run works."""
        why = disks.refused(disks.ext4(stage.tmp / "try", 8))
        if why:
            pytest.skip(f"cannot mount: {why}")
        with disks.ext4(stage.tmp / "small", 8) as small:
            root = small / "root"
            settings = resolve(
                {"python": str(stage.python), "local_root": root}, stage.env
            )
            facts = survey.facts(settings, stage.checkout, env=stage.env)
            its = place.plan(facts, 0)
            if begun:
                for folder in (root, its.root.venvs, its.root.deps, its.deps):
                    its.root.make(folder)
                its.root.make(its.root.generations)
                its.root.make(its.root.benches)
                its.root.make(its.root.cache)
                its.root.make(its.root.tmp)
            filler = small / "filler"
            fill(filler)
            with pytest.raises(StepFailed) as caught:
                venv.act(its, Console(stage.out, stage.env), env=stage.env)
            told = "\n".join(caught.value.lines())
            assert "No space left" in told and str(root) in told
            assert begun == ("the disk is full" in told)
            assert caught.value.hint.startswith("df -h")
            assert [p for p in root.glob("venvs/*") if p.name != SENTINEL] == []
            assert not (stage.checkout / ".venv").is_symlink()
            assert "No space left" in look.disk(root).problem
            filler.unlink()
            got = stage.run(need=0, local_root=root)
            assert got.environment.root.path == root and works(got.environment.path)


@needs_fuse
class TestDeadDisk:
    """A disk that does not answer any more."""

    def test_a_dead_checkout_is_named(self, stage: Stage, tmp_path: Path) -> None:
        """The probe is left behind in time, and the mount is named."""
        nas, hang = stage.tmp / "dead nas", stage.tmp / "hang"
        nas.mkdir()
        with slowfs.mounted(stage.checkout, nas, hang_file=hang):
            hang.touch()
            start = time.monotonic()
            with pytest.raises(look.Hung) as caught:
                look.checkout(nas, limit_s=2)
            assert time.monotonic() - start < 10
            assert str(nas) in caught.value.what and "slowfs" in caught.value.what
            assert caught.value.mount.point == nas
            assert abandon.left_behind(), "a call in the kernel cannot be killed"
        deadline = time.monotonic() + 10
        while abandon.left_behind() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not abandon.left_behind()

    def test_a_dead_candidate_is_passed_over(self, stage: Stage) -> None:
        """The choice falls on the next place, and the dead one is named."""
        nas, hang = stage.tmp / "dead nas", stage.tmp / "hang"
        nas.mkdir()
        seams = survey.Seams(disk=lambda path, **how: look.disk(path, limit_s=2, **how))
        settings = resolve({"python": str(stage.python)}, stage.env)
        stage.remember(nas / "root")
        with slowfs.mounted(stage.checkout, nas, hang_file=hang):
            hang.touch()
            facts = survey.facts(settings, stage.checkout, env=stage.env, seams=seams)
            its = place.plan(facts, 0)
        assert "hangs" in its.verdicts[0].reason and str(nas) in its.verdicts[0].reason
        assert its.root.path.is_relative_to(stage.env["HOME"])


class TestLinkStates:
    """What may stand at ``.venv``, and that it is never replaced."""

    def test_a_folder(self, stage: Stage) -> None:
        """An environment of the user's own stays; ours is used by its real path."""
        own = stage.checkout / ".venv"
        own.mkdir()
        (own / "pyvenv.cfg").write_text("mine")
        got = stage.run()
        assert got.environment.link is None and works(got.environment.path)
        assert (own / "pyvenv.cfg").read_text() == "mine"
        assert ".venv is a directory of yours" in stage.said
        assert "hint: mv " in stage.said

    def test_a_file(self, stage: Stage) -> None:
        """A file of that name stays."""
        (stage.checkout / ".venv").write_text("note")
        got = stage.run()
        assert got.environment.link is None
        assert (stage.checkout / ".venv").read_text() == "note"

    @pytest.mark.parametrize("there", [True, False], ids=["there", "dangling"])
    def test_a_link_to_somewhere_else(self, stage: Stage, there: bool) -> None:
        """A link of the user's own stays, also when its target is gone."""
        other = stage.tmp / "other"
        if there:
            other.mkdir()
        (stage.checkout / ".venv").symlink_to(other)
        got = stage.run()
        assert got.environment.link is None and works(got.environment.path)
        assert os.readlink(stage.checkout / ".venv") == str(other)
        assert f"points to {other}" in stage.said
        assert other.exists() == there

    def test_a_loop(self, stage: Stage) -> None:
        """A link to itself is a link to somewhere else."""
        (stage.checkout / ".venv").symlink_to(".venv")
        got = stage.run()
        assert got.environment.link is None
        assert os.readlink(stage.checkout / ".venv") == ".venv"

    def test_made_by_another_host(self, stage: Stage) -> None:
        """A dangling link to our own place stays, and its target is made here."""
        first = stage.run(local_root=stage.tmp / "scratch")
        inode = os.lstat(stage.checkout / ".venv").st_ino
        shutil.rmtree(stage.tmp / "scratch")
        shutil.rmtree(stage.env["HOME"])
        os.mkdir(stage.env["HOME"])
        got = stage.run()
        assert got.environment.path == first.environment.path
        assert got.environment.link == stage.checkout / ".venv"
        assert os.lstat(stage.checkout / ".venv").st_ino == inode
        assert works(stage.checkout / ".venv" / ".." / got.environment.path)

    def test_a_copied_checkout(self, stage: Stage) -> None:
        """Our own link came along, and leads to the copy's own environment then."""
        first = stage.run()
        copy = stage.tmp / "copy"
        shutil.copytree(stage.checkout, copy, symlinks=True)
        got = stage.run(copy)
        assert got.environment.path != first.environment.path
        assert os.readlink(copy / ".venv") == str(got.environment.path)
        theirs = os.readlink(stage.checkout / ".venv")
        assert theirs == str(first.environment.path)
        again = stage.run(copy, local_root=stage.tmp / "scratch")
        assert os.readlink(copy / ".venv") == str(again.environment.path)
        assert again.environment.path.is_relative_to(stage.tmp / "scratch")

    def test_a_read_only_checkout(self, stage: Stage) -> None:
        """No link can be made: it is said, and the real path is used."""
        point = stage.tmp / "read only"
        why = disks.refused(disks.read_only(stage.checkout, point))
        if why:
            pytest.skip(f"cannot mount: {why}")
        with disks.read_only(stage.checkout, point):
            got = stage.run(point)
            assert got.environment.link is None and works(got.environment.path)
            assert "cannot be written to, so no .venv is made" in stage.said


class TestBroken:
    """Environments and state that something has happened to."""

    def test_a_broken_environment_is_kept_and_made_anew(self, stage: Stage) -> None:
        """Half an environment is set aside; nobody has to clean by hand."""
        first = stage.run().environment
        (first.path / "pyvenv.cfg").unlink()
        again = stage.run()
        assert again.plan.existing == "broken" and works(first.path)
        assert (first.bench.parent / f"{first.bench.name}.broken" / "bin").is_dir()

    def test_a_broken_environment_in_use_is_left(self, stage: Stage) -> None:
        """Who runs from it keeps its files, until told to leave or overridden."""
        made = stage.run().environment
        argv = [made.python, "-c", "print('up', flush=True); input()"]
        pipe = subprocess.PIPE
        with subprocess.Popen(argv, cwd="/", stdin=pipe, stdout=pipe) as server:
            assert server.stdout is not None and server.stdout.readline() == b"up\n"
            for file in (made.path / "bin").glob("python*"):
                file.unlink()
            with pytest.raises(InUseError) as caught:
                stage.run()
            assert caught.value.code == ExitCode.IN_USE
            assert caught.value.lines()[0].startswith(f"{server.pid} {made.python}")
            assert list(made.bench.parent.glob("*.broken")) == []
            stage.run(force=True)
            assert works(made.path)
            assert len(list(made.bench.parent.glob("*.broken"))) == 1

    def test_left_overs_of_a_killed_run_are_swept(self, stage: Stage) -> None:
        """What a dead process left beside the environment goes away."""
        first = stage.run().environment
        gone = subprocess.Popen(["true"])
        gone.wait()
        left = first.bench.with_name(f".{first.bench.name}.{gone.pid}-abcdef")
        left.mkdir()
        shutil.rmtree(first.bench)
        stage.run()
        assert not left.exists()

    def test_a_corrupt_memory_is_named_and_kept(self, stage: Stage) -> None:
        """A state file that was cut short is not overwritten."""
        file = survey.remembered_file(stage.env)
        file.parent.mkdir(parents=True)
        file.write_text('{"root": "/')
        with pytest.raises(StepFailed, match="cannot read") as caught:
            stage.run()
        assert str(file) in caught.value.hint
        assert file.read_text() == '{"root": "/'


def test_the_fork_needs_what_is_said() -> None:
    """The default is what the measured build took, with a margin."""
    assert venv.NEED_BYTES == 12 * GIB


def test_a_checkout_that_is_gone(tmp_path: Path) -> None:
    """The real look tells a moved checkout from one that is there."""
    one = Generation("a", tmp_path, checkout=str(tmp_path / "above" / "c"))
    (tmp_path / "above" / "c").mkdir(parents=True)
    assert not gone.is_gone([one], look.disk)
    (tmp_path / "above" / "c").rmdir()
    assert not gone.is_gone([one], look.disk)
    (tmp_path / "above" / "other").mkdir()
    assert gone.is_gone([one], look.disk)
