# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a build fetches from, and proxies; connections are made, nothing is sent."""

from __future__ import annotations

from tools.rig.base.errors import CannotError
from tools.rig.builds.private_apt import archive_owner
from tools.rig.host import system
from tools.rig.steps.checks.facts import Facts
from tools.rig.steps.checks.registry import Outcome, check


@check("network", "servers to fetch from", source="a connection to each")
def network(facts: Facts) -> Outcome:
    """See that index and mirror answer, where a build must fetch something.

    uv's own default index and what its files name are not asked: only a variable says
    for certain which one a build takes.
    """
    if facts.settings.offline:
        return Outcome("skip", "offline: nothing is fetched")
    if system.proxies(facts.env):
        return Outcome("skip", "requests go through a proxy, which is not asked")
    urls = [*_index(facts), *_mirror(facts)]
    if not urls:
        return Outcome("skip", "nothing to fetch whose server is known")
    problems = [why for url in urls if (why := facts.probes.reach(url))]
    if problems:
        return Outcome(
            "warn",
            f"cannot be reached: {'; '.join(problems)}",
            hint="export https_proxy=... http_proxy=..., or name servers nearby with "
            "UV_DEFAULT_INDEX and ONECAT_APT_MIRROR",
        )
    return Outcome("ok", "index and mirror answer" if len(urls) > 1 else "it answers")


def _index(facts: Facts) -> list[str]:
    """Return the package index, when an environment is to be made."""
    given = facts.env.get("UV_DEFAULT_INDEX") or facts.env.get("UV_INDEX_URL")
    if not given:
        return []
    try:
        made = facts.place.existing == "ready"
    except CannotError:
        made = False
    # an index may be given as NAME=URL
    name, _, url = given.partition("=")
    return [] if made else [url if url and ":" not in name else given]


def _mirror(facts: Facts) -> list[str]:
    """Return the distribution's mirror, when toolkit or compiler is to be brought."""
    plan = facts.pair
    if plan.problem or not (plan.recipe or plan.compiler is None):
        return []
    owner = archive_owner(facts.distribution)
    named = facts.settings.apt_mirror
    return [named] if named else facts.probes.mirrors(owner)[:1]


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
