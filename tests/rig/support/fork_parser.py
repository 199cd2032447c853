# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a vLLM checkout's own parser takes, read in its sources and never imported.

The fork cannot be imported where it is not built. Its options stand in two files as
calls and as fields of classes, which is all that is read here.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.rig.serve.parser import Option, Parser

_HUMAN = ("max_num_batched_tokens", "kv_cache_memory_bytes")
_AT_HOME = Path(__file__).parents[3]
# read now: unit tests do not see our own variables
_NAMED = os.environ.get("ONECAT_TEST_FORK")


def source() -> Path | None:
    """Return a checkout of the fork: ``ONECAT_TEST_FORK``, or the one we lie in."""
    places = [Path(_NAMED)] if _NAMED else []
    for place in (*places, _AT_HOME):
        if (place / "vllm/v1/attention/backends/flash_attn_v100.py").is_file():
            return place
    return None


def read(checkout: Path) -> Parser:
    """Return the parser of ``vllm serve`` in a checkout."""
    arguments = _tree(checkout / "vllm/engine/arg_utils.py")
    server = _tree(checkout / "vllm/entrypoints/openai/cli_args.py")
    literals = {
        name: values
        for file in ("config/cache.py", "config/model.py")
        for name, values in _literals(_tree(checkout / "vllm" / file))
    }
    fields = dict(_fields(arguments)) | dict(_fields(server))
    found = [
        _option(flags, fields.get(_dest(flags), "str"), literals, stored)
        for tree in (arguments, server)
        for flags, stored in _calls(tree)
    ]
    seen = {option.dest for option in found}
    # the server's own are made from the fields of its classes
    found += [
        _option((f"--{name.replace('_', '-')}",), kind, literals, "")
        for name, kind in _fields(server)
        if name not in seen
    ]
    return Parser(
        version="1Cat",
        options=tuple(found),
        device="cuda",
        backends=tuple(
            _members(_tree(checkout / "vllm/v1/attention/backends/registry.py"))
        ),
        variables=frozenset(_variables(_tree(checkout / "vllm/envs.py"))),
    )


def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def _calls(tree: ast.Module) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the names of each option that is added, and the action, if one is said."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr != "add_argument":
                continue
            words = [a.value for a in node.args if isinstance(a, ast.Constant)]
            flags = tuple(str(word) for word in words if str(word).startswith("-"))
            said = {k.arg: k.value for k in node.keywords}.get("action")
            action = said.value if isinstance(said, ast.Constant) else ""
            if flags:
                yield flags, str(action)


def _fields(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the fields of classes and how they are annotated."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name.endswith("Args"):
            for line in node.body:
                if isinstance(line, ast.AnnAssign) and isinstance(
                    line.target, ast.Name
                ):
                    yield line.target.id, ast.unparse(line.annotation)


def _literals(tree: ast.Module) -> Iterator[tuple[str, tuple[str, ...]]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript):
            values = _values(node.value)
            if values and isinstance(node.targets[0], ast.Name):
                yield node.targets[0].id, values


def _values(node: ast.Subscript) -> tuple[str, ...]:
    if ast.unparse(node.value) != "Literal":
        return ()
    inner = node.slice
    parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    return tuple(str(p.value) for p in parts if isinstance(p, ast.Constant))


def _members(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == "AttentionBackendEnum":
            for line in node.body:
                if isinstance(line, ast.Assign) and isinstance(
                    line.targets[0], ast.Name
                ):
                    yield line.targets[0].id


def _variables(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict) and len(node.keys) > 100:
            for key in node.keys:
                if isinstance(key, ast.Constant):
                    yield str(key.value)


def _option(
    flags: tuple[str, ...], kind: str, literals: dict[str, tuple[str, ...]], action: str
) -> Option:
    """Return an option by how its field is annotated, as ``get_kwargs`` does."""
    dest = _dest(flags)
    what: dict[str, Any] = {"kind": "other"}
    words = kind.replace("|", " ").split()
    if action.startswith("store_") or "bool" in words:
        what["nargs"] = 0
        flags = (*flags, f"--no-{dest.replace('_', '-')}")
    elif kind in literals:
        what["choices"] = literals[kind]
    elif "list[" in kind:
        what["nargs"] = "+"
    elif dest == "max_model_len":
        what["kind"] = "human_readable_int_or_auto"
    elif dest in _HUMAN:
        what["kind"] = "human_readable_int"
    elif "dict[" in kind:
        what["kind"] = "json"
    elif "int" in words or "float" in words:
        what["kind"] = "int" if "int" in words else "float"
    return Option(flags=flags, dest=dest, **what)


def _dest(flags: tuple[str, ...]) -> str:
    long = next((flag for flag in flags if flag.startswith("--")), flags[0])
    return long.lstrip("-").replace("-", "_")
