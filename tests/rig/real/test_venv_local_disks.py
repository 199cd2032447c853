# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""venv-local on real disks that are full, or that do not answer any more."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest

from tests.rig.support import disks, slowfs
from tests.rig.support.venv_stage import Stage, needs_fuse, works
from tests.rig.support.venv_stage import stage as stage
from tools.rig.base import abandon
from tools.rig.base.config import resolve
from tools.rig.base.console import Console
from tools.rig.base.errors import StepFailed
from tools.rig.base.state import SENTINEL
from tools.rig.builds import place, settle, survey
from tools.rig.host import look

pytestmark = pytest.mark.real


def fill(filler: Path) -> None:
    """Write a file until the disk has no room for one byte more."""
    with filler.open("wb", buffering=0) as fh:
        for block in (1 << 16, 1):
            with contextlib.suppress(OSError):
                while fh.write(b"x" * block):
                    pass


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
                settle.act(its, Console(stage.out, stage.env), env=stage.env)
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
