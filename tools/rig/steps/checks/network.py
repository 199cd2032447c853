# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Proxies, as far as variables tell; nothing is sent anywhere."""

from __future__ import annotations

from tools.rig.host import system
from tools.rig.steps.checks.facts import Facts
from tools.rig.steps.checks.registry import Outcome, check


@check("proxy", "proxy variables", source="environment")
def proxy(facts: Facts) -> Outcome:
    """See that requests to this machine itself do not go through a proxy."""
    names = sorted(system.proxies(facts.env))
    data = {"proxies": names}
    if not names:
        return Outcome("ok", "none set", data=data)
    gaps = system.unproxied_gaps(facts.env)
    if not gaps:
        return Outcome("ok", f"{', '.join(names)}; not for this machine", data=data)
    already = facts.env.get("no_proxy") or facts.env.get("NO_PROXY") or ""
    wanted = ",".join([*([already] if already else []), *gaps])
    return Outcome(
        "warn",
        f"{', '.join(names)} set, and NO_PROXY does not name {' or '.join(gaps)}: "
        "health checks and benchmarks of a server here would go to the proxy",
        hint=f"export NO_PROXY={wanted} no_proxy={wanted}",
        data={**data, "gaps": list(gaps)},
    )
