# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""NVIDIA cards and who uses them, through NVML.

A machine without a driver is an ordinary machine: every way in which NVML can be
missing is a state with a reason and never an exception. NVML and not ``nvidia-smi``,
whose text its own manual calls unstable between drivers.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Use:
    """One process on a card; ``used`` is its memory in bytes, None when not told."""

    pid: int
    used: int | None


@dataclass(frozen=True)
class Card:
    """One card. ``sm`` is 70 for compute capability 7.0; None means unknown everywhere.

    ``total`` and ``used`` are bytes of memory. ``users`` is None when NVML does not
    tell, and empty when nobody uses the card.
    """

    index: int
    name: str
    uuid: str
    bus: str
    sm: int | None
    total: int | None
    used: int | None
    users: tuple[Use, ...] | None


@dataclass(frozen=True)
class Pair:
    """How two cards reach each other.

    ``links`` counts the active NVLinks between them, through a switch or directly; None
    is unknown. ``p2p`` is ``ok``, ``no`` or ``unknown``: whether the driver lets one
    card read the other's memory.
    """

    a: int
    b: int
    links: int | None
    p2p: str


@dataclass(frozen=True)
class Gpus:
    """Everything NVML says.

    ``state`` is ``present``, ``absent`` (no library, no driver, no card) or ``broken``
    (a driver that answers with an error); ``reason`` says why it is not present.
    ``cuda`` is the newest CUDA version that the driver itself supports, not an
    installed toolkit.
    """

    state: str
    reason: str = ""
    driver: str = ""
    cuda: str = ""
    cards: tuple[Card, ...] = ()
    pairs: tuple[Pair, ...] = ()


def read(nvml: Any | None = None) -> Gpus:
    """Return driver, cards, their users and the links between them.

    Parameters
    ----------
    nvml
        A module with pynvml's functions; pynvml itself when None.
    """
    with _session(nvml) as (api, failed):
        if api is None:
            return failed
        driver = _text(_ask(api, api.nvmlSystemGetDriverVersion))
        number = _ask(api, api.nvmlSystemGetCudaDriverVersion_v2)
        cuda = f"{number // 1000}.{number % 1000 // 10}" if number else ""
        count = _ask(api, api.nvmlDeviceGetCount)
        if not count:
            reason = "the driver sees no card" if count == 0 else "cannot count cards"
            return Gpus("absent" if count == 0 else "broken", reason, driver, cuda)
        handles = [_ask(api, api.nvmlDeviceGetHandleByIndex, i) for i in range(count)]
        cards = tuple(_card(api, i, h) for i, h in enumerate(handles))
        return Gpus("present", "", driver, cuda, cards, _pairs(api, handles, cards))


def processes(nvml: Any | None = None) -> dict[int, tuple[int, ...]] | None:
    """Return the pids that use each card, by card index.

    Returns
    -------
    dict or None
        None when NVML is absent or broken, or when any card does not tell: a guard must
        then say unknown and not free. A driver inside a container may show pids of the
        host.
    """
    gpus = read(nvml)
    if gpus.state != "present" or any(card.users is None for card in gpus.cards):
        return None
    return {c.index: tuple(u.pid for u in c.users or ()) for c in gpus.cards}


@contextlib.contextmanager
def _session(nvml: Any | None) -> Iterator[tuple[Any | None, Gpus]]:
    failed = Gpus("absent", "")
    try:
        api = importlib.import_module("pynvml") if nvml is None else nvml
    except ImportError:
        yield None, Gpus("absent", "the Python package nvidia-ml-py is not installed")
        return
    try:
        api.nvmlInit()
    except api.NVMLError as exc:
        failed = _not_started(api, exc)
        api = None
    try:
        yield api, failed
    finally:
        if api is not None:
            with contextlib.suppress(api.NVMLError):
                api.nvmlShutdown()


def _not_started(api: Any, exc: Exception) -> Gpus:
    code = getattr(exc, "value", None)
    if code == api.NVML_ERROR_LIBRARY_NOT_FOUND:
        return Gpus("absent", "no NVIDIA driver (libnvidia-ml.so.1 not found)")
    if code == api.NVML_ERROR_DRIVER_NOT_LOADED:
        return Gpus("absent", "the NVIDIA kernel module is not loaded")
    if code == api.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        return Gpus("broken", "driver library and kernel module differ in version")
    return Gpus("broken", f"NVML does not start: {exc}")


def _card(api: Any, index: int, handle: Any | None) -> Card:
    if handle is None:
        return Card(index, "", "", "", None, None, None, None)
    capability = _ask(api, api.nvmlDeviceGetCudaComputeCapability, handle)
    memory = _ask(api, api.nvmlDeviceGetMemoryInfo, handle)
    pci = _ask(api, api.nvmlDeviceGetPciInfo, handle)
    users = _ask(api, api.nvmlDeviceGetComputeRunningProcesses, handle)
    return Card(
        index=index,
        name=_text(_ask(api, api.nvmlDeviceGetName, handle)),
        uuid=_text(_ask(api, api.nvmlDeviceGetUUID, handle)),
        bus=_bus(pci),
        sm=capability[0] * 10 + capability[1] if capability else None,
        total=memory.total if memory else None,
        used=memory.used if memory else None,
        users=None
        if users is None
        else tuple(Use(u.pid, u.usedGpuMemory) for u in users),
    )


def _pairs(
    api: Any, handles: list[Any | None], cards: tuple[Card, ...]
) -> tuple[Pair, ...]:
    remotes = [_remotes(api, h) if h is not None else None for h in handles]
    found = []
    for a, b in itertools.combinations(range(len(handles)), 2):
        links = _links_between(remotes[a], remotes[b], cards, a, b)
        found.append(Pair(a, b, links, _p2p(api, handles[a], handles[b])))
    return tuple(found)


def _links_between(
    of_a: list[str] | None,
    of_b: list[str] | None,
    cards: tuple[Card, ...],
    a: int,
    b: int,
) -> int | None:
    """Count links from a to b; far ends that are no card are switches for all."""
    if of_a is None or of_b is None:
        return None
    buses = {card.bus for card in cards}
    direct = sum(1 for end in of_a if end == cards[b].bus)
    switched = min(
        sum(1 for end in of_a if end not in buses),
        sum(1 for end in of_b if end not in buses),
    )
    return direct + switched


def _remotes(api: Any, handle: Any) -> list[str] | None:
    """Return the bus ids at the far ends of a card's active links; None is unknown."""
    ends: list[str] = []
    for link in range(api.NVML_NVLINK_MAX_LINKS):
        try:
            if not api.nvmlDeviceGetNvLinkState(handle, link):
                continue
        except api.NVMLError as exc:
            # a card without NVLink, or past its last link
            if _is(exc, api, "NOT_SUPPORTED", "INVALID_ARGUMENT"):
                break
            return None
        ends.append(_bus(_ask(api, api.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)))
    return ends


def _p2p(api: Any, a: Any | None, b: Any | None) -> str:
    if a is None or b is None:
        return "unknown"
    states = [
        _ask(api, api.nvmlDeviceGetP2PStatus, a, b, _number(index))
        for index in (api.NVML_P2P_CAPS_INDEX_READ, api.NVML_P2P_CAPS_INDEX_WRITE)
    ]
    if any(state is None or state == api.NVML_P2P_STATUS_UNKNOWN for state in states):
        return "unknown"
    return "ok" if all(s == api.NVML_P2P_STATUS_OK for s in states) else "no"


def _ask(api: Any, function: Callable[..., Any], *args: Any) -> Any:
    """Return NVML's answer, or None: a driver too old for a question is no failure."""
    try:
        return function(*args)
    except api.NVMLError:
        return None


def _is(exc: Exception, api: Any, *names: str) -> bool:
    value = getattr(exc, "value", None)
    return value in {getattr(api, f"NVML_ERROR_{name}") for name in names}


def _number(constant: Any) -> int:
    """Return a constant of pynvml: a stray comma there makes some a tuple of one."""
    return int(constant[0] if isinstance(constant, tuple) else constant)


def _bus(pci: Any) -> str:
    """Return a bus id in one form; NVML writes 4 or 8 digits of domain."""
    if pci is None:
        return ""
    domain, _, rest = _text(pci.busId).lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return "" if value is None else str(value)
