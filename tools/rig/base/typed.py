# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What people type, brought into a form that Invoke's parser takes."""

from __future__ import annotations

from collections.abc import Collection


def words_as_flags(
    words: list[str], task: str, flag: str, with_value: Collection[str]
) -> list[str]:
    """Turn the plain words behind a task into a repeated flag.

    Invoke's tasks take no list of words, and it takes a single ``-``, by which people
    mean standard input, for a flag.

    Parameters
    ----------
    words
        The command line behind Invoke's own options.
    task
        The task whose words these are; it is the last one of the line.
    flag
        The flag that each word becomes.
    with_value
        The task's flags whose next word is their value.
    """
    if task not in words:
        return words
    behind = words.index(task) + 1
    out = words[:behind]
    is_value = False
    for word in words[behind:]:
        plain = word == "-" or not word.startswith("-")
        out.append(f"{flag}={word}" if plain and not is_value else word)
        is_value = word in with_value
    return out
