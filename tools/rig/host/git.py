# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What git says about repositories and about its own configuration; never changed here.

Whether git accepts a repository depends on its version, its owner, ``SUDO_UID`` and
four places of configuration. So git is asked, with the environment in question, and
nothing is computed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.rig.base.errors import CannotError, StepFailed, quoted
from tools.rig.base.process import NOT_STARTED
from tools.rig.base.run import Result, run

PROBE_S = 30.0
"""Seconds for one question; a repository on a slow network disk needs several."""

SCM_KEEPS = frozenset(
    {
        "GIT_EXEC_PATH",
        "GIT_SSH",
        "GIT_SSH_COMMAND",
        "GIT_CEILING_DIRECTORIES",
        "GIT_AUTHOR_DATE",
        "GIT_COMMITTER_DATE",
    }
)
"""The only ``GIT_*`` variables that setuptools-scm leaves to the git it starts.

Read in 9.2.2 and in vcs-versioning 1.0.1 to 2.6.0; older ones keep fewer of them.
"""


@dataclass(frozen=True)
class Access:
    """What git answered about one repository.

    ``state`` is ``ok``, ``dubious`` (owned by someone else), ``none`` (no repository)
    or ``unknown`` (git failed or hung, see ``detail``).
    """

    place: str
    state: str
    detail: str = ""


@dataclass(frozen=True)
class Value:
    """One value of a setting, and where it comes from (``file:~/.gitconfig``)."""

    origin: str
    value: str


def version(env: Mapping[str, str]) -> str | None:
    """Return git's version like ``2.39.5``, or None when there is no git on PATH.

    Raises
    ------
    CannotError
        When there is a git that does not work. It reads its configuration before it
        says its version, so one broken line there stops everything.
    """
    answer = _git(["--version"], env, cwd="/")
    words = answer.out.split()
    if answer.ok and len(words) > 2:
        return words[2]
    if answer.code == NOT_STARTED:
        return None
    said = (answer.err or answer.out).strip().splitlines()
    why = said[0] if said else f"nothing (status {answer.code})"
    if answer.timed_out:
        why = f"nothing within {PROBE_S:.0f} s"
    raise CannotError(
        f"git does not work; git says: {why}",
        usual="A line of git's own configuration is broken, or its program is.",
        hint="git config --list",
    )


def repositories(folder: Path, depth: int, limit: int = 64) -> list[Path]:
    """Return what looks like a repository, bare or not, at `folder` or below it.

    Parameters
    ----------
    depth
        Levels of folders to look into; a repository is not looked into.
    limit
        Folders of one level that are looked at, since they may lie on a slow disk.
    """
    if (folder / ".git").exists() or (folder / "HEAD").is_file():
        return [folder]
    if depth == 0:
        return []
    try:
        below = [p for p in sorted(folder.iterdir()) if p.is_dir()]
    except OSError:
        return []
    return [found for p in below[:limit] for found in repositories(p, depth - 1, limit)]


def access(directory: Path, env: Mapping[str, str]) -> Access:
    """Ask git whether it works in `directory`, as a build tool would."""
    place = os.fspath(directory)
    return _judge(place, _git(["-C", place, "rev-parse", "--git-dir"], env))


def clonable(url: str, env: Mapping[str, str]) -> Access:
    """Ask git whether it may clone from a repository on a local disk.

    The other end of a local clone is a git of its own with a check of its own (2.45 and
    security releases before it), and most of git's variables do not reach it.
    """
    return _judge(url, _git(["ls-remote", "--", url, "HEAD"], env, cwd="/"))


def rewritten(url: str, env: Mapping[str, str]) -> str:
    """Return where git really goes for `url`, after ``url.<base>.insteadOf``."""
    answer = _git(["ls-remote", "--get-url", url], env, cwd="/")
    return answer.out.strip() if answer.ok else url


def values(name: str, env: Mapping[str, str]) -> tuple[Value, ...]:
    """Return all values of a setting outside any repository, in git's order."""
    answer = _git(
        ["config", "--null", "--show-origin", "--get-all", name], env, cwd="/"
    )
    fields = answer.out.split("\0") if answer.ok else []
    return tuple(Value(o, v) for o, v in zip(fields[0::2], fields[1::2]))


def describe(checkout: Path, env: Mapping[str, str]) -> str:
    """Return what is checked out, like ``v1.3.0-8-gae13773``; empty when unknown."""
    place = os.fspath(checkout)
    words = ["describe", "--tags", "--always", "--dirty"]
    answer = _git(["-C", place, *words], env)
    return answer.out.strip() if answer.ok else ""


def head(checkout: Path, env: Mapping[str, str]) -> str:
    """Return the commit that is checked out, in full; empty when unknown."""
    answer = _git(["-C", os.fspath(checkout), "rev-parse", "HEAD"], env)
    return answer.out.strip() if answer.ok else ""


def tracked(checkout: Path, env: Mapping[str, str]) -> list[str]:
    """Return the files that git tracks, relative to `checkout`.

    Raises
    ------
    StepFailed
        When git cannot say: what a build made could then not be told from sources.
    """
    answer = _git(["-C", os.fspath(checkout), "ls-files", "-z"], env)
    if not answer.ok:
        raise StepFailed(
            f"git cannot list the files of {checkout}",
            details=answer.err.splitlines()[:5],
            hint=f"git -C {quoted(checkout)} status",
        )
    return [name for name in answer.out.split("\0") if name]


def as_scm_sees(env: Mapping[str, str]) -> dict[str, str]:
    """Return `env` as setuptools-scm hands it to git."""
    return {k: v for k, v in env.items() if not k.startswith("GIT_") or k in SCM_KEEPS}


def _git(args: list[str], env: Mapping[str, str], cwd: str | None = None) -> Result:
    # messages are read by a program, and nobody is there to type a password
    spoken = {
        **env,
        "LC_ALL": "C",
        "LANGUAGE": "",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
    }
    return run(["git", *args], env=spoken, cwd=cwd, timeout=PROBE_S)


def _judge(place: str, answer: Result) -> Access:
    if answer.ok:
        return Access(place, "ok")
    if answer.timed_out:
        return Access(place, "unknown", f"git did not answer within {PROBE_S:.0f} s")
    said = answer.err.strip()
    if "dubious ownership" in said or "safe.directory" in said:
        state = "dubious"
    elif "not a git repository" in said:
        state = "none"
    else:
        state = "unknown"
    return Access(place, state, said.splitlines()[0] if said else "")
