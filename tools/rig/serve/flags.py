# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Words for vLLM, read as its own parser would read them, before anything is started.

The rules are those of argparse and of vLLM's ``FlexibleArgumentParser``: underscores
for dashes, unambiguous beginnings, ``-O3``, and ``--option.key value`` for a part of an
option that takes JSON.
"""

from __future__ import annotations

import difflib
import json
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import regex as re

from tools.rig.base import redact
from tools.rig.serve.parser import Option, Parser
from tools.rig.serve.problem import Problem

ALIKE = 0.6
"""How alike a value must be to be suggested, from 0 to 1."""

NAMES_ALIKE = 0.7
"""How alike a name must be, without what all names begin with. Of vLLM 0.32's 428 flags
the nearest to an unrelated word is 0.67 at most, to one that is mistyped 0.74 or more.
"""

_ASKED = {
    "--help": "serve --help",
    "-h": "serve --help",
    "--version": "--version",
    "-v": "--version",
}
"""What starts no server, and what it is the answer of."""

KNOWN_WRONG = {
    "--use-v2-block-manager": "gone since vLLM 0.10.2, and without effect long before",
    "--enable-nvlink-optimization": "no version of vLLM ever had it: NCCL uses NVLink "
    "by itself",
    "--ngram-prompt-learning": "no version of vLLM ever had it: speculation is set by "
    "--speculative-config",
    "--ngram-prompt-lookup-max": "gone: speculation is set by --speculative-config",
    "--ngram-prompt-lookup-min": "gone: speculation is set by --speculative-config",
    "--speculative-model": "gone: speculation is set by --speculative-config",
    "--num-speculative-tokens": "gone: speculation is set by --speculative-config",
    "--task": "gone: --runner pooling for models that make no text",
}
"""Options of guides and of older versions, with what to know of them.

Where the installed vLLM does have one of them, its own parser counts.
"""

_NUMBER = re.compile(r"-\d+|-\d*\.\d+")
_HUMAN = re.compile(r"\d+(?:\.\d+)?[kmgt]|\d+[KMGT]|[+-]?\d+")


@dataclass(frozen=True)
class Given:
    """One option as typed; ``path`` is what stood behind a dot in its name.

    ``words`` are what it was typed with, but the name is written out, and with dashes:
    what masks secrets, or looks for an option in a command, goes by names, and with the
    next vLLM a beginning may mean two options. The words that were typed are ``count``
    from the index ``at`` on.
    """

    option: Option
    values: tuple[str, ...]
    words: tuple[str, ...]
    flag: str
    path: str = ""
    at: int = 0
    count: int = 0

    @property
    def value(self) -> str:
        """Its only value, or ""."""
        return self.values[0] if self.values else ""


@dataclass(frozen=True)
class Read:
    """Words as they were understood, and what is wrong with them."""

    given: tuple[Given, ...]
    problems: tuple[Problem, ...] = ()

    def last(self, dest: str) -> Given | None:
        """Return the one that counts of those with this destination."""
        found = [one for one in self.given if one.option.dest == dest and not one.path]
        return found[-1] if found else None

    def dests(self) -> frozenset[str]:
        """Return the destinations of all options that were typed."""
        return frozenset(one.option.dest for one in self.given)


def read(parser: Parser, words: Sequence[str]) -> Read:
    """Read words for ``vllm serve``; everything wrong with them is told at once."""
    given: list[Given] = []
    problems: list[Problem] = []
    at = 0
    while at < len(words):
        start = at
        word = words[at]
        at += 1
        if not _is_flag(word):
            # more than a secret option takes may be more of the secret
            secret = bool(given) and redact.is_secret_name(given[-1].option.name)
            problems.append(
                Problem(
                    f"{redact.MASK if secret else word} belongs to no option",
                    "options of vLLM begin with dashes; the model is named by --model",
                )
            )
            continue
        flag, sep, value, path = _taken_apart(word)
        option = _found(parser, flag)
        behind: list[str] = [value] if sep else []
        if isinstance(option, Problem):
            problems.append(option)
            # its value is no fault of its own
            if not sep and at < len(words) and not _is_flag(words[at]):
                at += 1
            continue
        if not sep:
            most = 1 if path or flag == "-O" else _most(option)
            while at < len(words) and len(behind) < most and not _is_flag(words[at]):
                behind.append(words[at])
                at += 1
        typed = tuple(words[start:at])
        if flag != "-O":
            fits = (name for name in option.flags if name.startswith(flag))
            whole = flag if flag in option.flags else next(fits)
            typed = (whole + word[len(flag) :], *typed[1:])
            flag = whole
        taken = Given(option, tuple(behind), typed, flag, path, start, at - start)
        wrong = _wrong(parser, taken)
        if wrong:
            problems.append(wrong)
        given.append(taken)
    return Read(tuple(given), tuple(problems))


def nearest(word: str, names: Iterable[str], count: int = 1) -> list[str]:
    """Return the names that are most like a word, the most alike first."""
    return difflib.get_close_matches(word, sorted(set(names)), count, ALIKE)


def nearest_name(name: str, names: Iterable[str], begin: str = "--") -> list[str]:
    """Return the name most like another; how all of them begin says nothing."""
    bare = {n.removeprefix(begin): n for n in names if n.startswith(begin)}
    found = difflib.get_close_matches(
        name.removeprefix(begin), sorted(bare), 1, NAMES_ALIKE
    )
    return [bare[one] for one in found]


def _taken_apart(word: str) -> tuple[str, str, str, str]:
    """Return name, equals sign, value and what stands behind a dot in the name."""
    if word.startswith("-O") and len(word) > 2:
        return "-O", "=", word[3:] if word[2] == "=" else word[2:], ""
    flag, sep, value = word.partition("=")
    name, _, path = flag.partition(".")
    if name.startswith("--"):
        name = "--" + name[2:].replace("_", "-")
    return name, sep, value, path


def _found(parser: Parser, flag: str) -> Option | Problem:
    name = "--optimization-level" if flag == "-O" and not parser.has("-O") else flag
    option = parser.by_flag.get(name)
    if option is not None:
        return option
    if name in _ASKED:
        return Problem(
            f"{flag} starts no server: vLLM itself is asked",
            f"{parser.command} {_ASKED[name]}",
        )
    begin = [f for f in parser.by_flag if f.startswith(name) and name[:2] == "--"]
    ours = {parser.by_flag[f].dest for f in begin}
    if len(begin) == 1 and len(name) > 2:
        return parser.by_flag[begin[0]]
    if len(ours) > 1 and len(name) > 2:
        return Problem(
            f"{flag} may be any of {', '.join(sorted(begin)[:4])}", "write it out"
        )
    alike = nearest_name(name, parser.by_flag)
    why = KNOWN_WRONG.get(name, "")
    return Problem(
        f"vLLM {parser.version} has no option {flag}" + (f": {why}" if why else ""),
        f"did you mean {alike[0]}?" if alike and not why else "leave it out",
    )


def _wrong(parser: Parser, taken: Given) -> Problem | None:
    option, count = taken.option, len(taken.values)
    shown = taken.flag + (f".{taken.path}" if taken.path else "")
    if taken.path:
        if option.kind not in ("json", "other"):
            return Problem(f"{taken.flag} has no parts: {shown}", f"{taken.flag} VALUE")
        return None if count else Problem(f"{shown} needs a value", f"{shown} VALUE")
    if option.nargs == 0 and count:
        return Problem(f"{shown} takes no value, not {taken.value}", shown)
    needs = 1 if option.nargs in (None, "+") else option.nargs
    if isinstance(needs, int) and count < needs:
        choices = parser.choices(option)
        one = f"one of {', '.join(choices)}" if choices else "VALUE"
        return Problem(f"{shown} needs a value", f"{shown} {one}")
    for value in taken.values:
        wrong = _wrong_value(parser, option, shown, value)
        if wrong:
            return wrong
    return None


def _wrong_value(
    parser: Parser, option: Option, shown: str, value: str
) -> Problem | None:
    if option.optional and value in ("", "None"):
        return None
    choices = parser.choices(option)
    said = value.upper() if option.choices is None and value != "auto" else value
    if choices is not None and said not in choices:
        alike = nearest(said, choices)
        return Problem(
            f"{shown} cannot be {value} in vLLM {parser.version}",
            f"{shown} {alike[0]}" if alike else f"one of {', '.join(choices)}",
        )
    wanted = _unlike(option.kind, value)
    if not wanted:
        return None
    return Problem(
        f"{shown} wants {wanted}, not {value}", f"{shown} {_EXAMPLE[wanted]}"
    )


_EXAMPLE = {
    "a whole number": "1",
    "a number": "0.9",
    "JSON": shlex.quote('{"KEY": "VALUE"}'),
    "a whole number (also 8k or 8K)": "8192",
}


def _unlike(kind: str, value: str) -> str:
    """Return what a value should have been; "" when it is that or cannot be told."""
    if kind.startswith("human_readable_int"):
        auto = kind.endswith("auto") and value.strip().lower() in ("auto", "-1")
        if auto or _HUMAN.fullmatch(value.strip()):
            return ""
        return "a whole number (also 8k or 8K)"
    try:
        if kind == "int":
            int(value)
        elif kind == "float":
            float(value)
        elif kind == "json":
            # vLLM lets numbers have a unit inside of JSON
            json.loads(re.sub(r"\b(\d+(?:\.\d+)?)[kKmMgGtT]\b", r"\1", value))
    except ValueError:
        return {"int": "a whole number", "float": "a number"}.get(kind, "JSON")
    return ""


def _most(option: Option) -> float:
    if option.nargs in ("+", "*"):
        return float("inf")
    if option.nargs in (None, "?"):
        return 1
    return option.nargs if isinstance(option.nargs, int) else 0


def _is_flag(word: str) -> bool:
    """Say whether argparse would take a word for an option."""
    if not word.startswith("-") or word == "-" or _NUMBER.fullmatch(word):
        return False
    return " " not in word.partition("=")[0]
