# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Lays the sample target out as a git checkout, beside the repository that it fetches.

The templates under ``tools/rig/sample_target`` are never built in place: a build writes
into its checkout, and setuptools-scm wants a repository whose history is the target's.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.rig.base import run, scratch, state
from tools.rig.base.errors import StepFailed, quoted

TEMPLATES = Path(__file__).resolve().parents[1] / "sample_target"
DEPENDENCY_URL = "https://github.com/1CatAI/rig-sample-dep.git"
"""What the sample's CMakeLists.txt clones; ``url.*.insteadOf`` points it elsewhere."""

PROJECT = "rig-sample"
"""The sample's name as a project."""

_STAMP = "layout.json"
_VERSION_TAG = "v0.1.0"
_DEPENDENCY_TAG = "v1.0.0"
_GIT_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class SampleCheckout:
    """Where the sample lies: checkout, bare repository, ``{prefix: mirror}``."""

    path: Path
    dependency: Path
    mirrors: dict[str, str]


def lay_out(folder: Path, env: Mapping[str, str]) -> SampleCheckout:
    """Lay the sample out below `folder`, or find the layout that is already there.

    A layout made from the same templates is left as it is, edits included. Changed
    templates are written over the checkout and become a new commit, so that what a
    build left there still serves the next one.

    Parameters
    ----------
    folder
        Made when missing; one that holds something else is refused.
    env
        Environment for git. Its ``GIT_*`` variables and the user's git configuration
        have no say here.

    Raises
    ------
    StepFailed
        When `folder` is not ours or git fails.
    CannotError
        When there is no git.
    """
    _claim(folder)
    layout = SampleCheckout(
        path=folder / "rig-sample",
        dependency=folder / "rig-sample-dep.git",
        mirrors={DEPENDENCY_URL: os.fspath(folder / "rig-sample-dep.git")},
    )
    want = {part: _digest(TEMPLATES / part) for part in ("project", "dependency")}
    have = state.read_json(folder / _STAMP) or {}
    if have == want and _is_whole(layout):
        return layout
    git = _Git(folder, env)
    if have.get("dependency") != want["dependency"] or not layout.dependency.is_dir():
        _make_dependency(git, layout.dependency)
    _make_checkout(git, layout.path)
    state.write_json(folder / _STAMP, want)
    return layout


class _Git:
    """Runs git with an identity and a configuration of its own."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        config = folder / "gitconfig"
        state.write_text(
            config,
            "[safe]\n\tdirectory = *\n[commit]\n\tgpgSign = false\n"
            "[tag]\n\tgpgSign = false\n[core]\n\tautocrlf = false\n",
        )
        self._env = {k: v for k, v in env.items() if not k.startswith("GIT_")} | {
            "GIT_CONFIG_GLOBAL": os.fspath(config),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "LC_ALL": "C.UTF-8",
        }
        # fixed names and dates: the same templates give the same commit everywhere
        for role in ("AUTHOR", "COMMITTER"):
            self._env[f"GIT_{role}_NAME"] = "rig sample"
            self._env[f"GIT_{role}_EMAIL"] = "rig-sample@localhost"
            self._env[f"GIT_{role}_DATE"] = "2026-01-01T00:00:00+0000"

    def __call__(self, *args: str | os.PathLike[str], cwd: Path) -> str:
        argv = ["git", *args]
        result = run.run(
            argv, env=self._env, cwd=cwd, timeout=_GIT_TIMEOUT_S, check=True
        )
        return result.out

    def commit(self, cwd: Path, files: list[str], message: str, tag: str) -> None:
        """Make `files` the whole next commit, if it differs; tag the first one."""
        if not (cwd / ".git").exists():
            self("init", "-q", "-b", "main", cwd=cwd)
        tracked = self("ls-files", "-z", cwd=cwd).split("\0")
        stale = sorted(set(tracked) - {"", *files})
        if stale:
            self("rm", "-q", "-f", "--", *stale, cwd=cwd)
        self("add", "-f", "--", *files, cwd=cwd)
        if self("status", "--porcelain", "--untracked-files=no", cwd=cwd):
            self("commit", "-q", "--no-verify", "-m", message, cwd=cwd)
        if not self("tag", "--list", tag, cwd=cwd).strip():
            self("tag", "-a", tag, "-m", tag, cwd=cwd)


def _claim(folder: Path) -> None:
    """Make `folder` ours, and refuse one that holds something that we did not make."""
    try:
        if (
            folder.is_dir()
            and any(folder.iterdir())
            and not (folder / state.SENTINEL).is_file()
        ):
            raise StepFailed(
                f"will not lay the sample out in {folder}: it holds something else",
                usual=f"A folder made here holds a file {state.SENTINEL}.",
                hint=f"ls -la {quoted(folder)}",
            )
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / state.SENTINEL).exists():
            (folder / state.SENTINEL).touch()
    except OSError as exc:
        raise StepFailed(
            f"cannot lay the sample out in {folder}: {exc.strerror}",
            hint=f"ls -la {quoted(folder.parent)}",
        ) from exc


def _template_files(template: Path) -> list[str]:
    """Return the relative paths of a template, sorted, without Python's leavings."""
    files = (p for p in template.rglob("*") if p.is_file() and not p.is_symlink())
    names = (p.relative_to(template).as_posix() for p in files)
    return sorted(n for n in names if "__pycache__" not in n)


def _laid_out_name(name: str) -> str:
    # the template's own ignore list must not act where the template lies
    return ".gitignore" if name == "gitignore" else name


def _digest(template: Path) -> str:
    digest = hashlib.sha256()
    for name in _template_files(template):
        content = (template / name).read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _is_whole(layout: SampleCheckout) -> bool:
    names = map(_laid_out_name, _template_files(TEMPLATES / "project"))
    repositories = (layout.path / ".git", layout.dependency)
    return all((r / "HEAD").is_file() for r in repositories) and all(
        (layout.path / name).is_file() for name in names
    )


def _write_out(template: Path, target: Path) -> list[str]:
    """Write the files whose content differs; the others keep their time stamps."""
    written = []
    for name in _template_files(template):
        path = target / _laid_out_name(name)
        content = (template / name).read_bytes()
        if not path.is_file() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        written.append(_laid_out_name(name))
    return written


def _make_checkout(git: _Git, path: Path) -> None:
    path.mkdir(exist_ok=True)
    for lock in path.glob(".git/*.lock"):
        # a git that was killed here leaves its lock; nobody else works in this folder
        lock.unlink()
    files = _write_out(TEMPLATES / "project", path)
    git.commit(path, files, "The sample target", _VERSION_TAG)


def _make_dependency(git: _Git, bare: Path) -> None:
    """Make the bare repository beside its place and rename it in."""
    try:
        with scratch.folder("dep", bare.parent) as temp:
            work = temp.joinpath("work")
            work.mkdir()
            files = _write_out(TEMPLATES / "dependency", work)
            git.commit(work, files, "What the sample target fetches", _DEPENDENCY_TAG)
            git("clone", "-q", "--bare", work, temp.joinpath("bare.git"), cwd=temp)
            git("remote", "remove", "origin", cwd=temp.joinpath("bare.git"))
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(bare)
            os.replace(temp.joinpath("bare.git"), bare)
    except OSError as exc:
        raise StepFailed(
            f"cannot make {bare}: {exc.strerror}", hint=f"ls -la {quoted(bare.parent)}"
        ) from exc
