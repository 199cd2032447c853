# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Secrets that this machine holds, read only so that they can be masked.

What is not known cannot be found in a log where it stands without a name. So the places
are read where tools keep passwords and where processes get them. Nothing of it is kept
or written.
"""

from __future__ import annotations

import base64
import contextlib
import os
import pwd
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import regex as re

from tools.rig.base import redact
from tools.rig.host import processes

LARGEST = 1 << 20
"""Bytes of a file that are read."""

HOME_FILES = (
    ".netrc",
    "_netrc",
    ".git-credentials",
    ".config/git/credentials",
    ".config/git/config",
    ".gitconfig",
    ".pip/pip.conf",
    ".config/pip/pip.conf",
    ".pypirc",
    ".config/uv/uv.toml",
    ".local/share/uv/credentials/credentials.toml",
    ".cache/huggingface/token",
    ".cache/huggingface/stored_tokens",
    ".huggingface/token",
    ".modelscope/credentials/git_token",
    ".cache/modelscope/credentials/git_token",
    ".docker/config.json",
    ".aws/credentials",
    ".config/gh/hosts.yml",
    ".config/gcloud/application_default_credentials.json",
    ".kaggle/kaggle.json",
    ".npmrc",
    ".curlrc",
    ".wgetrc",
    ".condarc",
    ".config/rig.toml",
)
"""Files of a user that hold passwords, as their programs document them."""

SYSTEM_FILES = ("etc/pip.conf", "etc/uv/uv.toml", "etc/gitconfig", "etc/environment")

_FILE_VARIABLES = (
    "PIP_CONFIG_FILE",
    "UV_CONFIG_FILE",
    "NETRC",
    "HF_TOKEN_PATH",
    "GIT_CONFIG_GLOBAL",
    "NPM_CONFIG_USERCONFIG",
    "AWS_SHARED_CREDENTIALS_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS",
)
_NETRC_WORD = re.compile(r"\b(?:password|account)\s+(\"[^\"]*\"|\S+)")
_USERINFO = re.compile(r"://([^\s/@:\"']*)(?::([^\s\"'@]*(?:@[^\s\"'/@]*)*))?@")
_QUOTED_SECRET = re.compile(
    r"[\"']?(?P<name>[\w.-]{1,128})[\"']?[ \t]*[:=][ \t]*"
    r"(?P<value>\"[^\"\n]*\"|'[^'\n]*'|[^\n]+)"
)


def secrets(
    env: Mapping[str, str],
    *,
    checkout: Path | None = None,
    proc: Path = processes.PROC,
    root: Path = Path("/"),
    note: Callable[[str], None] = lambda problem: None,
) -> Iterator[str]:
    """Yield every secret value that can be looked up on this machine.

    Parameters
    ----------
    env
        Our environment.
    checkout
        Its git configuration and ``rig.toml`` are read as well.
    proc
        The place of /proc: what other processes were given is read where it may be.
    root
        Where ``etc`` lies.
    note
        Told why a file that exists could not be read.
    """
    yield from of_environment(env)
    for pid in _pids(proc):
        given = processes.environ(pid, proc)
        yield from of_environment(given or {})
        words = processes.cmdline(pid, proc)
        yield from _of_words(words)
    for file in _files(env, checkout, root):
        text = text_of(file, note)
        if text:
            yield from of_file(file.name, text)


def of_environment(env: Mapping[str, str]) -> Iterator[str]:
    """Yield the values of variables with telling names, and passwords inside others."""
    for name, value in env.items():
        if not value:
            continue
        if redact.is_secret_name(name):
            yield value.strip()
        yield from _inside(value)


def of_file(name: str, text: str) -> Iterator[str]:
    """Yield the secrets in a file; a file that is called a token is one as a whole."""
    if "token" in name and len(text.split()) == 1:
        yield text.strip()
    for match in _NETRC_WORD.finditer(text):
        yield str(match[1]).strip('"')
    for match in _QUOTED_SECRET.finditer(text):
        if redact.is_secret_name(match["name"]) or match["name"] in ("auth", "_auth"):
            value = match["value"].strip().rstrip(",;}").strip()
            # in JSON a key of several lines is one long line
            yield value.strip("\"'").replace("\\n", "\n")
            yield from _decoded(value.strip("\"'"))
    yield from _inside(text)


def _files(env: Mapping[str, str], checkout: Path | None, root: Path) -> list[Path]:
    found = [Path(env[name]) for name in _FILE_VARIABLES if env.get(name)]
    for name, below in (
        ("HF_HOME", "token"),
        ("HF_HOME", "stored_tokens"),
        ("XDG_CONFIG_HOME", "pip/pip.conf"),
        ("XDG_CONFIG_HOME", "uv/uv.toml"),
        ("XDG_CONFIG_HOME", "git/credentials"),
        ("DOCKER_CONFIG", "config.json"),
        ("VIRTUAL_ENV", "pip.conf"),
    ):
        if env.get(name):
            found.append(Path(env[name]) / below)
    homes = [Path(env["HOME"])] if env.get("HOME") else []
    with contextlib.suppress(KeyError):
        homes.append(Path(pwd.getpwuid(os.getuid()).pw_dir))
    found += [home / name for home in dict.fromkeys(homes) for name in HOME_FILES]
    found += [root / name for name in SYSTEM_FILES]
    if checkout is not None:
        found += [checkout / ".git/config", checkout / "rig.toml", checkout / ".env"]
        found += [checkout / "uv.toml", checkout / ".netrc"]
    return list(dict.fromkeys(found))


def _inside(text: str) -> Iterator[str]:
    for match in _USERINFO.finditer(text):
        user, password = match[1], match[2]
        if password:
            yield password
        elif len(user) >= 16:
            # a token alone before a host
            yield user
    yield from (value for value in redact.values(text) if len(value) >= 8)


def _of_words(words: list[str]) -> Iterator[str]:
    for before, word in zip(words, words[1:]):
        option = before.startswith("-") and "=" not in before
        if option and redact.is_secret_name(before) and not word.startswith("-"):
            yield word
    for word in words:
        name, sep, value = word.partition("=")
        if sep and redact.is_secret_name(name) and not re.search(r"[\s/:?&]", name):
            yield value
        yield from _inside(word)


def _decoded(value: str) -> Iterator[str]:
    """Yield the password of what is encoded as for basic authentication."""
    with contextlib.suppress(ValueError):
        user, colon, password = base64.b64decode(value, validate=True).partition(b":")
        if colon and password and user.isascii():
            yield password.decode("utf-8", "replace")


def _pids(proc: Path) -> list[int]:
    try:
        return processes.pids(proc)
    except OSError:
        return []


def text_of(file: Path, note: Callable[[str], None]) -> str:
    """Return the text of a file, nothing where there is none; `note` is told why."""
    try:
        if not file.is_file():
            return ""
        with file.open("rb") as fh:
            return fh.read(LARGEST).decode("utf-8", "replace")
    except OSError as exc:
        note(f"cannot look for what to mask in {file.name} ({exc.strerror})")
        return ""
