# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""``bundle``: everything that a report of a failure needs, and no secret in it.

Whatever fails on the way is written into the bundle's list of problems, since a bundle
is wanted most where everything is broken.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.rig.base.anonymous import Known, Masker
from tools.rig.base.config import resolve
from tools.rig.base.console import Console, size, table
from tools.rig.host import credentials
from tools.rig.host import identity as identities
from tools.rig.steps.bundling import archive as archives
from tools.rig.steps.bundling import builds, machine, steps
from tools.rig.steps.bundling.site import Collector, Part, Site, collect, locate
from tools.rig.steps.bundling.summary import summary

TOP = "rig-bundle"
SUMMARY = "summary.md"

LARGEST = 1 << 20
"""Characters of one file of a bundle, at most."""

MOST = 24 << 20
"""Characters of all files of a bundle, at most."""

SECRETS_S = 20.0
"""Seconds that looking up secrets and names may take."""

PLACE_S = 40.0
"""Seconds that finding checkout, state root and environment may take."""

README = """\
This folder was made by `invoke bundle` for a report of a failure.

summary.md     the same in short, to paste into an issue
problems.txt   what could not be found out, and why
replaced.json  how often secrets (***) and names (<kind-number>) were replaced

The same number stands for the same value everywhere. Look through the files before you
pass them on: what nobody could know to be a secret is still in them.
"""


@dataclass(frozen=True)
class BundleResult:
    """A bundle. ``path`` and ``summary`` are None where nothing was written.

    ``size`` is that of the archive in bytes; ``contents`` are name and bytes of each
    file in it; ``replaced`` counts replacements and ``values`` different values.
    """

    path: str | None
    summary: str | None
    size: int
    contents: tuple[tuple[str, int], ...]
    replaced: Mapping[str, int]
    values: Mapping[str, int]
    problems: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        data = dataclasses.asdict(self)
        data["contents"] = [{"name": n, "bytes": b} for n, b in self.contents]
        return data


@dataclass(frozen=True)
class Seams:
    """What a bundle asks; tests put fakes here."""

    locate: Callable[[Mapping[str, str], Mapping[str, str]], Site] = locate
    secrets: Callable[..., Iterator[str]] = credentials.secrets
    identity: Callable[..., Known] = identities.identity
    collectors: Sequence[Collector] = ()
    clock: Callable[[], float] = time.time
    secrets_s: float = SECRETS_S
    place_s: float = PLACE_S
    extra: Sequence[Collector] = field(default_factory=tuple)


def bundle(
    console: Console,
    cli: Mapping[str, str],
    *,
    output: Path | None = None,
    show: bool = False,
    env: Mapping[str, str] | None = None,
    seams: Seams | None = None,
) -> BundleResult:
    """Gather, mask, pack and write; or only show what would be written.

    Parameters
    ----------
    console
        Where people's text goes.
    cli
        Settings as typed (``source``, ``profile``).
    output
        The archive; its summary lies beside it. None for a name with the time in the
        current folder.
    show
        List the contents and write nothing.
    env
        Our own environment when None.
    seams
        What is asked.

    Raises
    ------
    UsageError
        When `output` exists already or cannot be a file.
    StepFailed
        When it cannot be written, as on a full disk; nothing is left behind then.
    """
    env = dict(os.environ) if env is None else env
    ask = seams or Seams()
    now = ask.clock()
    archive, beside = archives.outputs(output, Path.cwd(), now)
    site = _site(cli, env, ask)
    console.say("gathering facts, logs and records; secrets are looked up to mask them")
    masker = Masker(_known(site, ask))
    parts = collect([*(ask.collectors or COLLECTORS), *ask.extra], site)
    files = _files(parts, site, masker)
    contents = tuple((name, len(files[name])) for name in sorted(files))
    _listed(console, contents, masker, site.problems)
    written = 0
    if not show:
        top = f"{TOP}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}"
        packed = archives.packed(files, top, now)
        archives.place({archive: packed, beside: files[SUMMARY]})
        written = len(packed)
        console.say(f"wrote {archive} ({size(written)}) and {beside}")
        console.say(f"hint: paste {beside.name} into the issue and attach the archive")
    return BundleResult(
        path=None if show else str(archive),
        summary=None if show else str(beside),
        size=written,
        contents=contents,
        replaced=dict(sorted(masker.replaced.items())),
        values=masker.values,
        problems=tuple(masker.text(problem) for problem in site.problems),
    )


COLLECTORS = (
    Collector("machine", machine.machine),
    Collector("cards", machine.nvml),
    Collector("nvidia-smi", machine.smi, 45),
    Collector("topology", machine.topology, 45),
    Collector("kernel", machine.kernel, 50),
    Collector("git", machine.git, 60),
    Collector("packages", machine.packages, 90),
    Collector("environment", machine.environment),
    Collector("processes", machine.running),
    Collector("builds", builds.builds),
    Collector("servers", builds.servers),
    Collector("crashes", builds.crashes),
    Collector("diagnosis", builds.diagnosis, 60),
    Collector("doctor", steps.doctor, 120),
    Collector("plan", steps.plan, 120),
)


def _site(cli: Mapping[str, str], env: Mapping[str, str], ask: Seams) -> Site:
    """Find out where we are; a disk that hangs must not hold the bundle up."""
    found: list[Site] = []

    def look(_: Site) -> list[Part]:
        found.append(ask.locate(cli, env))
        return []

    blank = Site(env=env, settings=resolve({}, {}))
    collect([Collector("place", look, ask.place_s)], blank)
    return found[0] if found else blank


def _known(site: Site, ask: Seams) -> Known:
    """Look up secrets and names; what was found before the time is up counts."""
    secrets: set[str] = set()
    found: list[Known] = []

    def look(_: Site) -> list[Part]:
        for secret in ask.secrets(site.env, checkout=site.checkout, note=site.note):
            secrets.add(secret)
        return []

    def who(_: Site) -> list[Part]:
        found.append(ask.identity(site.env, checkout=site.checkout))
        return []

    collect(
        [
            Collector("what to mask", look, ask.secrets_s),
            Collector("who we are", who, ask.secrets_s),
        ],
        site,
    )
    known = found[0] if found else Known()
    return dataclasses.replace(known, secrets=known.secrets | secrets.copy())


def _files(parts: Sequence[Part], site: Site, masker: Masker) -> dict[str, bytes]:
    """Return the files of the bundle, masked and checked."""
    for user in site.facts.get("users", ()):
        masker.add_user(user)
    for text in _texts([*parts, Part("", site.facts), Part("", site.problems)]):
        masker.learn(text)
    files: dict[str, bytes] = {}
    total = 0
    for part in parts:
        text = _masked(part, masker)
        if masker.leaks(text):
            site.note(f"{part.name}: left out, since it could not be masked")
            continue
        if total + len(text) > MOST:
            site.note(f"{part.name}: left out, since the bundle is large enough")
            continue
        total += len(text)
        files[masker.text(part.name)] = text.encode("utf-8", "replace")
    problems = [masker.text(problem) for problem in site.problems]
    short = summary(site.facts, problems, masker.text, lambda: _sums(masker))
    files[SUMMARY] = short.encode("utf-8", "replace")
    files["README.txt"] = README.encode()
    files["problems.txt"] = "".join(f"{p}\n" for p in problems or ["none"]).encode()
    counts = {"replacements": _sums(masker), "different values": masker.values}
    files["replaced.json"] = _dumped(counts).encode()
    return files


def _masked(part: Part, masker: Masker) -> str:
    content = part.content
    if isinstance(content, str):
        content = (content,)
    if not isinstance(content, tuple):
        return _dumped(masker.data(content))
    # stretches one by one: a key that is cut off in the one must not hide the other
    text = "".join(masker.text(piece) for piece in content)
    if len(text) <= LARGEST:
        return text
    half = LARGEST // 2
    return f"{text[:half]}\n[... left out ...]\n{text[-half:]}"


def _texts(parts: Sequence[Part]) -> Iterator[str]:
    for part in parts:
        content = part.content
        if isinstance(content, str):
            yield content
        elif isinstance(content, tuple):
            yield from content
        else:
            yield _dumped(content)


def _dumped(data: Any) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False, default=str) + "\n"


def _sums(masker: Masker) -> dict[str, int]:
    return dict(sorted(Counter(masker.replaced).items()))


def _listed(
    console: Console,
    contents: Sequence[tuple[str, int]],
    masker: Masker,
    problems: Sequence[str],
) -> None:
    rows = [(name, size(count)) for name, count in contents]
    for line in table(("FILE", "SIZE"), rows):
        console.say(f"  {line}")
    values = masker.values
    replaced = [
        (kind, str(count), str(values.get(kind, "")))
        for kind, count in _sums(masker).items()
    ]
    console.say("replaced:" if replaced else "replaced: nothing")
    for line in table(("KIND", "TIMES", "DIFFERENT"), replaced) if replaced else ():
        console.say(f"  {line}")
    for problem in problems:
        console.mark("unknown", masker.text(problem))
