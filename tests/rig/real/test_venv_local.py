# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Where venv-local puts an environment, and what it makes of a broken one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rig.support import disks, slowfs
from tests.rig.support.venv_stage import Stage, needs_fuse, works
from tests.rig.support.venv_stage import stage as stage
from tools.rig.base.errors import CannotError, ExitCode, InUseError, StepFailed
from tools.rig.builds import survey
from tools.rig.builds.candidates import GIB, NEED_BYTES
from tools.rig.builds.generation import Generation
from tools.rig.host import look
from tools.rig.steps import gone

pytestmark = pytest.mark.real


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
    assert NEED_BYTES == 12 * GIB


def test_a_checkout_that_is_gone(tmp_path: Path) -> None:
    """The real look tells a moved checkout from one that is there."""
    one = Generation("a", tmp_path, checkout=str(tmp_path / "above" / "c"))
    (tmp_path / "above" / "c").mkdir(parents=True)
    assert not gone.is_gone([one], look.disk)
    (tmp_path / "above" / "c").rmdir()
    assert not gone.is_gone([one], look.disk)
    (tmp_path / "above" / "other").mkdir()
    assert gone.is_gone([one], look.disk)
