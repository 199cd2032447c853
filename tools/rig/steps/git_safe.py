# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""``git-safe``: git works in a foreign-owned checkout, for the build's processes only.

git refuses a repository that belongs to someone else, which is what a checkout on a NAS
looks like. The way round is ``safe.directory``, and the place for it is a private
``XDG_CONFIG_HOME``: it is the only one that reaches every git of a build, since
setuptools-scm takes the ``GIT_*`` variables away from the git that it starts. The value
is ``*``, because the repositories that FetchContent will clone have no names yet.
Everything else in the user's own configuration folder is linked into the private one.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.rig.base.console import Console
from tools.rig.base.errors import CannotError, StepFailed
from tools.rig.host import git
from tools.rig.host.git import Access
from tools.rig.steps import git_config
from tools.rig.steps.trees import publish

IGNORE_OWNER = "SETUPTOOLS_SCM_IGNORE_DUBIOUS_OWNER"


@dataclass(frozen=True)
class GitSafeResult:
    """What the build's environment gets so that git works, and why.

    ``mechanisms`` names the ways taken: ``XDG_CONFIG_HOME``, ``GIT_CONFIG_GLOBAL``,
    ``GIT_CONFIG_COUNT`` and setuptools-scm's own switch. ``trusting`` says that a
    repository of another user is trusted, and not only a mirror named.
    """

    needed: bool
    env: dict[str, str]
    reason: str
    mechanisms: tuple[str, ...]
    trusting: bool = False


def git_safe(
    console: Console,
    directories: Sequence[Path],
    env: Mapping[str, str],
    folder: Path,
    mirrors: Mapping[str, str] | None = None,
) -> GitSafeResult:
    """Probe with git, and make a private configuration when the build needs one.

    Parameters
    ----------
    directories
        The checkout, and folders below which a build clones (FetchContent's).
    env
        The build's environment.
    folder
        Where private configurations are kept, below the state root.
    mirrors
        ``git_mirrors``: the beginning of a URL, and what git shall put in its place.

    Raises
    ------
    CannotError
        When there is no git, or it does not work.
    UsageError
        For a mirror on this disk that does not exist.
    StepFailed
        When git still refuses with everything in place.
    """
    number = need_git(env)
    rules = git_config.instead_of(mirrors or {})
    build = _Build(env, folder, rules, tuple(_places(directories)))
    refused = build.refused(env)
    if not refused and not rules:
        names = ", ".join(map(str, build.places[:3])) or "every repository"
        reason = f"git {number} accepts {names} as it is"
        console.mark("ok", reason)
        return GitSafeResult(False, {}, reason, ())
    notes = []
    if refused:
        notes.append(f"{refused[0].place} belongs to another user: git trusts it")
    added, ways, more = _escalate(build, trust=bool(refused))
    notes += more + _mirror_notes(rules, {**env, **added})
    reason = "; ".join(notes) + " (for this build's processes only)"
    console.mark("ok", reason)
    return GitSafeResult(True, added, reason, tuple(ways), bool(refused))


def need_git(env: Mapping[str, str]) -> str:
    """Return git's version.

    Raises
    ------
    CannotError
        When there is no git, or it does not work.
    """
    number = git.version(env)
    if number is None:
        raise CannotError(
            "git is not installed",
            usual="The version of the build and the sources it fetches come from git.",
            hint="apt-get install git",
        )
    return number


@dataclass(frozen=True)
class _Build:
    """What a build asks of git: an environment, places it works in, and mirrors."""

    env: Mapping[str, str]
    folder: Path
    rules: Mapping[str, str]
    places: tuple[Path, ...]

    def refused(self, env: Mapping[str, str]) -> list[Access]:
        """Return the repositories that git refuses because of their owner."""
        answers = [git.access(p, env) for p in self.places]
        for mirror in self.rules.values():
            path = git_config.local_path(mirror)
            # a mirror is one repository, or a folder of OWNER/NAME
            found = git.repositories(path, depth=2) if path is not None else []
            answers += [git.clonable(str(p), env) for p in found]
        return [a for a in answers if a.state == "dubious"]

    def refused_to_scm(self, env: Mapping[str, str]) -> bool:
        """Say whether setuptools-scm, which asks in `places` only, meets a refusal."""
        seen = git.as_scm_sees(env)
        return any(git.access(p, seen).state == "dubious" for p in self.places)

    def mirrors_in_force(self, env: Mapping[str, str]) -> bool:
        """Say whether git reads the rules; a longer one of the user's may still win."""
        return all(
            any(v.value == prefix for v in git.values(f"url.{mirror}.insteadOf", env))
            for prefix, mirror in self.rules.items()
        )


def _escalate(
    build: _Build, *, trust: bool
) -> tuple[dict[str, str], list[str], list[str]]:
    """Take the mildest ways that git itself confirms.

    Returns
    -------
    tuple
        Variables to add, the names of the ways, and what to tell about them.
    """
    setup = git_config.Setup(build.env, build.rules, trust)
    added = {"XDG_CONFIG_HOME": str(publish(build.folder, setup.xdg_tree()))}
    ways = ["XDG_CONFIG_HOME"]
    notes: list[str] = []
    with_xdg = {**build.env, **added}
    scm_refused = build.refused_to_scm(with_xdg)
    if scm_refused:
        notes.append(_trap(with_xdg))
        added[IGNORE_OWNER] = "1"
        ways.append(IGNORE_OWNER)
    if (
        not scm_refused
        and not build.refused(with_xdg)
        and build.mirrors_in_force(with_xdg)
    ):
        return added, ways, notes
    if trust:
        added.update(git_config.appended(build.env, "safe.directory", "*"))
        ways.append("GIT_CONFIG_COUNT")
    # unlike GIT_CONFIG_COUNT this one also reaches what git itself starts: the other
    # end of a local clone, and submodules
    private = publish(build.folder, setup.global_tree()) / "gitconfig"
    added["GIT_CONFIG_GLOBAL"] = str(private)
    ways.append("GIT_CONFIG_GLOBAL")
    still = build.refused({**build.env, **added})
    if still:
        raise StepFailed(
            f"git still refuses {still[0].place}",
            details=[still[0].detail],
            usual="Its configuration does not let one process trust the repository.",
            hint="git config --global --add safe.directory "
            f"{shlex.quote(still[0].place)}",
        )
    return added, ways, notes


def _trap(env: Mapping[str, str]) -> str:
    """Say which setting takes the trust back that the private configuration gives."""
    empty = [v.origin for v in git.values("safe.directory", env) if not v.value]
    where = empty[-1].removeprefix("file:") if empty else "your git configuration"
    return (
        f"an empty safe.directory in {where} takes all earlier ones back, so variables "
        "carry it too; setuptools-scm lists no files then (delete that line to be rid "
        "of this)"
    )


def _mirror_notes(rules: Mapping[str, str], env: Mapping[str, str]) -> list[str]:
    notes = []
    for prefix, mirror in rules.items():
        real = git.rewritten(prefix, env)
        why = "" if real == mirror else ", as your own git configuration says"
        notes.append(f"{prefix} comes from {real}{why}")
    return notes


def _places(directories: Sequence[Path]) -> list[Path]:
    """Return the directories that exist, and the repositories right below them.

    FetchContent clones side by side into its folder.
    """
    found: list[Path] = []
    for directory in directories:
        if directory.is_dir():
            below = git.repositories(directory, depth=1)
            found += dict.fromkeys([directory, *below])
    return found
