# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Prints what an installed vLLM's own parser and list of variables know, as JSON.

Runs as a plain script with the environment's Python, isolated, and imports nothing of
ours: ``python -I parser_child.py``. Only the last line of stdout is its answer.
"""

from __future__ import annotations

import argparse
import importlib
import json
import mmap
import os
import sys
from pathlib import Path
from typing import Any

SCHEMA = 1

_BACKENDS = ("vllm.v1.attention.backends.registry", "vllm.attention.backends.registry")
_BESIDE = ("vllm", "flash_attn_v100", "flash_attn_v100_cuda", "flash_qla")
"""Packages whose files ask for variables that begin with VLLM_."""


def kind_of(convert: Any, depth: int = 0) -> tuple[str, bool]:
    """Return the name of what turns a word into a value, and whether None may be said.

    vLLM wraps its converters in functions; what is wrapped lies in their closure.
    """
    if convert is None or depth > 4:
        return ("str" if convert is None else "other"), False
    if convert is json.loads:
        return "json", False
    name = getattr(convert, "__qualname__", type(convert).__name__)
    if "parse_dataclass" in name:
        return "json", False
    code = getattr(convert, "__code__", None)
    cells = getattr(convert, "__closure__", None) or ()
    if code is not None:
        for free, cell in zip(code.co_freevars, cells):
            if free == "return_type":
                inner, _ = kind_of(cell.cell_contents, depth + 1)
                return inner, "optional_type" in name
    known = ("str", "int", "float", "human_readable_int", "human_readable_int_or_auto")
    return (name if name in known else "other"), False


def option_of(action: argparse.Action) -> dict[str, Any]:
    """Return one option as plain data."""
    kind, optional = kind_of(action.type)
    choices, default = action.choices, action.default
    plain = isinstance(default, (bool, int, float, str))
    return {
        "flags": list(action.option_strings),
        "dest": action.dest,
        "kind": kind,
        "optional": optional,
        "nargs": action.nargs,
        "default": default if plain else None,
        "choices": None if choices is None else [str(one) for one in choices],
    }


def parser() -> tuple[Any, str]:
    """Return the parser of ``vllm serve``, and the kind of device that it found."""
    platforms: Any = importlib.import_module("vllm.platforms")
    device = ""
    try:
        # without a card the kind of device is not known, and its default is asked
        if platforms.current_platform.is_unspecified():
            cpu = importlib.import_module("vllm.platforms.cpu")
            platforms.current_platform = cpu.CpuPlatform()
        else:
            device = str(platforms.current_platform.device_type)
    except Exception:
        # other versions have other names; then the parser says what it lacks
        pass
    maker = _attribute(
        "FlexibleArgumentParser", "vllm.utils.argparse_utils", "vllm.utils"
    )
    try:
        serve = importlib.import_module("vllm.entrypoints.cli.serve")
    except ImportError:
        make = _attribute("make_arg_parser", "vllm.entrypoints.openai.cli_args")
        return make(maker()), device
    made = serve.ServeSubcommand().subparser_init(maker().add_subparsers())
    return made, device


def _attribute(name: str, *modules: str) -> Any:
    """Return what a module has by that name; it moved from one to another."""
    for module in modules[:-1]:
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue
    return getattr(importlib.import_module(modules[-1]), name)


def backends() -> list[str]:
    """Return the names of the attention backends; none where there is no list."""
    for name in _BACKENDS:
        try:
            found = importlib.import_module(name)
        except ImportError:
            continue
        for attribute in ("AttentionBackendEnum", "_Backend"):
            names = getattr(getattr(found, attribute, None), "__members__", None)
            if names:
                return sorted(names)
    return []


def variables() -> tuple[list[str], list[str]]:
    """Return the variables of ``vllm.envs``, and those that only the files name."""
    envs = importlib.import_module("vllm.envs")
    listed = sorted(getattr(envs, "environment_variables", {}))
    top = Path(str(envs.__file__)).resolve().parent.parent
    named: set[str] = set()
    try:
        regex = importlib.import_module("regex")
    except ImportError:
        return listed, []
    pattern = regex.compile(rb"VLLM_[A-Z0-9_]+")
    for package in _BESIDE:
        for file in sorted((top / package).rglob("*")) + sorted(
            top.glob(f"{package}*")
        ):
            if file.suffix in (".py", ".so") and file.is_file():
                named.update(word.decode() for word in _words(file, pattern))
    return listed, sorted(named - set(listed))


def _words(file: Path, pattern: Any) -> set[bytes]:
    try:
        with open(file, "rb") as stream:
            if not os.fstat(stream.fileno()).st_size:
                return set()
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return {*pattern.findall(data)}
    except OSError:
        return set()


def main() -> int:
    """Print the answer."""
    # what vLLM logs while it is imported must not be mixed with it
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    vllm = importlib.import_module("vllm")
    made, device = parser()
    actions = [a for a in made._actions if not isinstance(a, argparse._HelpAction)]
    listed, named = variables()
    answer = {
        "schema": SCHEMA,
        "version": str(getattr(vllm, "__version__", "")),
        "device": device,
        "options": [option_of(action) for action in actions if action.option_strings],
        "backends": backends(),
        "variables": listed,
        "named": named,
    }
    out.write("\n" + json.dumps(answer) + "\n")
    out.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
