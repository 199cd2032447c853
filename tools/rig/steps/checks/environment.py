# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Variables and libraries around a server: leftovers that do harm or do nothing."""

from __future__ import annotations

import os
import shlex

import regex as re

from tools.rig.host import compat
from tools.rig.steps.checks.facts import Facts
from tools.rig.steps.checks.registry import Outcome, check

_KNOWN = re.compile(r"""^\s*["'](VLLM_[A-Z0-9_]+)["']\s*:""", re.MULTILINE)


@check("libcuda-stub", "driver library", source="LD_LIBRARY_PATH")
def libcuda_stub(facts: Facts) -> Outcome:
    """See that no stub of libcuda is met before the driver's own."""
    stubs = facts.probes.stubs(facts.env)
    if not stubs:
        return Outcome(
            "ok", "no stub of libcuda on LD_LIBRARY_PATH", data={"stubs": []}
        )
    kept = [
        entry
        for entry in facts.env.get("LD_LIBRARY_PATH", "").split(os.pathsep)
        if entry and all(os.path.normpath(entry) != str(s.parent) for s in stubs)
    ]
    return Outcome(
        "warn",
        f"{stubs[0]} is a stub: programs that load it find no card (CUDA error 34)",
        hint=f"export LD_LIBRARY_PATH={shlex.quote(os.pathsep.join(kept))}"
        if kept
        else "unset LD_LIBRARY_PATH",
        data={"stubs": [str(s) for s in stubs]},
    )


@check("cudnn", "cuDNN", source="library and wheel names; compatibility.json A3")
def cudnn(facts: Facts) -> Outcome:
    """See that no copy of cuDNN here is too new for Volta."""
    copies = facts.probes.cudnn(facts.env, facts.environment)
    if not copies:
        return Outcome("skip", "none here; torch brings its own")
    data = {"versions": sorted({c.version for c in copies})}
    detail = ", ".join(f"{c.version} ({c.place})" for c in copies)
    limit = compat.volta()["first_cudnn_without"]
    met = [
        c
        for c in copies
        if c.origin != "system" and compat.version(c.version) >= compat.version(limit)
    ]
    if met and any(compat.is_volta(sm) for sm in facts.profile.sms):
        on_path = met[0].origin == "LD_LIBRARY_PATH"
        return Outcome(
            "warn",
            f"{detail}: Volta needs one below {limit}",
            hint=f"take {met[0].place.parent} off LD_LIBRARY_PATH"
            if on_path
            else f"uv pip install 'nvidia-cudnn-cu12<{limit}'",
            data=data,
        )
    return Outcome("ok", detail, data=data)


@check(
    "vllm-variables",
    "VLLM_* variables",
    source="vllm/envs.py of the checkout; compatibility.json C",
)
def vllm_variables(facts: Facts) -> Outcome:
    """Name variables that this vLLM no longer reads."""
    given = sorted(k for k in facts.env if k.startswith("VLLM_"))
    data = {"set": given}
    if not given:
        return Outcome("ok", "none set", data=data)
    known = set(_KNOWN.findall(facts.text("vllm/envs.py")))
    table = compat.obsolete_variables()
    dead = [k for k in given if (k not in known if known else k in table)]
    if not dead:
        return Outcome("ok", ", ".join(given), data=data)
    words = [f"{k} (instead: {table[k]['instead']})" if k in table else k for k in dead]
    return Outcome(
        "warn",
        f"not read by this vLLM: {'; '.join(words)}",
        hint=f"unset {' '.join(dead)}",
        data={**data, "obsolete": dead},
    )
