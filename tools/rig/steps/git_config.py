# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The texts of a private git configuration. Nothing here is written or run."""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import regex as re

from tools.rig.base.errors import UsageError, quoted
from tools.rig.base.paths import checked_path, typed_path
from tools.rig.steps.trees import Tree

_HOST_AND_PATH = re.compile(r"^[^/]+:")


@dataclass(frozen=True)
class Setup:
    """What a private configuration is made from.

    Parameters
    ----------
    env
        The build's environment.
    rules
        Beginning of a URL, and what stands in its place (see :func:`instead_of`).
    trust
        Whether repositories of other users are allowed.
    """

    env: Mapping[str, str]
    rules: Mapping[str, str]
    trust: bool

    def xdg_tree(self) -> Tree:
        """Return an ``XDG_CONFIG_HOME``: the user's own, with another ``git/config``.

        Every other entry is a link to the user's, so that the mirror settings of uv and
        pip, and git's ignore and attributes files, stay in force.
        """
        home = xdg_home(self.env)
        links: dict[str, str] = {}
        own = []
        if home is not None:
            own = [home / "git" / "config"]
            links = {p.name: os.fspath(p) for p in _entries(home) if p.name != "git"}
            for path in _entries(home / "git"):
                if path.name != "config":
                    links[f"git/{path.name}"] = os.fspath(path)
        return _named("xdg-", {"git/config": self._text(own)}, links)

    def global_tree(self) -> Tree:
        """Return a folder with one file, ``gitconfig``, for ``GIT_CONFIG_GLOBAL``.

        It includes what git would have read instead of it, in git's order, and gives
        the trust after that.
        """
        given = self.env.get("GIT_CONFIG_GLOBAL")
        if given is not None:
            own = [Path(given).absolute()] if given not in ("", os.devnull) else []
        else:
            own = []
            home = xdg_home(self.env)
            if home is not None:
                own.append(home / "git" / "config")
            if self.env.get("HOME"):
                own.append(Path(self.env["HOME"], ".gitconfig").absolute())
        return _named("global-", {"gitconfig": self._text(own)}, {})

    def _text(self, includes: list[Path]) -> str:
        lines = ["# For the processes of a build. Your own configuration is included."]
        # of two equal prefixes git takes the first that it reads
        for prefix, mirror in self.rules.items():
            lines += [f"[url {_quoted(mirror)}]", f"\tinsteadOf = {_quoted(prefix)}"]
        for path in includes:
            lines += ["[include]", f"\tpath = {_quoted(os.fspath(path))}"]
        # of the trusted places an empty one takes back all that were read before it
        if self.trust:
            lines += ["[safe]", "\tdirectory = *"]
        # submodules may not be cloned from a disk by default (git 2.38.1 and later)
        if any(local_path(mirror) for mirror in self.rules.values()):
            lines += ['[protocol "file"]', "\tallow = always"]
        return "\n".join(lines) + "\n"


def xdg_home(env: Mapping[str, str]) -> Path | None:
    """Return the user's configuration folder, or None without HOME."""
    given = env.get("XDG_CONFIG_HOME")
    if given:
        return Path(given).absolute()
    home = env.get("HOME")
    return Path(home, ".config").absolute() if home else None


def instead_of(mirrors: Mapping[str, str]) -> dict[str, str]:
    """Check ``git_mirrors`` and return beginnings of URLs with what replaces each.

    A mirror on this disk becomes an absolute path. git replaces text, so when the
    beginning ends with a slash the replacement must too; it gets one.

    Raises
    ------
    UsageError
        For an empty side, a line break, or a folder that does not exist.
    """
    rules = {}
    for prefix, mirror in mirrors.items():
        checked_path(prefix)
        checked_path(mirror)
        if not prefix or not mirror:
            raise UsageError(
                "git_mirrors has an empty side",
                hint="export ONECAT_GIT_MIRRORS='https://example.org/=/a/folder/'",
            )
        path = local_path(mirror)
        if path is not None:
            # git itself also tries the name with .git behind it
            if not path.exists() and not path.with_name(path.name + ".git").exists():
                raise UsageError(
                    f"git_mirrors: {prefix} = {mirror}, and {path} does not exist",
                    hint=f"git clone --bare {shlex.quote(prefix)} {quoted(path)}",
                )
            if "://" not in mirror:
                mirror = os.fspath(path)
        if prefix.endswith("/") and not mirror.endswith("/"):
            mirror += "/"
        rules[prefix] = mirror
    return rules


def local_path(mirror: str) -> Path | None:
    """Return the path of a mirror on this disk, or None for one elsewhere."""
    if mirror.startswith("file://"):
        return Path(mirror[len("file://") :])
    if "://" in mirror or _HOST_AND_PATH.match(mirror):
        return None
    return typed_path(mirror)


def appended(env: Mapping[str, str], key: str, value: str) -> dict[str, str]:
    """Return ``GIT_CONFIG_COUNT`` and its pair with one more setting at the end."""
    count = env.get("GIT_CONFIG_COUNT", "")
    at = int(count) if count.isdigit() else 0
    return {
        "GIT_CONFIG_COUNT": str(at + 1),
        f"GIT_CONFIG_KEY_{at}": key,
        f"GIT_CONFIG_VALUE_{at}": value,
    }


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _named(prefix: str, files: Mapping[str, str], links: Mapping[str, str]) -> Tree:
    content = repr((sorted(files.items()), sorted(links.items())))
    digest = hashlib.sha256(content.encode("utf-8", "surrogateescape")).hexdigest()
    return Tree(prefix + digest[:16], files, links)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
