# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Variables that begin with VLLM_, against the list of the vLLM that is installed."""

from __future__ import annotations

from collections.abc import Iterable

from tools.rig.serve.flags import nearest_name
from tools.rig.serve.parser import Parser
from tools.rig.serve.problem import Problem

GONE = {
    "VLLM_USE_V1": "gone since vLLM 0.11.2, which has no other engine",
    "VLLM_ATTENTION_BACKEND": "gone by vLLM 0.16: --attention-backend NAME",
    "VLLM_DEBUG": "no version of vLLM has it: VLLM_LOGGING_LEVEL=DEBUG",
}
"""Variables of guides and of older versions, with what there is instead."""

DEBUG = {
    "VLLM_LOGGING_LEVEL": "DEBUG: what is decided while the model loads",
    "VLLM_LOG_STATS_INTERVAL": "1: the line with tokens a second each second",
    "VLLM_TRACE_FUNCTION": "1: every call, a hundred times slower",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0: one process, for debuggers",
}
"""Variables for a hunt, of which those are offered that the installed vLLM has."""

OUTSIDE = {
    "NCCL_DEBUG": "INFO: how the cards find each other",
    "CUDA_LAUNCH_BLOCKING": "1: an error of a kernel shows where it happened",
}
"""Variables of other programs for the same."""


def problems(names: Iterable[str], parser: Parser) -> list[Problem]:
    """Return a note for each variable that the installed vLLM does not know.

    vLLM ignores such a variable, so that what it should do is not done.

    Parameters
    ----------
    names
        Names of all variables that a server would get.
    """
    if not parser.variables:
        return []
    return [
        _problem(name, parser)
        for name in sorted(names)
        if name.startswith("VLLM_")
        and name not in parser.variables
        and name not in parser.named
    ]


def for_debugging(parser: Parser) -> dict[str, str]:
    """Return variables that help to find a fault, with a value and what it shows."""
    there = {name: how for name, how in DEBUG.items() if name in parser.variables}
    return {**there, **OUTSIDE}


def _problem(name: str, parser: Parser) -> Problem:
    why = GONE.get(name)
    alike = nearest_name(name, parser.variables, "VLLM_")
    if why:
        return Problem(f"{name} does nothing: {why}", f"unset {name}", "note")
    return Problem(
        f"vLLM {parser.version} knows no variable {name}",
        f"did you mean {alike[0]}?" if alike else f"unset {name}",
        "note",
    )
