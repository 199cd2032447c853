# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Names in a config.json: those that cannot be, and those that nobody here knows.

What is known is ``tools/rig/data/model_names.json``, where its source is named. A name
that is not in it may be newer, so that only the server itself can say.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import regex as re

from tools.rig.base.errors import quoted
from tools.rig.serve.foreign import shown
from tools.rig.serve.problem import Problem

DATA = Path(__file__).resolve().parents[1] / "data" / "model_names.json"

_DTYPE = re.compile(
    r"(?:torch\.)?(?:auto|half|float|double|bfloat16|bool|b?float\d+\w*|u?int\d+|"
    r"complex\d+|q?u?int\d+x?\d*|short|int|long)"
)
"""Types of numbers, as torch has them."""

_TEXTS = ("text_config", "llm_config", "language_config", "thinker_config")
_QUANTISED = ("quantization_config", "compression_config")


@functools.cache
def known(kind: str) -> frozenset[str]:
    """Return the names that are known.

    Parameters
    ----------
    kind
        ``architectures`` or ``model_types``.
    """
    with open(DATA, encoding="utf-8") as stream:
        return frozenset(json.load(stream)[kind])


def problems(config: Mapping[str, Any], file: Path) -> Iterator[Problem]:
    """Yield what is wrong, or not known, of the names in a configuration.

    Parameters
    ----------
    config
        What the file holds.
    file
        Its path.
    """
    hint = f"cat {quoted(file)}"
    inner = [config.get(key) for key in _TEXTS]
    for place in (config, *(one for one in inner if isinstance(one, Mapping))):
        for what in _wrong(place):
            yield Problem(f"{what} in {file}", hint)
    named = config.get("architectures")
    names = [n for n in named if isinstance(n, str)] if isinstance(named, list) else []
    # code that the model brings may know names that nobody else does
    if config.get("auto_map"):
        return
    if names and not known("architectures").intersection(names):
        some = ", ".join(map(shown, names[:3]))
        yield Problem(
            f"no model class {some} is known here: vLLM may have none either",
            hint,
            "unknown",
        )
    kind = config.get("model_type")
    if isinstance(kind, str) and kind and kind not in known("model_types"):
        yield Problem(
            f"the model_type {shown(kind)} is not known here: vLLM may not know it "
            "either",
            hint,
            "unknown",
        )


def _wrong(place: Mapping[str, Any]) -> Iterator[str]:
    named = place.get("architectures")
    # what is no list at all is told where the layers are counted
    for name in named if isinstance(named, list) else ():
        if not isinstance(name, str):
            yield f"{shown(name)} among the architectures is no name"
            break
    kind = place.get("model_type")
    if kind is not None and not isinstance(kind, str):
        yield f"the model_type {shown(kind)} is no name"
    for key in ("dtype", "torch_dtype"):
        value = place.get(key)
        # a model of several parts may have a table of types
        if value is None or isinstance(value, Mapping):
            continue
        if not isinstance(value, str) or not _DTYPE.fullmatch(value):
            yield f"the {key} {shown(value)} is no type of numbers"
    for key in _QUANTISED:
        value = place.get(key)
        if value is not None and not isinstance(value, Mapping):
            yield f"{key} is {shown(value)}, not a table with a quant_method,"
