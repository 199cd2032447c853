# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What becomes of a checkout's ``.venv`` that leads elsewhere, when a build is done."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest

from tests.rig.support.fakemachine import survey
from tests.rig.support.fakescene import Stage, scene
from tools.rig.base.console import Console
from tools.rig.base.errors import StepFailed
from tools.rig.host.look import Checkout, Link
from tools.rig.steps import build as step
from tools.rig.steps import dot_venv
from tools.rig.steps.scene import Scene

OURS = Link("link", "/r/venvs/a-1", "/r/venvs/a-1", True, made=True)
THEIRS = Link("link", "/mine", "/mine", True)


def at(folder: Path, link: Link) -> Scene:
    """Return a scene whose checkout has a link at ``.venv``."""
    checkout = folder / "checkout"
    uid = survey().uid
    seen = Checkout(checkout, checkout, "checkout-1", uid, True, link)
    return scene(folder, survey={"checkout": seen})


@pytest.fixture
def out() -> io.StringIO:
    """Return what people read."""
    return io.StringIO()


def test_switched_after_the_build(tmp_path: Path, out: io.StringIO) -> None:
    """A link of ours leads to what was built, and only once that is in force."""
    found = at(tmp_path, OURS)
    stage = Stage(found)
    step.build(Console(out, {}), found, wheel_only=True, use=stage.tools)
    link = found.checkout / ".venv"
    assert stage.named("link") == [(link, found.environment, OURS.target)]
    assert [name for name, _ in stage.calls][-1] == "link"
    assert f"{link} leads there now (it was {OURS.target})" in out.getvalue()
    # nothing new: what is in force is still not where .venv leads
    step.build(Console(out, {}), found, wheel_only=True, use=stage.tools)
    assert len(stage.named("link")) == 2


def test_not_after_a_failure(tmp_path: Path, out: io.StringIO) -> None:
    """A build that fails leaves the link as it was."""
    found = at(tmp_path, OURS)
    stage = Stage(found)
    stage.breaks = "compile"
    with pytest.raises(StepFailed):
        step.build(Console(out, {}), found, wheel_only=True, use=stage.tools)
    assert stage.named("link") == []


def test_last_lines(tmp_path: Path, out: io.StringIO) -> None:
    """Where it is the user's own, the last lines say that it is not what was built."""
    found = at(tmp_path, THEIRS)
    stage = Stage(found)
    for _ in range(2):
        step.build(Console(out, {}), found, wheel_only=True, use=stage.tools)
        *_, warning, real, hint = out.getvalue().splitlines()
        assert f"{found.checkout / '.venv'} is NOT what is in force" in warning
        assert str(found.environment) in real
        assert "hint: mv" in hint and "invoke venv-local" in hint
    assert stage.named("link") == []


def test_cannot(tmp_path: Path, out: io.StringIO) -> None:
    """A disk that does not answer, or a link changed since, is a warning."""
    found = at(tmp_path, OURS)

    def hangs(*names: object) -> str:
        raise StepFailed("no answer")

    dot_venv.follow(Console(out, {}), found, hangs)
    dot_venv.follow(Console(out, {}), found, lambda *names: "File exists")
    said = out.getvalue()
    assert "cannot be changed: no answer" in said
    assert "cannot be changed: File exists" in said and "invoke venv-local" in said


def test_of_another_place(tmp_path: Path, out: io.StringIO) -> None:
    """Builds of another place say nothing about the ``.venv`` that stands here."""
    for link in (OURS, THEIRS):
        found = replace(at(tmp_path, link), environment=tmp_path / "venvs" / "other-1")
        dot_venv.follow(Console(out, {}), found, lambda *names: "not asked")
        dot_venv.tell(Console(out, {}), found)
    assert out.getvalue() == ""
