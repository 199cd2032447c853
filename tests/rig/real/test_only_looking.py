# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Commands that only look, on roots that are another's or not the one in force."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.rig.support.workshop import Workshop
from tools.rig.base.errors import ExitCode
from tools.rig.builds import sample

pytestmark = pytest.mark.real


@pytest.fixture
def user(tmp_path: Path) -> Workshop:
    """Return somebody with an empty home and a state root that is there."""
    made = Workshop(tmp_path / "user")
    made.root.make(made.root.venvs)
    return made


@pytest.mark.parametrize(("task", "code"), [("in-use", 0), ("verify", 3), ("plan", 0)])
def test_root_of_somebody_else(user: Workshop, task: str, code: int) -> None:
    """A root that may only be read is looked at, and nothing is written there."""
    if os.getuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("giving a folder away takes root and setpriv")
    for place in (user.root.path, *user.root.path.rglob("*")):
        os.chown(place, 65534, 65534)
    before = sorted(user.root.path.rglob("*"))
    powerless = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
    got = user.run([*powerless, *user.argv(task)])
    # a server of this machine that we may not look into may be anybody's
    others = "perhaps: " in got.stderr
    assert got.returncode == (ExitCode.IN_USE if others else code), got.stderr
    assert ("nobody is seen using" in got.stderr) == (task == "in-use" and not others)
    assert ("there is no environment at" in got.stderr) == (task == "verify")
    told = f"a build will not take {user.root.path}: it cannot be used: Permission"
    assert (told in got.stderr) == (task == "plan")
    assert sorted(user.root.path.rglob("*")) == before
    refused = user.run([*powerless, *user.argv("venv-local")])
    assert refused.returncode == 3 and "will not do" in refused.stderr


def test_link_into_another_root(user: Workshop, tmp_path: Path) -> None:
    """With another root in-use and verify both look where the link points."""
    checkout = sample.lay_out(tmp_path / "mine", user.env).path
    source = f"--source={checkout}"
    got = user.invoke("venv-local", source)
    assert got.returncode == 0, got.stderr
    other = str(tmp_path / "other")
    looked = user.invoke("in-use", source, ONECAT_LOCAL_ROOT=other)
    assert f"nobody is seen using {user.environment} (" in looked.stderr
    proved = user.invoke("verify", source, ONECAT_LOCAL_ROOT=other)
    assert proved.returncode == 1
    assert f"looking at {user.environment}, where .venv points" in proved.stderr
    assert "rig_sample" in proved.stderr
