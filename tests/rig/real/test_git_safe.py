# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""git in repositories of another user, as a build's tools start it."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.rig.support.scm import scm, setuptools_scm
from tools.rig.base.console import Console
from tools.rig.steps.git_safe import IGNORE_OWNER, GitSafeResult, git_safe

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
]

_OTHER = 54321
_NEW_SCM = "10.3.4"
_OLD_SCM = "8.3.1"

needs_chown = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can give a file to another user"
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return an empty home folder."""
    home = tmp_path / "a home"
    home.mkdir()
    return home


@pytest.fixture
def env(home: Path) -> dict[str, str]:
    """Return an environment in which only `home` configures git."""
    drop = ("GIT_", "XDG_", "SETUPTOOLS_SCM", "SUDO_")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(drop)}
    return {**kept, "HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1"}


def git(env: Mapping[str, str], *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run git and return what it said."""
    return subprocess.run(
        ["git", *map(str, words)], env=env, capture_output=True, text=True, check=False
    )


def repository(path: Path, env: Mapping[str, str], *, owner: int | None) -> Path:
    """Make a repository with one commit and a tag, owned by `owner`."""
    path.mkdir(parents=True)
    who = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    git(env, "init", "-q", "-b", "main", path)
    (path / "file.txt").write_text("text\n")
    (path / "CMakeLists.txt").write_text("add_library(dep INTERFACE)\n")
    git(env, "-C", path, "add", ".")
    done = git(env, "-C", path, *who, "commit", "-q", "-m", "first")
    assert done.returncode == 0, done.stderr
    git(env, "-C", path, *who, "tag", "-a", "v1.2.3", "-m", "release")
    give(path, owner)
    return path


def give(path: Path, owner: int | None) -> None:
    """Give a whole tree to another user."""
    if owner is not None:
        for top, folders, files in os.walk(path):
            for name in [".", *folders, *files]:
                os.lchown(os.path.join(top, name), owner, owner)


def safe(
    directories: list[Path],
    env: Mapping[str, str],
    tmp_path: Path,
    mirrors: Mapping[str, str] | None = None,
) -> GitSafeResult:
    """Run the step with its messages thrown away."""
    console = Console(io.StringIO())
    return git_safe(console, directories, env, tmp_path / "a state" / "git", mirrors)


def test_an_own_repository_needs_nothing(tmp_path: Path, env: dict[str, str]) -> None:
    """Where git works as it is, the environment stays as it is."""
    own = repository(tmp_path / "own", env, owner=None)
    result = safe([own, tmp_path / "not there yet"], env, tmp_path)
    assert not result.needed
    assert result.env == {}
    assert not (tmp_path / "a state").exists()


@needs_chown
@pytest.mark.parametrize("gitconfig", [None, "[user]\n\tname = Someone\n"])
def test_a_foreign_repository_gets_a_private_xdg_folder(
    gitconfig: str | None, tmp_path: Path, home: Path, env: dict[str, str]
) -> None:
    """One variable suffices, and reaches a git without its GIT_ variables too."""
    if gitconfig:
        (home / ".gitconfig").write_text(gitconfig)
    foreign = repository(tmp_path / "fo reign", env, owner=_OTHER)
    assert git(env, "-C", foreign, "status").returncode == 128
    result = safe([foreign], env, tmp_path)
    assert result.needed
    assert result.mechanisms == ("XDG_CONFIG_HOME",)
    assert set(result.env) == {"XDG_CONFIG_HOME"}
    assert git({**env, **result.env}, "-C", foreign, "status").returncode == 0
    assert git(env, "-C", foreign, "status").returncode == 128
    assert sorted(p.name for p in home.iterdir()) == (
        [".gitconfig"] if gitconfig else []
    )


@needs_chown
def test_the_users_own_configuration_stays_in_force(
    tmp_path: Path, home: Path, env: dict[str, str]
) -> None:
    """Aliases, ignore files and the settings of uv and pip are found as before."""
    config = home / ".config"
    (config / "git").mkdir(parents=True)
    (config / "git" / "config").write_text(
        "[include]\n\tpath = more\n[safe]\n\tdirectory =\n"
    )
    (config / "git" / "more").write_text("[alias]\n\tst = status --short\n")
    (config / "git" / "ignore").write_text("*.ignored\n")
    (config / "uv").mkdir()
    (config / "uv" / "uv.toml").write_text("offline = true\n")
    (config / "pip").mkdir()
    (config / "pip" / "pip.conf").write_text("[global]\ntimeout = 7\n")
    foreign = repository(tmp_path / "foreign", env, owner=_OTHER)
    (foreign / "x.ignored").touch()
    result = safe([foreign], env, tmp_path)
    assert result.mechanisms == ("XDG_CONFIG_HOME",)
    private = Path(result.env["XDG_CONFIG_HOME"])
    assert (private / "uv" / "uv.toml").read_text() == "offline = true\n"
    assert (private / "pip" / "pip.conf").read_text() == "[global]\ntimeout = 7\n"
    status = git({**env, **result.env}, "-C", foreign, "st")
    assert (status.returncode, status.stdout) == (0, "")


@needs_chown
@pytest.mark.parametrize("version", [_OLD_SCM, _NEW_SCM])
def test_setuptools_scm_lists_files_and_finds_the_version(
    version: str, tmp_path: Path, env: dict[str, str]
) -> None:
    """Version and file list of a foreign repository come out as for one's own."""
    packages = setuptools_scm(version)
    foreign = repository(tmp_path / "foreign", env, owner=_OTHER)
    before = scm(packages, "files", foreign, env)
    assert before.returncode != 0 or "file.txt" not in before.stdout
    result = safe([foreign], env, tmp_path)
    after = {**env, **result.env}
    assert "file.txt" in scm(packages, "files", foreign, after).stdout
    assert "1.2.3" in scm(packages, "version", foreign, after).stdout


@needs_chown
def test_an_empty_safe_directory_is_detected_and_passed(
    tmp_path: Path, home: Path, env: dict[str, str]
) -> None:
    """The reset in ~/.gitconfig is named, and variables carry the trust past it."""
    (home / ".gitconfig").write_text("[safe]\n\tdirectory =\n[alias]\n\tst = status\n")
    (home / ".config" / "git").mkdir(parents=True)
    (home / ".config" / "git" / "config").write_text("[alias]\n\tlg = log\n")
    foreign = repository(tmp_path / "foreign", env, owner=_OTHER)
    given = {
        **env,
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "alias.mine",
        "GIT_CONFIG_VALUE_0": "rev-parse",
    }
    result = safe([foreign], given, tmp_path)
    assert result.mechanisms == (
        "XDG_CONFIG_HOME",
        IGNORE_OWNER,
        "GIT_CONFIG_COUNT",
        "GIT_CONFIG_GLOBAL",
    )
    assert str(home / ".gitconfig") in result.reason
    after = {**given, **result.env}
    for alias in (["st"], ["lg"], ["mine", "HEAD"]):
        done = git(after, "-C", foreign, *alias)
        assert done.returncode == 0, done.stderr
    packages = setuptools_scm(_NEW_SCM)
    assert "1.2.3" in scm(packages, "version", foreign, after).stdout
    assert scm(packages, "files", foreign, given).returncode != 0
    assert scm(packages, "files", foreign, after).returncode == 0


@needs_chown
def test_a_global_file_of_the_users_is_included_not_replaced(
    tmp_path: Path, env: dict[str, str]
) -> None:
    """With GIT_CONFIG_GLOBAL set git reads no XDG folder; that one is extended."""
    theirs = tmp_path / "their config"
    theirs.write_text("[alias]\n\tst = status\n[safe]\n\tdirectory =\n")
    given = {**env, "GIT_CONFIG_GLOBAL": str(theirs)}
    foreign = repository(tmp_path / "foreign", env, owner=_OTHER)
    result = safe([foreign], given, tmp_path)
    assert "GIT_CONFIG_GLOBAL" in result.mechanisms
    assert IGNORE_OWNER not in result.mechanisms
    assert git({**given, **result.env}, "-C", foreign, "st").returncode == 0


def test_a_mirror_is_used_also_where_ownership_is_fine(
    tmp_path: Path, env: dict[str, str]
) -> None:
    """A URL that cannot be reached is cloned from a local repository instead."""
    own = repository(tmp_path / "own", env, owner=None)
    bare = tmp_path / "mirrors here" / "dep.git"
    git(env, "clone", "-q", "--bare", own, bare)
    rules = {"https://git.invalid/": str(bare.parent)}
    result = safe([own], env, tmp_path, rules)
    assert result.needed
    after = {**env, **result.env}
    target = tmp_path / "clone"
    done = git(after, "clone", "-q", "https://git.invalid/dep.git", target)
    assert done.returncode == 0, done.stderr
    assert (target / "file.txt").is_file()
    assert "safe" not in Path(result.env["XDG_CONFIG_HOME"], "git/config").read_text()


def test_a_mirror_works_beside_a_global_file_of_the_users(
    tmp_path: Path, env: dict[str, str]
) -> None:
    """Where git would not read the private folder, the rules go another way."""
    own = repository(tmp_path / "own", env, owner=None)
    given = {**env, "GIT_CONFIG_GLOBAL": os.devnull}
    url = "https://git.invalid/dep"
    result = safe([own], given, tmp_path, {url: str(own)})
    assert result.mechanisms == ("XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL")
    done = git({**given, **result.env}, "ls-remote", url, "HEAD")
    assert done.returncode == 0, done.stderr


@needs_chown
@pytest.mark.parametrize("trap", [False, True], ids=["plain", "empty safe.directory"])
def test_fetchcontent_clones_from_a_foreign_bare_repository(
    trap: bool, tmp_path: Path, home: Path, env: dict[str, str]
) -> None:
    """CMake gets a dependency and its submodule from another user's local mirrors."""
    cmake = shutil.which("cmake")
    if cmake is None or shutil.which("make") is None:
        pytest.skip("cmake or make is not installed")
    if trap:
        (home / ".gitconfig").write_text("[safe]\n\tdirectory =\n")
    mirrors = tmp_path / "mirrors"
    inner = repository(tmp_path / "inner", env, owner=None)
    outer = repository(tmp_path / "outer", env, owner=None)
    git(env, "clone", "-q", "--bare", inner, mirrors / "inner.git")
    words = ["-c", "protocol.file.allow=always", "submodule", "add", "-q"]
    done = git(env, "-C", outer, *words, mirrors / "inner.git", "sub")
    assert done.returncode == 0, done.stderr
    modules = outer / ".gitmodules"
    url = "https://git.invalid/inner.git"
    modules.write_text(modules.read_text().replace(str(mirrors / "inner.git"), url))
    who = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    git(env, "-C", outer, *who, "commit", "-q", "-a", "-m", "submodule")
    git(env, "clone", "-q", "--bare", outer, mirrors / "outer.git")
    give(mirrors, _OTHER)
    source = tmp_path / "project"
    source.mkdir()
    (source / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.18)\nproject(probe LANGUAGES NONE)\n"
        "include(FetchContent)\n"
        "FetchContent_Declare(outer GIT_REPOSITORY https://git.invalid/outer.git\n"
        "  GIT_TAG main)\n"
        "FetchContent_MakeAvailable(outer)\n"
    )
    result = safe([source], env, tmp_path, {"https://git.invalid/": str(mirrors)})
    words = ["-G", "Unix Makefiles", "-S", str(source), "-B", str(tmp_path / "out")]
    configured = subprocess.run(
        [cmake, *words],
        env={**env, **result.env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert configured.returncode == 0, configured.stdout + configured.stderr
    assert (tmp_path / "out" / "_deps" / "outer-src" / "sub" / "file.txt").is_file()


@needs_chown
def test_a_repository_below_a_fetch_folder_is_seen(
    tmp_path: Path, env: dict[str, str]
) -> None:
    """A dependency that another user cloned earlier makes the way round needed."""
    base = tmp_path / "deps"
    repository(base / "dep-src", env, owner=_OTHER)
    result = safe([base], env, tmp_path)
    assert result.needed
    assert "dep-src" in result.reason
