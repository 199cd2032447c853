# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A folder with a model: its configuration, its shards, and what is missing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import regex as re

from tools.rig.base.errors import UsageError, quoted
from tools.rig.serve import documents, headers
from tools.rig.serve.foreign import shown
from tools.rig.serve.headers import UNREAD, Shard, Tensor
from tools.rig.serve.problem import Problem as Problem

INDEX = "model.safetensors.index.json"
QUANTISATIONS = ("hf_quant_config.json", "quantize_config.json", "quant_config.json")
"""Where quantised models of older tools say what they are, beside config.json."""

_NUMBERED = re.compile(r"^(?P<stem>.+)-(?P<n>\d{5})-of-(?P<all>\d{5})\.safetensors$")


@dataclass(frozen=True)
class ModelFolder:
    """What a folder holds; ``tensors`` are those that the model is made of.

    ``format`` is ``safetensors``, ``pickle``, ``gguf`` or ``none``; only of the first
    the tensors are known.
    """

    path: Path
    config: Mapping[str, Any]
    quantisation: Mapping[str, Any]
    shards: tuple[Shard, ...]
    format: str
    problems: tuple[Problem, ...] = ()
    tensors: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """The size of all tensors in the files."""
        return sum(tensor.bytes for tensor in self.tensors.values())

    @property
    def errors(self) -> tuple[Problem, ...]:
        """The problems that a server would fail with."""
        return tuple(p for p in self.problems if p.level == "error")


def read(path: Path) -> ModelFolder:
    """Return what a model's folder holds.

    Only JSON files and the headers of shards are read, never the data and never a
    pickle.

    Raises
    ------
    UsageError
        When there is no such folder (or GGUF file).
    """
    try:
        names = sorted(os.listdir(path))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        if path.suffix == ".gguf" and path.is_file():
            return ModelFolder(path, {}, {}, (), "gguf", (_gguf(path.name),))
        raise UsageError(
            f"there is no model folder at {path}",
            usual="Models are served from a folder on this machine; a name of a hub "
            "is downloaded first.",
            hint=f"ls -ld {quoted(path)}",
        ) from None
    except OSError as exc:
        raise UsageError(
            f"cannot read the model folder {path}: {exc.strerror or exc}",
            hint=f"ls -ld {quoted(path)}",
        ) from None
    problems: list[Problem] = []
    config = _config(path, names, problems)
    shards, kind = _weights(path, names, problems)
    problems += documents.tokenizers(path, names)
    tensors = {t.name: t for shard in shards for t in shard.tensors}
    quantisation = _quantisation(path, names, config, problems)
    return ModelFolder(
        path, config, quantisation, shards, kind, tuple(problems), tensors
    )


def _config(path: Path, names: list[str], problems: list[Problem]) -> dict[str, Any]:
    if "config.json" in names:
        found = documents.read(path / "config.json", problems)
        if not problems and not (found.get("architectures") or found.get("model_type")):
            problems.append(
                Problem(
                    f"{path / 'config.json'} names neither architectures nor "
                    "model_type",
                    f"cat {quoted(path / 'config.json')}",
                )
            )
        return found
    if "adapter_config.json" in names:
        what = f"{path} holds a LoRA adapter, not a model"
    elif "params.json" in names:
        what = f"{path} has only a params.json (Mistral's own format), no config.json"
    else:
        what = f"no config.json in {path}"
    problems.append(Problem(what, f"ls {quoted(path)}"))
    return {}


def _quantisation(
    path: Path, names: list[str], config: Mapping[str, Any], problems: list[Problem]
) -> dict[str, Any]:
    text = config.get("text_config")
    for place in (config, text if isinstance(text, dict) else {}):
        # one key is the loader's, the other that of llm-compressor
        for key in ("quantization_config", "compression_config"):
            found = place.get(key)
            if isinstance(found, dict) and found:
                return found
    for name in QUANTISATIONS:
        if name in names:
            method = {
                "hf_quant_config.json": "modelopt",
                "quantize_config.json": "gptq",
            }
            beside = documents.read(path / name, problems)
            return {"quant_method": method.get(name, "awq"), **beside}
    return {}


def _weights(
    path: Path, names: list[str], problems: list[Problem]
) -> tuple[tuple[Shard, ...], str]:
    index: dict[str, str] = {}
    if INDEX in names:
        before = len(problems)
        mapped = documents.read(path / INDEX, problems).get("weight_map")
        mapped = mapped if isinstance(mapped, dict) else {}
        index = {k: v for k, v in mapped.items() if isinstance(v, str)}
        if len(problems) == before and (not index or len(index) < len(mapped)):
            file = path / INDEX
            problems.append(
                Problem(
                    f"weight_map of {file} does not name a file for each tensor",
                    f"cat {quoted(file)}",
                )
            )
        wanted = sorted(set(index.values()))
        missing = [name for name in wanted if name not in names]
    else:
        wanted = [n for n in names if n.endswith(".safetensors")]
        if len(wanted) > 1:
            # the same weights once more, in the format of Mistral's own program
            wanted = [n for n in wanted if not n.startswith("consolidated")] or wanted
        missing = sorted(_numbers_missing(wanted))
    if missing:
        some = ", ".join(map(shown, missing[:3]))
        some += ", ..." if len(missing) > 3 else ""
        problems.append(
            Problem(
                f"{len(missing)} shard(s) of {path} missing: {some}",
                f"ls -l {quoted(path)}, then download what is missing",
            )
        )
    here = [path / name for name in wanted if name in names]
    # on a disk behind a network each header costs a round trip
    with ThreadPoolExecutor(max_workers=8) as pool:
        shards = tuple(pool.map(headers.read, here))
    problems += [
        Problem(f"shard {s.file}: {s.problem}", _help(path, s))
        for s in shards
        if s.problem
    ]
    problems += _against_index(index, shards)
    if shards or missing:
        return shards, "safetensors"
    return (), _other_format(path, names, problems)


def _against_index(
    index: Mapping[str, str], shards: tuple[Shard, ...]
) -> list[Problem]:
    held = {(t.name, t.file) for s in shards for t in s.tensors}
    whole = {s.file for s in shards if s.tensors}
    lost: dict[str, list[str]] = {}
    for name, file in index.items():
        if file in whole and (name, file) not in held:
            lost.setdefault(file, []).append(name)
    return [
        Problem(
            f"shard {file} lacks {len(gone)} tensor(s) that {INDEX} says it has, "
            f"{shown(gone[0])} first: index and shards are not of one download",
            "download the model again",
        )
        for file, gone in lost.items()
    ]


def _other_format(path: Path, names: list[str], problems: list[Problem]) -> str:
    ggufs = [n for n in names if n.endswith(".gguf")]
    if ggufs:
        problems.append(_gguf(ggufs[0]))
        return "gguf"
    if any(n.endswith((".bin", ".pt", ".pth")) for n in names):
        problems.append(
            Problem(
                f"{path} holds its weights as pickles: their sizes are not read, since "
                "reading a pickle runs what is in it",
                "convert it to safetensors",
                "unknown",
            )
        )
        return "pickle"
    problems.append(Problem(f"no weights in {path}", f"ls -l {quoted(path)}"))
    return "none"


def _gguf(name: str) -> Problem:
    return Problem(
        f"{name} is a GGUF file: what it needs is not known from here",
        "use the safetensors version of the model",
        "unknown",
    )


def _numbers_missing(names: list[str]) -> set[str]:
    missing: set[str] = set()
    for found in filter(None, map(_NUMBERED.match, names)):
        stem, count = found["stem"], int(found["all"])
        # a name may claim any number; what is listed stays short
        for n in range(1, min(count, 9999) + 1):
            missing.add(f"{stem}-{n:05}-of-{found['all']}.safetensors")
    return missing - set(names)


def _help(path: Path, shard: Shard) -> str:
    if "Git LFS" in shard.problem:
        return f"git -C {quoted(path)} lfs pull"
    look = f"ls -lL {quoted(path / shard.file)}"
    # what is closed to us is not broken
    return (
        look if shard.problem.startswith(UNREAD) else f"{look}, then download it again"
    )
