# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The doctor where nothing is checked out: the state root is judged, not the clone."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support import fakemachine as fake
from tools.rig.base.console import Console
from tools.rig.base.state import StateRoot
from tools.rig.builds import sample
from tools.rig.builds.candidates import Candidate
from tools.rig.builds.place import PlaceFacts
from tools.rig.host.look import Link
from tools.rig.steps import doctor as step
from tools.rig.steps.checks import environment, python, storage
from tools.rig.steps.checks.facts import Facts

GIB = 1 << 30
SAMPLE = fake.profile("sample")


def root_owned() -> PlaceFacts:
    """Return what is seen from a read-only clone of root's with a ``.venv``."""
    seen = fake.survey()
    clone = replace(seen.checkout, owner=0, writable=False, link=Link("directory"))
    disk = fake.disk(problem="Read-only file system", free=0, writable=False)
    return replace(seen, checkout=clone, checkout_disk=disk)


def absent(**changes: Any) -> Facts:
    """Return the facts of such a machine without a checkout."""
    found: Facts = fake.facts(
        **{"profile": SAMPLE, "absent": True, "survey": root_owned(), **changes}
    )
    return found


@pytest.mark.parametrize("name", ["sample", "v100-cu128"])
def test_a_clone_of_roots_does_not_matter(name: str) -> None:
    """Owner, disk and .venv of the folder of the suite are no reason for a no."""
    out = io.StringIO()
    report = step.doctor(
        Console(out, {}),
        fake.settings(),
        fake.profile(name),
        checkout=fake.SOURCE,
        absent=True,
        env={"PATH": "/usr/bin", "HOME": "/home/me"},
        probes=fake.probes(survey=root_owned()),
    )
    assert report.verdict.line == f"ready: this machine can build {name}"
    status = {r.id: r.status for r in report.results}
    assert status["checkout-disk"] == status["checkout-owner"] == "skip"
    assert status["environment"] == status["space-build"] == "ok"


def test_the_same_clone_as_the_target_fails() -> None:
    """As the target it is judged, since a build writes into it."""
    found = fake.facts(survey=root_owned())
    assert storage.checkout_disk(found).status == "fail"
    assert storage.checkout_owner(found).status == "warn"


def test_room_is_judged_at_the_state_root() -> None:
    """The place where the sample will lie is the one that needs room."""
    full = Candidate(Path("/s"), "state folder", fake.disk("/s", free=0))
    seen = replace(root_owned(), candidates=(full,))
    found = absent(survey=seen)
    assert storage.environment(found).status == "fail"
    room = storage.space_build(found)
    assert (room.status, room.hint) == ("fail", "df -h /s")


def test_a_sample_that_is_laid_out_is_looked_at(tmp_path: Path) -> None:
    """Its own .venv and environment count, in the root that was chosen."""
    laid = tmp_path / "sample" / "rig-sample"
    laid.mkdir(parents=True)
    root = Candidate(tmp_path, "chosen before", fake.disk(tmp_path))
    first = replace(root_owned(), candidates=(root,))
    own = replace(first.checkout, path=laid, real=laid, link=Link("directory"))
    ready = replace(root, venv="ready", version="3.12.1")
    second = replace(first, checkout=own, candidates=(ready,))
    asked = []

    def disks(question: Any) -> PlaceFacts:
        asked.append((question.checkout, question.settings.local_root))
        return second if question.checkout == laid else first

    found = absent(disks=disks)
    assert found.disks.checkout is own
    assert found.disks.candidates[-1].version == "3.12.1"
    assert asked == [(fake.SOURCE, None), (laid, tmp_path)]
    assert storage.environment(found).status == "warn"
    real = absent(disks=disks, profile=fake.profile())
    assert real.disks.checkout.link.kind == "absent"


def test_what_the_sample_asks_for_is_read_from_its_templates() -> None:
    """CMake's least version is the sample's own, not that of the clone."""
    read = []

    def text(path: Path) -> tuple[str, str]:
        read.append(path)
        return "", ""

    python.cmake(absent(text=text))
    assert {p.parent for p in read} == {sample.TEMPLATES / "project"}
    read.clear()
    python.cmake(absent(text=text, profile=fake.profile()))
    assert read == []


def test_patch_cannot_be_judged_without_the_sources() -> None:
    """Whether a real target patches sources is said by its own files alone."""
    none = fake.programs(patch=None)
    assert python.patch(absent(program=none)).status == "skip"
    real = python.patch(absent(program=none, profile=fake.profile()))
    assert (real.status, bool(real.hint)) == ("unknown", True)


def test_cudnn_is_looked_for_in_the_samples_environment() -> None:
    """There is an environment to look into once a state root is chosen."""
    seen = []

    def cudnn(env: Any, place: Path | None) -> list[Any]:
        seen.append(place)
        return []

    root = StateRoot(Path("/r"))
    environment.cudnn(absent(cudnn=cudnn))
    environment.cudnn(absent(cudnn=cudnn, root=root))
    environment.cudnn(absent(cudnn=cudnn, root=root, profile=fake.profile()))
    assert seen == [None, Path("/r/sample/rig-sample/.venv"), None]
