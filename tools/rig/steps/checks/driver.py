# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""NVIDIA driver, kernel module and cards.

A machine without a driver can build, so a missing one is skipped. What is here and
cannot run the result is another matter.
"""

from __future__ import annotations

from tools.rig.host import compat
from tools.rig.host.gpu import Gpus
from tools.rig.steps.checks.facts import Facts
from tools.rig.steps.checks.registry import Outcome, check

_RULES = "compatibility.json A1 (CUDA release notes, minor-version compatibility)"


@check("gpus", "NVIDIA cards", source="NVML; /sys/bus/pci")
def gpus(facts: Facts) -> Outcome:
    """List the cards, and say when one is in the machine but has no driver."""
    seen = facts.gpus
    if seen.state == "broken":
        return Outcome(
            "warn",
            seen.reason,
            hint="sudo reboot (or reload the nvidia kernel module)",
            data={"cards": []},
        )
    on_bus = facts.pci_cards
    if seen.state == "absent":
        if not on_bus:
            return Outcome("skip", seen.reason, data={"cards": []})
        names = ", ".join(c.volta or f"NVIDIA {c.device}" for c in on_bus)
        bound = {c.driver for c in on_bus if c.driver and c.driver != "nvidia"}
        taken = f"; bound to {', '.join(sorted(bound))}" if bound else ""
        return Outcome(
            "warn",
            f"{names} on the PCI bus, but {seen.reason}{taken}",
            hint=_install_hint(facts),
            data={"cards": [], "on_bus": [c.device for c in on_bus]},
        )
    cards = [
        {"name": c.name, "sm": c.sm, "memory": c.total, "index": c.index}
        for c in seen.cards
    ]
    words = [
        f"{c.index}: {c.name or 'unknown'}"
        + (f" (sm_{c.sm}, {_gib(c.total)})" if c.sm else "")
        for c in seen.cards
    ]
    wrong = [
        c for c in seen.cards if c.sm is not None and c.sm not in facts.profile.sms
    ]
    if wrong and len(wrong) == len(seen.cards):
        wanted = ", ".join(f"sm_{sm}" for sm in facts.profile.sms)
        return Outcome(
            "warn",
            f"{'; '.join(words)}; profile {facts.profile.name} builds for {wanted}, "
            "which will not run on these cards",
            hint="choose another profile with --profile",
            data={"cards": cards},
        )
    return Outcome("ok", "; ".join(words), data={"cards": cards})


@check("driver", "driver for that toolkit", source=f"NVML; {_RULES}")
def driver(facts: Facts) -> Outcome:
    """Compare the driver with the oldest one on which the toolkit's programs run.

    There is no newest one: a CUDA 13 driver runs programs of every 12.x toolkit.
    """
    seen = facts.gpus
    if not seen.driver:
        return _no_driver(seen)
    release = facts.release
    oldest = compat.driver_min(release) if release else None
    data = {"driver": seen.driver, "cuda": seen.cuda}
    if oldest is None:
        return Outcome(
            "unknown", f"driver {seen.driver}; no toolkit to compare it with", data=data
        )
    have = compat.version(seen.driver)
    if have < compat.version(oldest):
        return Outcome(
            "fail",
            f"driver {seen.driver} is older than {oldest}, the first that runs "
            f"programs of CUDA {release}",
            hint=_install_hint(facts),
            data=data,
        )
    bundled = compat.driver_bundled(_wheel_release(facts) or release)
    if bundled and have < compat.version(bundled):
        return Outcome(
            "warn",
            f"driver {seen.driver} runs CUDA {release} programs, but is older than "
            f"{bundled}: PTX made at run time may be refused",
            hint=_install_hint(facts),
            data=data,
        )
    return Outcome(
        "ok", f"driver {seen.driver} runs programs of CUDA {release}", data=data
    )


@check(
    "volta-driver", "driver branch", source="compatibility.json A3 (R580 is the last)"
)
def volta_driver(facts: Facts) -> Outcome:
    """See whether the driver's branch still drives the cards of the profile."""
    if not any(compat.is_volta(sm) for sm in facts.profile.sms):
        return Outcome("skip", "the profile is for newer cards than Volta")
    seen = facts.gpus
    if not seen.driver:
        return _no_driver(seen)
    last = int(compat.volta()["last_driver_branch_number"])
    branch = compat.version(seen.driver)[:1]
    data = {"branch": branch[0] if branch else None}
    if branch and branch[0] <= last:
        return Outcome("ok", f"R{branch[0]}; Volta is driven up to R{last}", data=data)
    volta = [c.volta for c in facts.pci_cards if c.volta]
    if volta:
        return Outcome(
            "fail",
            f"driver {seen.driver} does not drive the {volta[0]} in this machine: "
            f"R{last} is the last branch for Volta",
            hint=_install_hint(facts),
            data=data,
        )
    return Outcome(
        "warn",
        f"driver {seen.driver} drives no Volta card (R{last} is the last branch); what "
        "is built here is for another machine",
        data=data,
    )


@check("module", "kernel module", source="/proc/driver/nvidia/version")
def module(facts: Facts) -> Outcome:
    """See that Volta cards have the proprietary module: no open one drives them."""
    loaded = facts.module
    if loaded is None:
        return Outcome("skip", "no NVIDIA kernel module is loaded")
    data = {"flavour": loaded.flavour, "version": loaded.version}
    if not loaded.flavour:
        return Outcome("unknown", "the module does not say what it is", data=data)
    volta = [c.volta for c in facts.pci_cards if c.volta]
    wanted = compat.volta()["kernel_module_flavour"]
    if volta and loaded.flavour != wanted:
        return Outcome(
            "fail",
            f"the {loaded.flavour} module is loaded, and the {volta[0]} needs the "
            f"{wanted} one (open modules start at Turing)",
            hint="install the driver with its proprietary module (package "
            "nvidia-driver, or --kernel-module-type=proprietary)",
            data=data,
        )
    return Outcome("ok", f"{loaded.flavour} module {loaded.version}", data=data)


@check("nvlink", "links between cards", source="NVML (NVLink state, P2P status)")
def nvlink(facts: Facts) -> Outcome:
    """Say how two cards reach each other."""
    seen = facts.gpus
    if len(seen.cards) < 2:
        return Outcome("skip", "fewer than two cards")
    words = [f"{p.a}-{p.b}: {_links(p.links)}, peer access {p.p2p}" for p in seen.pairs]
    data = {"pairs": [[p.a, p.b, p.links, p.p2p] for p in seen.pairs]}
    detail = "; ".join(words)
    if any(p.links is None for p in seen.pairs):
        return Outcome("unknown", detail, data=data)
    if any(p.links == 0 for p in seen.pairs):
        return Outcome(
            "warn",
            f"{detail}; tensor parallel goes over PCIe there",
            hint="nvidia-smi topo -m",
            data=data,
        )
    return Outcome("ok", detail, data=data)


def _no_driver(seen: Gpus) -> Outcome:
    if seen.state == "broken":
        return Outcome("unknown", seen.reason)
    return Outcome("skip", seen.reason or "no driver")


def _install_hint(facts: Facts) -> str:
    volta = any(compat.is_volta(sm) for sm in facts.profile.sms)
    if not volta:
        return "install a newer NVIDIA driver"
    last = compat.volta()["last_driver_branch_number"]
    return f"install an NVIDIA driver of branch R{last}, with its proprietary module"


def _wheel_release(facts: Facts) -> str:
    """Return the CUDA release inside the torch wheel: cu128 holds 12.8."""
    digits = (facts.profile.torch_variant or "").removeprefix("cu")
    return f"{digits[:-1]}.{digits[-1]}" if digits.isdigit() else ""


def _links(count: int | None) -> str:
    return "NVLinks unknown" if count is None else f"{count} NVLinks"


def _gib(total: int | None) -> str:
    return "memory unknown" if total is None else f"{total / (1 << 30):.0f} GiB"
