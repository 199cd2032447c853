# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What the installed vLLM's own parser knows, asked once for each build.

Importing vLLM takes many seconds, so the answer is kept. Its name is a stamp of what is
installed: another version, or an edited source, is asked anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tools.rig.base import redact, run
from tools.rig.base.errors import CannotError, RigError
from tools.rig.base.state import StateRoot, read_json, write_json
from tools.rig.serve.parser_child import SCHEMA

ASK_S = 300.0
"""Seconds for the first import of vLLM from a slow disk."""

_CHILD = Path(__file__).with_name("parser_child.py")
_DECIDING = (
    "__init__.py",
    "version.py",
    "_version.py",
    "envs.py",
    "engine/arg_utils.py",
    "entrypoints/openai/cli_args.py",
    "entrypoints/launchers/cli_args.py",
    "v1/attention/backends/registry.py",
    "config/*.py",
)
"""Files below the package that say what the parser and the variables are."""


@dataclass(frozen=True)
class Option:
    """One option of ``vllm serve``.

    Attributes
    ----------
    flags
        All its names, as the parser has them (with dashes).
    dest
        What two options for the same thing share.
    kind
        ``str``, ``int``, ``float``, ``json``, ``human_readable_int``,
        ``human_readable_int_or_auto``, or ``other`` where only vLLM itself can tell.
    optional
        Whether the word ``None`` is a value.
    default
        Its default where that is a plain value, else None.
    nargs
        As argparse has it: 0 takes no value, None takes one.
    choices
        The only values, or None.
    """

    flags: tuple[str, ...]
    dest: str
    kind: str = "str"
    optional: bool = False
    nargs: int | str | None = None
    choices: tuple[str, ...] | None = None
    default: Any = None

    @property
    def name(self) -> str:
        """The name to show: the first long one."""
        return next((f for f in self.flags if f.startswith("--")), self.flags[0])


@dataclass(frozen=True)
class Parser:
    """What an installed vLLM takes.

    ``device`` is the kind that it computes on, "" where it found none here;
    ``variables`` are those of its own list; ``named`` those that its files name beside
    (vLLM itself warns about these, and yet reads them); ``command`` is how its own
    program is typed.
    """

    version: str
    options: tuple[Option, ...]
    device: str = ""
    backends: tuple[str, ...] = ()
    variables: frozenset[str] = frozenset()
    named: frozenset[str] = frozenset()
    command: str = "vllm"

    @cached_property
    def by_flag(self) -> Mapping[str, Option]:
        """Every option by each of its names."""
        return {flag: option for option in self.options for flag in option.flags}

    def has(self, flag: str) -> bool:
        """Say whether there is an option of that name."""
        return flag in self.by_flag

    def takes(self, flag: str, value: str) -> bool:
        """Say whether an option is there, and has that value among its choices."""
        option = self.by_flag.get(flag)
        choices = self.choices(option) if option else None
        return option is not None and (choices is None or value in choices)

    def choices(self, option: Option) -> tuple[str, ...] | None:
        """Return the only values of an option; vLLM checks backends by itself."""
        if option.choices is None and option.dest == "attention_backend":
            return (*self.backends, "auto") if self.backends else None
        return option.choices


def ask(
    python: Path,
    root: StateRoot | None = None,
    *,
    env: Mapping[str, str] | None = None,
    timeout: float = ASK_S,
) -> Parser:
    """Return what the vLLM of an environment takes.

    Parameters
    ----------
    python
        The environment's interpreter.
    root
        Where answers are kept; None keeps none.
    env
        Our own environment when None.
    timeout
        Seconds for the import.

    Raises
    ------
    CannotError
        When there is no such interpreter, no vLLM in it, or it cannot be imported.
    """
    env = os.environ if env is None else env
    if not os.path.exists(python):
        raise CannotError(
            f"there is no interpreter at {python}",
            hint="--environment FOLDER, one with bin/python in it",
        )
    command = shlex.quote(os.fspath(python.with_name("vllm")))
    kept = _kept(python, root)
    if kept is not None and kept.is_file():
        with contextlib.suppress(RigError):
            found = parsed(read_json(kept), command)
            if found is not None:
                return found
    answer = _asked(python, env, timeout)
    found = parsed(answer, command)
    if found is None:
        raise CannotError(
            f"the vLLM of {python} does not say which options it has",
            hint=f"{shlex.quote(str(python))} -I -m vllm.entrypoints.cli.main serve "
            "--help=all",
        )
    if kept is not None and root is not None:
        # a full disk costs the next start some seconds, no more
        with contextlib.suppress(RigError):
            root.make(kept.parent)
            write_json(kept, answer)
    return found


def parsed(data: Any, command: str = "vllm") -> Parser | None:
    """Return an answer of the child as a parser; None for anything else."""
    if not isinstance(data, Mapping) or data.get("schema") != SCHEMA:
        return None
    try:
        options = tuple(
            Option(
                flags=tuple(one["flags"]),
                dest=str(one["dest"]),
                kind=str(one["kind"]),
                optional=bool(one["optional"]),
                nargs=one["nargs"],
                choices=None if one["choices"] is None else tuple(one["choices"]),
                default=one["default"],
            )
            for one in data["options"]
        )
        return Parser(
            version=str(data["version"]),
            options=options,
            device=str(data["device"]),
            backends=tuple(data["backends"]),
            variables=frozenset(data["variables"]),
            named=frozenset(data["named"]),
            command=command,
        )
    except (KeyError, TypeError):
        return None


def stamp(environment: Path) -> str:
    """Return a word that changes with what is installed; "" where that is not seen."""
    seen = [
        f"{path} {stat.st_size} {stat.st_mtime_ns}"
        for path in _deciding(environment)
        for stat in _stat(path)
    ]
    if not seen:
        return ""
    return hashlib.sha256("\n".join(seen).encode()).hexdigest()[:24]


def _kept(python: Path, root: StateRoot | None) -> Path | None:
    name = stamp(python.parent.parent) if root is not None else ""
    if root is None or not name:
        return None
    return root.path / "servers" / "parsers" / f"{name}.json"


def _asked(python: Path, env: Mapping[str, str], timeout: float) -> Any:
    quiet = {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1"}
    result = run.run(
        [python, "-I", _CHILD],
        env={**env, "HF_HUB_OFFLINE": "1", **quiet},
        cwd="/",
        timeout=timeout,
    )
    with contextlib.suppress(IndexError, ValueError):
        return json.loads(result.out.splitlines()[-1])
    said = [redact.text(line) for line in result.err.splitlines()[-3:]]
    if result.timed_out:
        what = f"importing vLLM with {python} took more than {timeout:.0f} s"
    elif any("No module named 'vllm'" in line for line in said):
        what = f"there is no vLLM in {python.parent.parent}"
    else:
        what = f"vLLM cannot be imported with {python}"
    raise CannotError(
        what,
        details=said,
        usual="A server of this environment would not start either.",
        hint=f"{shlex.quote(str(python))} -I -c 'import vllm'",
    )


def _deciding(environment: Path) -> Iterator[Path]:
    for site in sorted(environment.glob("lib/python3*/site-packages")):
        for info in sorted(site.glob("*vllm*.dist-info")):
            yield from (info / "METADATA", info / "RECORD", info / "direct_url.json")
        for folder in (site, *_added(site)):
            for pattern in _DECIDING:
                yield from sorted((folder / "vllm").glob(pattern))


def _added(site: Path) -> Iterator[Path]:
    """Yield folders that lines of .pth files put on the path, as editable installs."""
    for file in sorted(site.glob("*.pth")):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            for line in file.read_text(encoding="utf-8").splitlines():
                if line.startswith("/"):
                    yield Path(line.strip())
    for info in sorted(site.glob("*vllm*.dist-info")):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            address = json.loads((info / "direct_url.json").read_text()).get("url", "")
            if address.startswith("file:///"):
                yield Path(address.removeprefix("file://"))


def _stat(path: Path) -> Iterator[os.stat_result]:
    with contextlib.suppress(OSError):
        yield path.stat()
