# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Options of vLLM in layers, of which a later one wins."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from tools.rig.serve import flags
from tools.rig.serve.flags import Given, Read
from tools.rig.serve.parser import Parser
from tools.rig.serve.presets import Preset

_PATHS = frozenset(
    {
        "chat_template",
        "config",
        "hf_config_path",
        "log_config_file",
        "reasoning_parser_plugin",
        "tokenizer",
        "tool_parser_plugin",
    }
)
"""Options whose value may be a path from where the user stands."""


def of_preset(parser: Parser, preset: Preset, limit: int) -> tuple[Read, list[str]]:
    """Return a preset's options but for those that cannot be here, and what is left.

    Parameters
    ----------
    limit
        The model's own context in tokens, 0 where it does not say.
    """
    kept: list[Given] = []
    notes: list[str] = []
    for words in _options(preset.words_for(parser)):
        read = flags.read(parser, words)
        if read.problems:
            what = f"{shlex.join(words)} of the preset {preset.name}"
            notes.append(f"left out: {what}: {read.problems[0].what}")
            continue
        given = read.given[0]
        too_long = given.option.dest == "max_model_len" and given.value.isdecimal()
        if too_long and 0 < limit < int(given.value):
            notes.append(f"the model's own context of {limit} tokens, not more")
            continue
        kept.append(given)
    return Read(tuple(kept)), notes


def _options(words: Sequence[str]) -> list[list[str]]:
    """Split the words of a preset into options with their values."""
    found: list[list[str]] = []
    for word in words:
        if word.startswith("--") or not found:
            found.append([word])
        else:
            found[-1].append(word)
    return found


def merged(layers: Sequence[Read]) -> Read:
    """Return all options; those of a later layer take the place of earlier ones."""
    kept: list[Given] = []
    for layer in layers:
        dests = layer.dests()
        kept = [given for given in kept if given.option.dest not in dests]
        kept += layer.given
    return Read(tuple(kept))


def absolute(rest: Read, cwd: Path) -> Read:
    """Make paths absolute: a server stands elsewhere than its user."""
    found = []
    for given in rest.given:
        path = cwd / given.value
        if given.option.dest in _PATHS and given.value and path.exists():
            words = (given.flag, os.fspath(path))
            given = Given(given.option, (os.fspath(path),), words, given.flag)
        found.append(given)
    return Read(tuple(found))
