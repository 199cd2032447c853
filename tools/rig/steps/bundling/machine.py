# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a bundle tells of the machine: cards, kernel, packages, git, processes."""

from __future__ import annotations

import dataclasses
import os
import platform
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import regex as re

from tools.rig.base import redact
from tools.rig.base.errors import RigError
from tools.rig.builds.tools import uv_command
from tools.rig.host import memory, processes, system
from tools.rig.steps.bundling.site import Part, Site
from tools.rig.steps.bundling.words import (
    argument_words,
    is_ours,
    is_shown_variable,
)

KERNEL_LINES = 2000
"""Lines of the kernel's messages that are kept, the newest ones."""

MOST_PROCESSES = 60

DMESG = ("dmesg",)
JOURNAL = ("journalctl", "-k", "-n", "20000", "--no-pager", "--no-hostname", "-q")
GIT_LIMIT_S = 20

_KERNEL = re.compile(
    r"NVRM|\bXid\b|nvidia|nvlink|nouveau|out of memory|oom[-_ ]?kill|oom_reaper|"
    r"Killed process|Memory cgroup|\bAER\b|pcieport|hung_task|blocked for more than|"
    r"segfault|general protection|I/O error|Hardware Error|\bMCE\b|mce:|IOMMU|DMAR|"
    r"nfs: server|No space left|EXT4-fs error|XFS .*error",
    re.IGNORECASE,
)
_DIST_INFO = re.compile(r"(?P<name>.+?)-(?P<version>[^-]+)\.(?:dist-info|egg-info)")
_VERSIONS_OF = ("torch", "vllm", "triton", "flash-attn", "xformers", "ray", "nccl")


def machine(site: Site) -> list[Part]:
    """Return system, memory and the suite's own Python."""
    held, cores = memory.read(), memory.cores()
    module = system.kernel_module()
    kernel = os.uname()
    data = {
        "system": system.distribution().name or kernel.sysname,
        "kernel": f"{kernel.release} {kernel.machine}",
        "glibc": system.glibc(),
        "container": system.container(env=site.env),
        "wsl": system.wsl(),
        "cores": cores.usable,
        "memory_gib": round(held.total / 2**30, 1),
        "available_gib": round(held.available / 2**30, 1),
        "shm_gib": round((system.shm_bytes() or 0) / 2**30, 2),
        "kernel_module": dataclasses.asdict(module) if module else None,
        "python_of_the_tools": platform.python_version(),
        "tools": _tools(),
        "profile": site.profile.name if site.profile else None,
        "checkout": str(site.checkout or ""),
        "environment": str(site.environment or ""),
        "state_root": str(site.root.path) if site.root else "",
    }
    site.facts["machine"] = data
    return [Part("machine.json", data)]


def nvml(site: Site) -> list[Part]:
    """Return what NVML says of the cards."""
    found = site.gpus()
    site.facts["gpus"] = found
    if found.state != "present":
        site.note(f"cards: {found.reason or found.state}")
    return [Part("nvml.json", dataclasses.asdict(found))]


def smi(site: Site) -> list[Part]:
    """Return ``nvidia-smi -q``."""
    said = site.ask(["nvidia-smi", "-q"], 40)
    return [Part("nvidia-smi-q.txt", said)] if said else []


def topology(site: Site) -> list[Part]:
    """Return ``nvidia-smi topo -m``."""
    said = site.ask(["nvidia-smi", "topo", "-m"], 40)
    return [Part("nvidia-smi-topo.txt", said)] if said else []


def kernel(site: Site) -> list[Part]:
    """Return the kernel's lines about cards, memory and disks, as far as readable."""
    parts = []
    for name, argv in (("dmesg", DMESG), ("journal", JOURNAL)):
        said = site.ask(argv)
        lines = [ln for ln in (said or "").splitlines() if _KERNEL.search(ln)]
        if said is not None:
            text = "\n".join([*lines[-KERNEL_LINES:], ""])
            parts.append(Part(f"kernel-{name}.txt", text if lines else "nothing\n"))
    return parts


def git(site: Site) -> list[Part]:
    """Return the state of the checkout; names of changed files, nothing of them."""
    if site.checkout is None:
        site.note("git: there is no checkout")
        return []
    env = {
        **site.env,
        "LC_ALL": "C",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
    }
    place = os.fspath(site.checkout)
    out = []
    for title, words in (
        ("HEAD", ["log", "-1", "--format=%H %cI"]),
        ("branch", ["rev-parse", "--abbrev-ref", "HEAD"]),
        ("describe", ["describe", "--tags", "--always", "--dirty"]),
        ("remotes", ["remote", "-v"]),
        ("changed", ["status", "--porcelain=v1", "--untracked-files=normal"]),
        ("submodules", ["submodule", "status"]),
    ):
        said = site.ask(["git", "-C", place, *words], GIT_LIMIT_S, env=env)
        if said is not None:
            out.append(f"## {title}\n{said.rstrip()}\n")
            site.facts[f"git {title}"] = said.strip()
    return [Part("git.txt", "\n".join(out))] if out else []


def packages(site: Site) -> list[Part]:
    """Return the packages of the environment, also where its Python is broken."""
    if site.environment is None:
        site.note("packages: there is no environment")
        return []
    python = site.environment / "bin" / "python"
    said = None
    try:
        uv = uv_command(search=site.env.get("PATH"))
        env = {**site.env, "UV_OFFLINE": "1", "UV_NO_PROGRESS": "1"}
        said = site.ask([*uv, "pip", "list", "--python", str(python)], 40, env=env)
    except RigError as exc:
        site.note(f"packages: {exc.what}")
    if not said:
        argv = [str(python), "-I", "-m", "pip", "list", "--disable-pip-version-check"]
        said = site.ask(argv, 40)
    found = list(_on_disk(site.environment))
    site.facts["versions"] = {n: v for n, v in found if n.lower() in _VERSIONS_OF}
    listed = "".join(f"{name}=={version}\n" for name, version in found)
    parts = [Part("packages-on-disk.txt", listed)] if listed else []
    if said:
        parts.insert(0, Part("packages.txt", said))
    return parts


def environment(site: Site) -> list[Part]:
    """Return the variables that matter, by an allow-list."""
    return [Part("environment.txt", "\n".join([*_variables(site.env), ""]))]


def running(site: Site) -> list[Part]:
    """Return builds and servers that run now: command lines by an allow-list."""
    out: list[str] = []
    for pid in processes.pids(site.proc):
        words = processes.cmdline(pid, site.proc)
        if not words or not is_ours(words, site.environment):
            continue
        if len(out) == MOST_PROCESSES:
            site.note(f"processes: more than {MOST_PROCESSES}, the rest is left out")
            break
        who = processes.user_name(processes.uid(pid, site.proc))
        site.facts.setdefault("users", []).append(who)
        given = processes.environ(pid, site.proc)
        lines = [f"pid {pid} of {who}: {' '.join(argument_words(words))}"]
        lines += [f"  {line}" for line in _variables(given or {})]
        if given is None:
            lines.append("  (its variables may not be read)")
        out.append("\n".join(lines))
    return [Part("processes.txt", "\n\n".join([*out, ""]) if out else "none\n")]


def _variables(env: Mapping[str, str]) -> Iterable[str]:
    for name in sorted(env):
        if redact.is_secret_name(name):
            if is_shown_variable(name):
                yield f"{name} is set"
        elif is_shown_variable(name):
            yield f"{name}={env[name]}"


def _tools() -> dict[str, Any]:
    found = {}
    for name in ("invoke", "nox", "uv", "psutil", "nvidia-ml-py", "regex"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def _on_disk(environment: Path) -> Iterable[tuple[str, str]]:
    """Yield names and versions of what is installed, without starting anything."""
    names = set()
    for site_packages in sorted(environment.glob("lib*/python3*/site-packages")):
        for entry in sorted(site_packages.iterdir()):
            match = _DIST_INFO.fullmatch(entry.name)
            if match and match["name"].lower() not in names:
                names.add(match["name"].lower())
                yield match["name"], match["version"]
