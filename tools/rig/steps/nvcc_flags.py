# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Refuses options for nvcc in the user's environment before anything is fetched."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from packaging.version import Version

from tools.rig.base.errors import UsageError
from tools.rig.builds.pair import PairPlan
from tools.rig.host import nvcc_flags
from tools.rig.host.cuda import PROBE_S, Toolkit
from tools.rig.host.nvcc_flags import Refused

Ask = Callable[..., Refused | None]


def check(
    toolkit: Toolkit, env: Mapping[str, str], ask: Ask = nvcc_flags.refused
) -> None:
    """Refuse options that the nvcc of a toolkit does not take.

    Raises
    ------
    UsageError
        With the variable to unset.
    """
    _refuse(ask(toolkit.nvcc, env, PROBE_S))


def check_plan(
    made: PairPlan,
    found: Sequence[Toolkit],
    env: Mapping[str, str],
    ask: Ask = nvcc_flags.refused,
) -> None:
    """Refuse options that the nvcc of a plan does not take, or would not.

    Where it must be brought first, one that is here and as new tells: an option that it
    does not know is none. What it knows and does not take may suit the other.

    Parameters
    ----------
    made
        The plan.
    found
        The toolkits of this machine.

    Raises
    ------
    UsageError
        With the variable to unset.
    """
    if made.toolkit is not None:
        check(made.toolkit, env, ask)
        return
    least = Version(made.recipe.release if made.recipe else "0")
    for toolkit in found:
        if not toolkit.problem and Version(toolkit.release) >= least:
            told = ask(toolkit.nvcc, env, PROBE_S)
            _refuse(told if told is not None and told.unknown else None)
            return


def _refuse(told: Refused | None) -> None:
    if told is not None:
        raise UsageError(str(told), hint=f"unset {told.variable}")
