# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Say why something failed: from logs that are named, or from the last failed build."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.rig.base.console import Console
from tools.rig.base.errors import ExitCode, UsageError
from tools.rig.diagnose import examine, words
from tools.rig.diagnose.examine import Examined

_BAD_ENDS = frozenset({"failed", "died"})


@dataclass(frozen=True)
class Diagnosis:
    """What the logs say, the one that explains most first, in one language."""

    logs: tuple[Examined, ...]
    lang: str
    facts: tuple[Mapping[str, str], ...]

    @property
    def exit_code(self) -> ExitCode:
        """0 nothing wrong, 1 a cause was found, 5 not recognised."""
        return self.logs[0].exit_code

    def to_json(self) -> dict[str, Any]:
        """Return the first log's document; others follow under ``others``."""
        first, *others = (
            {**words.as_json(one.judgement, self.lang, facts), "log": one.log}
            for one, facts in zip(self.logs, self.facts, strict=True)
        )
        return {**first, "others": others} if others else first


def diagnose(
    console: Console,
    names: Sequence[str],
    records: Sequence[Mapping[str, Any]],
    *,
    lang: str = "",
    env: Mapping[str, str] | None = None,
) -> Diagnosis:
    """Judge logs and say what they say.

    Parameters
    ----------
    names
        Files, or ``-`` for standard input. Without any, the log of the last build
        that failed.
    records
        All builds, newest first: where the logs of this machine are known from.
    lang
        ``en`` or ``zh``; what the locale asks for when empty.

    Raises
    ------
    UsageError
        A log cannot be read, the language is not known, or there is no failed build.
    """
    env = os.environ if env is None else env
    given = lang
    # as locales name them: zh_CN.UTF-8
    lang = lang.lower().partition("_")[0].partition("-")[0]
    if lang and lang not in words.LANGUAGES:
        raise UsageError(
            f"--lang {given}: there is {' and '.join(words.LANGUAGES)}",
            hint="invoke diagnose --lang zh",
        )
    lang = lang or words.language_of(env)
    logs = examine.logs(list(names) or [_last_failed(console, records)])
    facts = tuple(_facts(one.log, records) for one in logs)
    for one, known in zip(logs, facts, strict=True):
        if len(logs) > 1:
            console.say(f"== {one.log}")
        for line in words.as_text(one.judgement, lang, known, one.lines):
            console.say(line)
    return Diagnosis(tuple(logs), lang, facts)


def _last_failed(console: Console, records: Sequence[Mapping[str, Any]]) -> str:
    for number, record in enumerate(records):
        if record.get("result") in _BAD_ENDS and Path(record.get("log", "")).is_file():
            log = str(record["log"])
            later = f"; {number} later ones did not" if number else ""
            console.say(f"the last build that failed{later}: {log}")
            return log
        if record.get("result") in _BAD_ENDS and record.get("error"):
            # it ended before there was anything to log
            raise UsageError(
                f"the last build that failed has no log; it said: {record['error']}",
                hint="invoke diagnose LOG",
            )
    raise UsageError(
        "no failed build is recorded here" if records else "no build is recorded here",
        usual="Without a file, the log of the last build that failed is diagnosed.",
        hint="invoke diagnose LOG, or COMMAND 2>&1 | invoke diagnose -",
    )


def _facts(log: str, records: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the facts of this machine where the log is from here, else none."""
    for record in records:
        if record.get("log") == log:
            return machine_facts(record)
    return {}


def machine_facts(record: Mapping[str, Any]) -> dict[str, str]:
    """Return what fills the placeholders of the catalogue, from a build's record."""
    plan = record.get("plan")
    plan = plan if isinstance(plan, Mapping) else {}
    planned = plan.get("env")
    planned = planned if isinstance(planned, Mapping) else {}
    log = record.get("log")
    ran = _ran(record, plan, planned)
    known = {
        "venv": record.get("environment"),
        "checkout": record.get("checkout"),
        "cuda_home": planned.get("CUDA_HOME"),
        "cxx": planned.get("CUDAHOSTCXX"),
        # half as many compiles are what is worth a try when memory did not suffice
        "jobs": max(1, ran // 2) if ran else None,
        "ran": ran,
        "state": str(Path(str(log)).parent.parent) if log else None,
        "tmp": planned.get("TMPDIR"),
    }
    return {name: str(value) for name, value in known.items() if value}


def _ran(
    record: Mapping[str, Any], plan: Mapping[str, Any], planned: Mapping[str, Any]
) -> int | None:
    """Return how many compiles ran at once, or at least were allowed to.

    ninja's own number is none of it where the admission decides: it lets more wait.
    """
    told = record.get("admission")
    told = told if isinstance(told, Mapping) else {}
    most = planned.get("MAX_JOBS")
    allowed = _count(plan.get("compiles_at_once"))
    if allowed is None and isinstance(most, str) and most.isdigit():
        allowed = _count(int(most))
    known = (_count(told.get("at_once")), allowed)
    return min((n for n in known if n is not None), default=None)


def _count(number: object) -> int | None:
    return number if isinstance(number, int) and number > 0 else None
