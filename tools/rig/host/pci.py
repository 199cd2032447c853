# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""NVIDIA cards on the PCI bus, which the kernel shows with or without a driver."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from tools.rig.host import compat

_NVIDIA = "10de"
_DISPLAY = "03"


@dataclass(frozen=True)
class PciCard:
    """One card: its address, device id (``1db1``) and the kernel driver bound to it.

    ``driver`` is empty when none is bound.
    """

    bus: str
    device: str
    driver: str

    @property
    def volta(self) -> str:
        """The name of a Volta card, or an empty string for any other."""
        return str(compat.volta()["pci_devices"].get(self.device, ""))


def nvidia_cards(devices: Path = Path("/sys/bus/pci/devices")) -> list[PciCard]:
    """Return NVIDIA's display and 3D controllers, in order of address.

    Parameters
    ----------
    devices
        The kernel's list of PCI devices. One that does not exist holds no card.
    """
    found = []
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(devices)):
            place = devices / name
            if _hex(place / "vendor") != _NVIDIA:
                continue
            if not _hex(place / "class").startswith(_DISPLAY):
                continue
            driver = place / "driver"
            bound = driver.resolve().name if driver.exists() else ""
            found.append(PciCard(name, _hex(place / "device"), bound))
    return found


def _hex(file: Path) -> str:
    with contextlib.suppress(OSError):
        return file.read_text().strip().lower().removeprefix("0x")
    return ""
