# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A judgement in words: for people in their language, and as JSON."""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tools.rig.base import redact
from tools.rig.diagnose.entries import Entry, Role, Words
from tools.rig.diagnose.excerpt import OFTEN
from tools.rig.diagnose.judge import Finding, Judgement, Verdict
from tools.rig.diagnose.match import Hit

LANGUAGES = ("en", "zh")

EVIDENCE = 300
"""Characters of the decisive line that are shown."""

GENERIC = {
    "venv": "VENV",
    "checkout": "1Cat-vLLM",
    "cuda_home": "/usr/local/cuda-12.8",
    "cxx": "/usr/bin/g++-13",
    "jobs": "2",
    "state": "STATE_FOLDER",
    "tmp": "/var/tmp",
}
"""What stands for a machine's facts when the log comes from another one."""

TOO_LARGE = frozenset(
    {"compiler-out-of-memory", "compile-killed-silently", "linker-out-of-memory"}
)
"""Entries whose cure is fewer compiles at once, which one alone cannot be."""

_TEXTS = {
    "en": {
        "alone": "No more than one compile ran at once, and fewer there cannot be: "
        "give the machine or the container more memory, or swap, or close what holds "
        "it: `$ free -h`",
        "cause": "ROOT CAUSE",
        "also": "ALSO WRONG",
        "consequence": "FOLLOWS FROM IT",
        "consequence-alone": "A CONSEQUENCE, ITS CAUSE IS NOT IN THIS LOG",
        "harmless": "HARMLESS",
        "why": "why",
        "do": "do",
        "check": "check",
        "line": "line {n}",
        "times": "{n} times",
        "sure": "sure",
        "high": "very",
        "medium": "fairly",
        "low": "not very",
        "source": "source",
        "healthy": "nothing wrong in {lines} lines",
        "unknown": "not recognised: no entry of the catalogue explains this log",
        "telling": "the most telling lines",
        "empty": "the log is empty",
        "bundle": "hint: invoke bundle",
    },
    "zh": {
        "alone": "当时只有一个编译在运行，无法再减少：请给机器或容器更多内存或交换空间"
        "，或关闭占用内存的程序：`$ free -h`",
        "cause": "根本原因",
        "also": "另一处错误",
        "consequence": "由此引起",
        "consequence-alone": "这只是后果,日志中没有它的原因",
        "harmless": "无害",
        "why": "原因",
        "do": "解决",
        "check": "验证",
        "line": "第 {n} 行",
        "times": "共 {n} 次",
        "sure": "把握",
        "high": "高",
        "medium": "中",
        "low": "低",
        "source": "来源",
        "healthy": "{lines} 行日志,没有发现问题",
        "unknown": "无法识别:现有条目都不能解释这份日志",
        "telling": "最有线索的几行",
        "empty": "日志是空的",
        "bundle": "hint: invoke bundle",
    },
}


def language_of(env: Mapping[str, str]) -> str:
    """Return the language that the locale variables ask for, among those we have."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if env.get(name):
            return "zh" if env[name].lower().startswith("zh") else "en"
    return "en"


def filled(hit: Hit, lang: str, facts: Mapping[str, str]) -> Words:
    """Return an entry's words with what the log and the machine say filled in.

    Parameters
    ----------
    facts
        What stands in the braces of the catalogue; ``ran`` is how many compiles ran at
        once, where that is known: nobody is told to run as many again.
    """
    words = hit.entry.words[lang]
    fixes = words.fix
    if facts.get("ran") == "1" and hit.entry.id in TOO_LARGE:
        kept = [line for line in fixes if "--jobs" not in line]
        fixes = (*kept, _TEXTS[lang]["alone"])
    values = _Values({**GENERIC, **facts, **hit.groups})

    def fill(text: str) -> str:
        return string.Formatter().vformat(text, (), values)

    return Words(
        fill(words.title),
        fill(words.cause),
        tuple(fill(line) for line in fixes),
        fill(words.check),
    )


class _Values(dict[str, str]):
    """Names without a value stand for themselves."""

    def __missing__(self, name: str) -> str:
        return f"<{name}>"


def as_json(
    judgement: Judgement, lang: str, facts: Mapping[str, str]
) -> dict[str, Any]:
    """Return the document that ``--json`` prints."""
    document: dict[str, Any] = {
        "verdict": judgement.verdict.value,
        "findings": [_finding(one, lang, facts) for one in judgement.findings],
    }
    if judgement.telling:
        document["telling"] = [
            {"line": line.number, "text": redact.text(line.text[:EVIDENCE])}
            for line in judgement.telling
        ]
    return document


def _finding(one: Finding, lang: str, facts: Mapping[str, str]) -> dict[str, Any]:
    entry: Entry = one.hit.entry
    words = asdict(filled(one.hit, lang, facts))
    return {
        "id": entry.id,
        "role": one.role.value,
        "line": one.hit.line.number,
        "evidence": _evidence(one.hit),
        **{**words, "fix": list(words["fix"])},
        "confidence": entry.confidence,
        "sources": list(entry.sources),
        "phase": entry.phase.name.lower(),
        "times": one.times,
    }


def _evidence(hit: Hit) -> str:
    return str(redact.text(hit.line.text[:EVIDENCE]))


def as_text(
    judgement: Judgement, lang: str, facts: Mapping[str, str], lines: int
) -> list[str]:
    """Return what people read, line by line."""
    say = _TEXTS[lang]
    out: list[str] = []
    roots = [one for one in judgement.findings if one.role is Role.CAUSE]
    for one in judgement.findings:
        head = say[_heading(one, roots)]
        words = filled(one.hit, lang, facts)
        out += [f"{head}: {words.title}", *_where(one, say)]
        if one.role is Role.CAUSE:
            out += _explained(one, words, say)
        elif one.role is Role.HARMLESS:
            out.append(f"  {say['why']}: {words.cause}")
        out.append("")
    if judgement.verdict is Verdict.HEALTHY:
        out.append(say["healthy"].format(lines=lines) if lines else say["empty"])
    elif judgement.verdict is Verdict.UNKNOWN:
        out.append(say["unknown"])
        if judgement.telling:
            out.append(f"  {say['telling']}:")
            out += [
                f"  {line.number:>7}  {line.text[:EVIDENCE]}"
                for line in judgement.telling
            ]
        out.append(say["bundle"])
    while out and not out[-1]:
        out.pop()
    return out


def _heading(one: Finding, roots: list[Finding]) -> str:
    if one.role is Role.CAUSE:
        return "cause" if one is roots[0] else "also"
    if one.role is Role.CONSEQUENCE and not roots:
        return "consequence-alone"
    return str(one.role.value)


def _where(one: Finding, say: Mapping[str, str]) -> list[str]:
    # of what repeats for ever only so much was kept
    count = f"{one.times}+" if one.times >= OFTEN else str(one.times)
    times = f" ({say['times'].format(n=count)})" if one.times > 1 else ""
    line = say["line"].format(n=one.hit.line.number)
    return [f"  {line}{times}: {_evidence(one.hit)}"]


def _explained(one: Finding, words: Words, say: Mapping[str, str]) -> list[str]:
    entry = one.hit.entry
    return [
        f"  {say['why']}: {words.cause}",
        f"  {say['do']}:",
        *(f"    {line}" for line in words.fix),
        f"  {say['check']}: {words.check}",
        f"  {say['sure']}: {say[entry.confidence]}",
        f"  {say['source']}: {', '.join(entry.sources)}",
    ]
