# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Has a router's own program read a configuration, where it is here."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tools.rig.base.process import NOT_STARTED
from tools.rig.base.run import run
from tools.rig.serve.routers import nginx

LIMIT_S = 30.0
_PLACES = "/usr/local/sbin:/usr/sbin:/sbin"


@dataclass(frozen=True)
class Checked:
    """What it said: lines of what is wrong, or why nobody asked it."""

    problems: tuple[str, ...] = ()
    unknown: str = ""


def nginx_site(site: Path) -> Checked:
    """Have ``nginx -t`` read a site."""
    # it lies where a user's PATH often does not look
    path = f"{os.environ.get('PATH', os.defpath)}:{_PLACES}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole = folder / "nginx.conf"
        whole.write_text(nginx.around(site, folder), encoding="utf-8")
        words = ["-t", "-q", "-p", name, "-c", os.fspath(whole)]
        said = run(["nginx", *words], env={**os.environ, "PATH": path}, timeout=LIMIT_S)
    if said.code == NOT_STARTED:
        return Checked(unknown="nginx is not here: the site is unread")
    if said.ok:
        return Checked()
    lines = [line for line in said.err.splitlines() if "[emerg]" in line]
    return Checked(tuple(lines or said.err.splitlines() or ["nginx -t failed"]))
