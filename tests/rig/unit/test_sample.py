# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Laying the sample target out, with a git that only records what it is asked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pytest_subprocess import FakeProcess

from tools.rig.base import state
from tools.rig.base.errors import StepFailed
from tools.rig.builds import sample

ENV = {"PATH": os.defpath, "GIT_DIR": "/elsewhere", "HOME": "/nobody"}
WHAT_GIT_MAKES = {
    "init": ".git/HEAD",
    "clone": "bare.git/HEAD",
}


class Git:
    """A git that makes the one file by which a repository is known."""

    def __init__(self, fp: FakeProcess, folder: Path) -> None:
        self.fp, self.folder = fp, folder
        self.env: dict[str, str] = {}
        for command in ("init", "add", "commit", "tag", "clone", "remote", "rm"):
            self.answer(command)
        self.answer("ls-files", "README.md\0old.cu\0")
        self.answer("status", "M  CMakeLists.txt\n")

    def answer(self, command: str, out: str = "") -> None:
        """Let one git command succeed."""

        def effect(process: Any) -> None:
            self.env = dict(process._FakePopen__kwargs["env"])
            name = WHAT_GIT_MAKES.get(command)
            if name:
                made = Path(process._FakePopen__kwargs["cwd"], name)
                made.parent.mkdir()
                made.touch()

        argv = ["git", command, self.fp.any()]
        self.fp.register(argv, stdout=out, callback=effect, occurrences=9)

    def commands(self) -> list[str]:
        """Return the git commands so far, in order."""
        return [list(call)[1] for call in self.fp.calls]


@pytest.fixture
def git(fp: FakeProcess, tmp_path: Path) -> Git:
    """Return the recording git."""
    return Git(fp, tmp_path)


def test_a_new_layout(git: Git, tmp_path: Path) -> None:
    """Both repositories are made, the dependency whole before it gets its name."""
    made = sample.lay_out(tmp_path / "lay", ENV)
    one = ["init", "ls-files", "rm", "add", "status", "commit", "tag", "tag"]
    assert git.commands() == [*one, "clone", "remote", *one]
    assert made.path == tmp_path / "lay/rig-sample"
    assert made.dependency.is_dir()
    assert made.mirrors == {sample.DEPENDENCY_URL: str(made.dependency)}
    assert (made.path / ".gitignore").is_file()
    assert (made.path / "csrc/wide.cu").is_file()
    assert (tmp_path / "lay" / state.SENTINEL).is_file()
    assert not list((tmp_path / "lay").glob(".dep-*"))


def test_git_is_asked_exactly(git: Git, fp: FakeProcess, tmp_path: Path) -> None:
    """Only the template's files are added, what it no longer holds is removed."""
    sample.lay_out(tmp_path / "lay", ENV)
    calls = [list(call) for call in fp.calls]
    files = ["CMakeLists.txt", "include/rig_sample_dep/block_sum.cuh"]
    assert calls[0] == ["git", "init", "-q", "-b", "main"]
    assert calls[2] == ["git", "rm", "-q", "-f", "--", "README.md", "old.cu"]
    assert calls[3] == ["git", "add", "-f", "--", *files]
    assert calls[5][:6] == ["git", "commit", "-q", "--no-verify", "-m", calls[5][5]]
    assert calls[7] == ["git", "tag", "-a", "v1.0.0", "-m", "v1.0.0"]
    assert calls[8][:4] == ["git", "clone", "-q", "--bare"]
    assert calls[9] == ["git", "remote", "remove", "origin"]


def test_git_sees_nothing_of_the_user(git: Git, tmp_path: Path) -> None:
    """Configuration, identity and repository of the user have no say."""
    sample.lay_out(tmp_path / "lay", ENV)
    assert "GIT_DIR" not in git.env
    assert git.env["GIT_CONFIG_NOSYSTEM"] == "1"
    config = Path(git.env["GIT_CONFIG_GLOBAL"])
    assert "directory = *" in config.read_text()
    assert git.env["GIT_AUTHOR_DATE"] == git.env["GIT_COMMITTER_DATE"]
    assert git.env["HOME"] == "/nobody"


def test_a_second_time_nothing_is_done(git: Git, tmp_path: Path) -> None:
    """The same templates find their layout, with the user's edits in it."""
    made = sample.lay_out(tmp_path / "lay", ENV)
    (made.path / "setup.py").write_text("edited")
    before = len(git.commands())
    assert sample.lay_out(tmp_path / "lay", ENV) == made
    assert len(git.commands()) == before
    assert (made.path / "setup.py").read_text() == "edited"


def test_changed_templates_become_a_commit(
    git: Git, fp: FakeProcess, tmp_path: Path
) -> None:
    """Only what differs is written, and the dependency stays when it is the same."""
    made = sample.lay_out(tmp_path / "lay", ENV)
    stamp = tmp_path / "lay/layout.json"
    known = state.read_json(stamp)
    state.write_json(stamp, {**known, "project": "another"})
    (made.path / "setup.py").write_text("old")
    (made.path / ".git/index.lock").touch()
    os.utime(made.path / "CMakeLists.txt", (1, 1))
    before = len(git.commands())
    sample.lay_out(tmp_path / "lay", ENV)
    again = git.commands()[before:]
    assert again == ["ls-files", "rm", "add", "status", "commit", "tag", "tag"]
    assert (made.path / "setup.py").read_text() != "old"
    assert (made.path / "CMakeLists.txt").stat().st_mtime == 1
    assert not (made.path / ".git/index.lock").exists()


def test_a_changed_dependency_is_replaced(git: Git, tmp_path: Path) -> None:
    """The bare repository is made anew when its templates changed."""
    made = sample.lay_out(tmp_path / "lay", ENV)
    (made.dependency / "old").touch()
    stamp = tmp_path / "lay/layout.json"
    state.write_json(stamp, {**state.read_json(stamp), "dependency": "another"})
    sample.lay_out(tmp_path / "lay", ENV)
    assert not (made.dependency / "old").exists()
    assert (made.dependency / "HEAD").is_file()


def test_a_file_that_was_removed_comes_back(git: Git, tmp_path: Path) -> None:
    """A layout that is not whole is laid out again."""
    made = sample.lay_out(tmp_path / "lay", ENV)
    (made.path / "pyproject.toml").unlink()
    sample.lay_out(tmp_path / "lay", ENV)
    assert (made.path / "pyproject.toml").is_file()


def test_a_folder_that_holds_something_else(tmp_path: Path) -> None:
    """Nothing is laid over what the suite did not make."""
    (tmp_path / "mine.txt").touch()
    with pytest.raises(StepFailed, match="holds something else") as info:
        sample.lay_out(tmp_path, ENV)
    assert info.value.hint == f"ls -la {tmp_path}"
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


def test_a_place_that_cannot_be_made(tmp_path: Path) -> None:
    """A file in the way is an expected failure."""
    (tmp_path / "file").touch()
    with pytest.raises(StepFailed, match="cannot lay the sample out"):
        sample.lay_out(tmp_path / "file/below", ENV)


def test_a_dependency_that_cannot_be_made(git: Git, tmp_path: Path) -> None:
    """A file where the repository belongs is an expected failure."""
    (tmp_path / "lay").mkdir()
    (tmp_path / "lay" / state.SENTINEL).touch()
    (tmp_path / "lay/rig-sample-dep.git").touch()
    with pytest.raises(StepFailed, match=r"cannot make .*rig-sample-dep\.git"):
        sample.lay_out(tmp_path / "lay", ENV)


def test_the_templates_survive_adoption() -> None:
    """No folder of the templates has a name that the host's ignore list swallows."""
    swallowed = {"build", "lib", "env", "parts", "var", "dist", "wheels", "target"}
    names = {p.name for p in sample.TEMPLATES.rglob("*")}
    assert not names & swallowed
    assert "sample-build.txt" in names
