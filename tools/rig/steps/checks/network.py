# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a build fetches from, and proxies; connections are made, nothing is sent."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from tools.rig.base.errors import CannotError
from tools.rig.builds.private_apt import archive_owner
from tools.rig.host import system
from tools.rig.steps.checks.facts import Facts
from tools.rig.steps.checks.registry import Outcome, check

_PYTHONS = ("https://releases.astral.sh", "https://github.com")
"""Where uv brings a Python from, each as good as the other (uv's documentation)."""


@dataclass(frozen=True)
class Need:
    """Something to fetch; one of ``urls`` is enough.

    ``must`` is false where it may be had without: ``instead`` is then what the verdict
    says in place of a work-round that cannot be had.
    """

    urls: tuple[str, ...]
    what: str
    must: bool = True
    instead: tuple[str, str] = ("", "")


@check(
    "network",
    "servers to fetch from",
    source="a connection to each",
    limit_s=60,
)
def network(facts: Facts) -> Outcome:
    """See that index and mirror answer, where a build must fetch something.

    uv's own default index and what its files name are not asked: only a variable says
    for certain which one a build takes.
    """
    if facts.settings.offline:
        return Outcome("skip", "offline: nothing is fetched")
    if system.proxies(facts.env):
        return Outcome("skip", "requests go through a proxy, which is not asked")
    needs = [*_index(facts), *_mirror(facts), *_python(facts)]
    if not needs:
        return Outcome("skip", "nothing to fetch whose server is known")
    silent = [(need, why) for need in needs if (why := _problem(facts, need))]
    if not silent:
        return Outcome("ok", "they answer" if len(needs) > 1 else "it answers")
    must = any(need.must for need, _ in silent)
    told = "; ".join(f"{why} (for {need.what})" for need, why in silent)
    return Outcome(
        "fail" if must else "warn",
        f"cannot be reached: {told}",
        hint="export https_proxy=... http_proxy=..., or name servers nearby with "
        "UV_DEFAULT_INDEX and ONECAT_APT_MIRROR",
        measured={"instead": dict(n.instead for n, _ in silent if n.instead[0])},
    )


def _problem(facts: Facts, need: Need) -> str:
    """Ask the servers in turn, until one answers."""
    problems = []
    for url in need.urls:
        why = facts.probes.reach(url)
        if not why:
            return ""
        problems.append(why)
    return ", ".join(problems)


def _index(facts: Facts) -> list[Need]:
    """Return the package index, when an environment or a toolkit is to be made."""
    given = facts.env.get("UV_DEFAULT_INDEX") or facts.env.get("UV_INDEX_URL")
    if not given:
        return []
    try:
        made = facts.place.existing == "ready"
    except CannotError:
        made = False
    recipe = facts.pair.recipe
    wheels = recipe is not None and bool(recipe.wheels)
    if made and not wheels:
        return []
    # an index may be given as NAME=URL
    name, _, url = given.partition("=")
    address = url if url and ":" not in name else given
    elsewhere = any(facts.env.get(v) for v in ("UV_NO_INDEX", "UV_FIND_LINKS"))
    # what the cache holds is known to uv alone: enough for the same build once more
    must = not elsewhere and not _has_cache(facts)
    return [Need((address,), "packages", must)]


def _has_cache(facts: Facts) -> bool:
    given = facts.env.get("UV_CACHE_DIR")
    root = facts.state
    cache = Path(given) if given else root.cache / "uv" if root else None
    with contextlib.suppress(OSError):
        return cache is not None and any(cache.glob("wheels-*/*"))
    return False


def _mirror(facts: Facts) -> list[Need]:
    """Return the distribution's mirror, when toolkit or compiler is to be brought.

    Packages that an earlier try has fetched do not help: the signed index is read anew.
    """
    plan = facts.pair
    if plan.problem or not (plan.recipe or plan.compiler is None):
        return []
    owner = archive_owner(facts.distribution)
    named = facts.settings.apt_mirror
    urls = [named] if named else facts.probes.mirrors(owner)[:1]
    what = f"CUDA {plan.recipe.release}" if plan.recipe else "an older g++"
    return [Need((url,), what) for url in urls]


def _python(facts: Facts) -> list[Need]:
    """Return where uv brings a Python from, when the environment gets one so."""
    try:
        place = facts.place
    except CannotError:
        return []
    choice = place.python
    if place.existing == "ready" or not choice.download:
        return []
    named = facts.env.get("UV_PYTHON_INSTALL_MIRROR")
    urls = (named,) if named else _PYTHONS
    what = f"Python {choice.download}"
    if choice.installed is None:
        return [Need(urls, what)]
    release = ".".join(map(str, choice.installed.release))
    other = f"Python {release} instead of {choice.download}"
    return [Need(urls, what, False, (f"{what} through uv", other))]


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
