# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The git step with a fake git."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pytest_subprocess import FakeProcess

from tools.rig.base.console import Console
from tools.rig.base.errors import CannotError, StepFailed, UsageError
from tools.rig.base.run import Result
from tools.rig.host import git
from tools.rig.host.git import Access, Value
from tools.rig.steps import git_config
from tools.rig.steps.git_config import Setup, appended, instead_of, local_path
from tools.rig.steps.git_safe import IGNORE_OWNER, GitSafeResult, git_safe, need_git

_DUBIOUS = "fatal: detected dubious ownership in repository at '/x'\nTo add ...\n"
_VERSION = ["git", "--version"]


def head(path: Path) -> list[str]:
    """Return the question whether git works in `path`."""
    return ["git", "-C", str(path), "rev-parse", "--git-dir"]


@pytest.fixture
def checkout(tmp_path: Path, fp: FakeProcess) -> Path:
    """Return a checkout, with a git of version 2.39.5 on PATH."""
    fp.register(_VERSION, stdout="git version 2.39.5\n", occurrences=9)
    folder = tmp_path / "check out"
    folder.mkdir()
    return folder


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """Return an environment with a home of its own."""
    (tmp_path / "home").mkdir()
    return {"PATH": "/usr/bin", "HOME": str(tmp_path / "home")}


def step(
    directories: list[Path],
    env: Mapping[str, str],
    folder: Path,
    mirrors: Mapping[str, str] | None = None,
) -> GitSafeResult:
    """Run the step."""
    return git_safe(Console(io.StringIO()), directories, env, folder, mirrors)


def test_a_missing_git_is_named_with_its_package(
    tmp_path: Path, fp: FakeProcess, env: dict[str, str]
) -> None:
    """No git means that this machine cannot."""
    fp.register(_VERSION, returncode=127, stderr="not found")
    with pytest.raises(CannotError) as caught:
        step([tmp_path], env, tmp_path / "state")
    assert caught.value.hint == "apt-get install git"


def test_an_accepted_checkout_costs_two_questions(
    checkout: Path, fp: FakeProcess, env: dict[str, str], tmp_path: Path
) -> None:
    """Where git is content nothing is made."""
    fp.register(head(checkout), stdout=".git\n")
    result = step([checkout, tmp_path / "absent"], env, tmp_path / "state")
    assert result == GitSafeResult(False, {}, result.reason, ())
    assert list(fp.calls) == [_VERSION, head(checkout)]
    assert not (tmp_path / "state").exists()


def test_one_variable_is_enough_without_a_trap(
    checkout: Path, fp: FakeProcess, env: dict[str, str], tmp_path: Path
) -> None:
    """Git is asked again with the result, also as setuptools-scm would ask it."""
    fp.register(head(checkout), returncode=128, stderr=_DUBIOUS)
    fp.register(head(checkout), stdout=".git\n")
    fp.register(head(checkout), stdout=".git\n")
    result = step([checkout], env, tmp_path / "state")
    assert result.mechanisms == ("XDG_CONFIG_HOME",)
    text = Path(result.env["XDG_CONFIG_HOME"], "git/config").read_text()
    assert "[safe]\n\tdirectory = *\n" in text
    assert f'path = "{env["HOME"]}/.config/git/config"' in text
    assert "protocol" not in text
    assert fp.call_count(head(checkout)) == 3


class _Asked:
    """Stands for git: decides by the environment that it is asked with."""

    def __init__(self, accepts: Any) -> None:
        self.accepts = accepts

    def access(self, directory: Path, env: Mapping[str, str]) -> Access:
        """Answer for one folder."""
        state = "ok" if self.accepts(env) else "dubious"
        return Access(str(directory), state, "fatal: dubious")


def with_git(monkeypatch: pytest.MonkeyPatch, accepts: Any) -> None:
    """Replace the questions that decide about the ways."""
    monkeypatch.setattr(git, "access", _Asked(accepts).access)


def test_an_empty_safe_directory_brings_all_ways_in(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, env: dict[str, str], tmp_path: Path
) -> None:
    """The reset is named by its file, and what the user counts already is kept."""
    with_git(monkeypatch, lambda env: "GIT_CONFIG_GLOBAL" in env)
    empty = (Value("file:/p/git/config", "*"), Value("file:/home/u/.gitconfig", ""))
    monkeypatch.setattr(git, "values", lambda name, env: empty)
    given = {**env, "GIT_CONFIG_COUNT": "2"}
    result = step([checkout], given, tmp_path / "state")
    assert result.mechanisms[1:] == (
        IGNORE_OWNER,
        "GIT_CONFIG_COUNT",
        "GIT_CONFIG_GLOBAL",
    )
    assert result.env["GIT_CONFIG_COUNT"] == "3"
    assert result.env["GIT_CONFIG_KEY_2"] == "safe.directory"
    assert result.env["GIT_CONFIG_VALUE_2"] == "*"
    assert result.env[IGNORE_OWNER] == "1"
    assert "/home/u/.gitconfig" in result.reason
    text = Path(result.env["GIT_CONFIG_GLOBAL"]).read_text()
    assert text.index("/.gitconfig") < text.index("[safe]")


def test_a_git_that_goes_on_refusing_ends_the_step(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, env: dict[str, str], tmp_path: Path
) -> None:
    """Nothing is claimed that git did not confirm."""
    with_git(monkeypatch, lambda env: False)
    monkeypatch.setattr(git, "values", lambda name, env: ())
    with pytest.raises(StepFailed, match="still refuses") as caught:
        step([checkout], env, tmp_path / "state")
    assert f"safe.directory '{checkout}'" in caught.value.hint


def test_a_mirror_of_the_users_own_is_reported(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, env: dict[str, str], tmp_path: Path
) -> None:
    """A longer rule in the user's configuration wins, and the reason says so."""
    with_git(monkeypatch, lambda env: True)
    monkeypatch.setattr(git, "rewritten", lambda url, env: "https://theirs.invalid/")
    rule = (Value("file:/x", "https://a.invalid/"),)
    monkeypatch.setattr(git, "values", lambda name, env: rule)
    mirrors = {"https://a.invalid/": "https://b.invalid/"}
    result = step([checkout], env, tmp_path / "state", mirrors)
    assert result.mechanisms == ("XDG_CONFIG_HOME",)
    assert "theirs.invalid" in result.reason
    assert "your own git configuration" in result.reason


def test_mirrors_are_checked_and_made_absolute(tmp_path: Path) -> None:
    """Git replaces text, so both sides must end alike, and a path must exist."""
    (tmp_path / "m").mkdir()
    (tmp_path / "dep.git").mkdir()
    rules = instead_of(
        {
            "https://a.invalid/": str(tmp_path / "m"),
            "https://a.invalid/dep": str(tmp_path / "dep"),
            "https://b.invalid/": "ssh://git@c.invalid/x",
            "https://d.invalid/y": "git@e.invalid:y",
            "https://f.invalid/z": f"file://{tmp_path}/m",
        }
    )
    assert rules == {
        "https://a.invalid/": f"{tmp_path}/m/",
        "https://a.invalid/dep": f"{tmp_path}/dep",
        "https://b.invalid/": "ssh://git@c.invalid/x/",
        "https://d.invalid/y": "git@e.invalid:y",
        "https://f.invalid/z": f"file://{tmp_path}/m",
    }


@pytest.mark.parametrize(
    "mirrors",
    [{"": "/x"}, {"https://a.invalid/": ""}, {"https://a.invalid/": "/no/such/place"}],
)
def test_a_wrong_mirror_is_refused(mirrors: dict[str, str]) -> None:
    """An empty side or a missing folder is a mistake in the settings."""
    with pytest.raises(UsageError, match="git_mirrors"):
        instead_of(mirrors)
    with pytest.raises(UsageError, match="line break"):
        instead_of({"https://a.invalid/\n": "/x"})


def test_what_is_a_local_mirror() -> None:
    """Addresses with a scheme or a host are elsewhere."""
    assert local_path("ssh://h/x") is None
    assert local_path("h:x") is None
    assert local_path("/a:b") == Path("/a:b")
    assert local_path("file:///a") == Path("/a")


def test_local_mirrors_allow_submodules_from_disk(env: dict[str, str]) -> None:
    """Git forbids that by default; names with quotes are escaped."""
    setup = Setup(env, {"https://a.invalid/": '/m "x"\\'}, trust=False)
    text = setup.xdg_tree().files["git/config"]
    assert '[url "/m \\"x\\"\\\\"]\n\tinsteadOf = "https://a.invalid/"\n' in text
    assert '[protocol "file"]\n\tallow = always\n' in text
    assert "[safe]" not in text


def test_every_other_entry_of_the_users_folder_is_linked(
    tmp_path: Path, env: dict[str, str]
) -> None:
    """Only git/config is ours; a folder given by XDG_CONFIG_HOME counts, too."""
    xdg = tmp_path / "x"
    (xdg / "git").mkdir(parents=True)
    (xdg / "uv").mkdir()
    for name in ("git/config", "git/ignore", "plain.toml"):
        (xdg / name).touch()
    tree = Setup({**env, "XDG_CONFIG_HOME": str(xdg)}, {}, trust=True).xdg_tree()
    assert set(tree.links) == {"uv", "plain.toml", "git/ignore"}
    assert tree.links["git/ignore"] == str(xdg / "git" / "ignore")
    assert set(tree.files) == {"git/config"}


def test_without_a_home_nothing_is_included() -> None:
    """A service without HOME still gets its private configuration."""
    setup = Setup({}, {}, trust=True)
    assert "[include]" not in setup.xdg_tree().files["git/config"]
    assert "[include]" not in setup.global_tree().files["gitconfig"]


@pytest.mark.parametrize("given", ["", os.devnull])
def test_an_emptied_global_file_stays_empty(given: str, env: dict[str, str]) -> None:
    """Who turned global configuration off does not get it back."""
    setup = Setup({**env, "GIT_CONFIG_GLOBAL": given}, {}, trust=True)
    assert "[include]" not in setup.global_tree().files["gitconfig"]
    setup = Setup({**env, "GIT_CONFIG_GLOBAL": "/g"}, {}, trust=True)
    assert 'path = "/g"' in setup.global_tree().files["gitconfig"]


def test_a_count_that_is_no_number_starts_anew() -> None:
    """Git itself refuses such a value, so nothing is lost."""
    assert appended({"GIT_CONFIG_COUNT": "x"}, "k", "v") == {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "k",
        "GIT_CONFIG_VALUE_0": "v",
    }


@pytest.mark.parametrize(
    ("code", "said", "state"),
    [
        (0, "", "ok"),
        (128, _DUBIOUS, "dubious"),
        (128, "fatal: not a git repository: x", "none"),
        (128, "fatal: bad config line 1", "unknown"),
        (128, "", "unknown"),
    ],
)
def test_what_git_says_about_a_folder(
    code: int, said: str, state: str, fp: FakeProcess, tmp_path: Path
) -> None:
    """Only its own words about the owner count as such."""
    fp.register(head(tmp_path), returncode=code, stderr=said)
    assert git.access(tmp_path, {}).state == state


def test_a_git_that_hangs_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stuck disk is no verdict about the owner."""

    def slow(argv: list[str], **more: Any) -> Result:
        return Result(tuple(argv), -15, "", "", 30.0, timed_out=True)

    monkeypatch.setattr(git, "run", slow)
    answer = git.access(tmp_path, {})
    assert (answer.state, "did not answer" in answer.detail) == ("unknown", True)


def test_questions_about_urls_and_settings(fp: FakeProcess) -> None:
    """Exact command lines, and answers where git gives none."""
    fp.register(["git", "ls-remote", "--", "/m", "HEAD"], stdout="1 HEAD\n")
    assert git.clonable("/m", {}).state == "ok"
    ask = ["git", "ls-remote", "--get-url", "https://a.invalid/"]
    fp.register(ask, stdout="/m/\n")
    fp.register(ask, returncode=128)
    assert git.rewritten("https://a.invalid/", {}) == "/m/"
    assert git.rewritten("https://a.invalid/", {}) == "https://a.invalid/"
    ask = ["git", "config", "--null", "--show-origin", "--get-all", "safe.directory"]
    fp.register(ask, stdout="file:/a\0*\0file:/b\0\0")
    fp.register(ask, returncode=1)
    both = (Value("file:/a", "*"), Value("file:/b", ""))
    assert git.values("safe.directory", {}) == both
    assert git.values("safe.directory", {}) == ()
    fp.register(_VERSION, returncode=127)
    assert git.version({}) is None


@pytest.mark.parametrize(
    ("out", "err", "code", "words"),
    [
        (
            "",
            "fatal: bad config line 1 in file /h/.gitconfig\n",
            128,
            "bad config line",
        ),
        ("nonsense", "", 0, "git says: nonsense"),
        ("", "", 139, "nothing (status 139)"),
    ],
)
def test_a_git_that_does_not_work_is_no_missing_one(
    fp: FakeProcess, out: str, err: str, code: int, words: str
) -> None:
    """A broken configuration is told in git's own words, not as a missing package."""
    fp.register(_VERSION, stdout=out, stderr=err, returncode=code)
    with pytest.raises(CannotError) as caught:
        need_git({})
    assert words in caught.value.what and "not installed" not in caught.value.what
    assert caught.value.hint == "git config --list"


@pytest.mark.allow_process
def test_a_git_that_hangs_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A git that does not answer is named as such."""
    monkeypatch.setattr(git, "PROBE_S", 0.3)
    program = tmp_path / "git"
    program.write_text("#!/bin/sh\nsleep 60\n")
    program.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.defpath}"
    with pytest.raises(CannotError, match="nothing within"):
        need_git({"PATH": path})


def test_variables_that_setuptools_scm_takes_away() -> None:
    """What is left is what its git sees."""
    env = {"GIT_CONFIG_GLOBAL": "x", "GIT_SSH": "s", "HOME": "/h"}
    assert git.as_scm_sees(env) == {"GIT_SSH": "s", "HOME": "/h"}


def test_repositories_are_found_to_a_depth(tmp_path: Path) -> None:
    """Bare and other repositories are found, and not looked into."""
    (tmp_path / "o" / "bare.git").mkdir(parents=True)
    (tmp_path / "o" / "bare.git" / "HEAD").touch()
    (tmp_path / "w" / ".git").mkdir(parents=True)
    (tmp_path / "w" / "sub" / ".git").mkdir(parents=True)
    (tmp_path / "file").touch()
    found = [tmp_path / "o" / "bare.git", tmp_path / "w"]
    assert git.repositories(tmp_path, depth=2) == found
    assert git.repositories(tmp_path, depth=1) == found[1:]
    assert git.repositories(tmp_path / "nowhere", depth=1) == []
    assert git_config.xdg_home({"HOME": "/h"}) == Path("/h/.config")
