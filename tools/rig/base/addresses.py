# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Finds what identifies a machine or a person by its form: addresses and numbers.

Four numbers between dots are an address or a version, and a report without versions is
worth nothing: what stands around them decides.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator

import regex as re

_IP4 = re.compile(
    r"(?<![\w.])(?P<ip>(?:[0-9]{1,3}\.){3}[0-9]{1,3})(?!\w|\.\w)(?P<after>:\d{1,5}(?!\d)"
    r"|/\d{1,2}(?![\d.]))?"
)
_IP6 = re.compile(
    r"(?<![\w:.])(?P<ip>(?:[23][0-9a-f]{3}|f[cd][0-9a-f]{2}|fe[89ab][0-9a-f]|"
    r"ff[0-9a-f]{2}|64):(?:[0-9a-f]{0,4}:){1,7}(?:[0-9a-f]{1,4})?)(?![\w:])",
    re.IGNORECASE,
)
_MAC = re.compile(
    r"(?<![0-9a-fA-F:-])(?:[0-9a-fA-F]{2}:){5}(?:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}:)?"
    r"[0-9a-fA-F]{2}(?![0-9a-fA-F:-])"
    r"|(?<![\w-])(?:[0-9a-fA-F]{2}-){5}[0-9a-fA-F]{2}(?![\w-])"
)
_MAIL = re.compile(
    r"(?<![\w.%+@-])(?P<mail>[\w.%+-]{1,64}@(?:[\w-]{1,63}\.){1,8}"
    r"(?P<top>[A-Za-z]{2,24}))(?![\w@]|\.\w)"
)
_CARD = re.compile(
    r"\b(?:GPU|MIG)-(?:GPU-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:/\d+/\d+)?",
    re.IGNORECASE,
)
_UUID = re.compile(
    r"(?<![0-9a-f])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![0-9a-f])",
    re.IGNORECASE,
)
_SERIAL = re.compile(
    r"\bserial(?:[ _-]?(?:number|no))?\.?[\"']?[ \t]{0,64}[:=][ \t\"']{0,64}"
    r"(?P<serial>(?=[\w-]{0,40}\d)[\w-]{6,40})",
    re.IGNORECASE,
)
_URL_HOST = re.compile(
    r"://(?:[^\s/@\"'<>]{0,256}@)?(?P<host>[A-Za-z][\w-]{0,63}(?:\.[\w-]{1,63}){0,8})"
    r"(?=[:/\s\"'?#)\],;]|\.?$)",
    re.MULTILINE,
)

_VERSION_BEFORE = re.compile(
    r"(?:[=<>~!^]=?|\bv|[-_]|version[\"']?[ :=]{1,8}[\"']?|release[ :=]{1,8}|"
    r"(?:^|[\s\"'(])(?:nvidia|cuda|cu(?:blas|dnn|fft|rand|solver|sparse|pti|file)|nccl|"
    r"nv(?:cc|rtc|tx|jitlink|shmem)|toolkit|driver|torch|triton|tensorrt|ptxas|gcc|clang|"
    r"kernel|vbios|firmware|python|pip|uv|vllm|build|package|requires?|CUDA Version)"
    r"[\w.+-]{0,40}[\"']?[ \t:,(]{1,40}[\"']?)$",
    re.IGNORECASE,
)
_COLUMN_BEFORE = re.compile(r"^[A-Za-z][\w.-]{1,60}[ \t]{2,80}$")
_LOCAL_HOSTS = frozenset({"localhost", "ip6-localhost", "host", "hostname", "server"})
_TOPS = "local|lan|corp|intranet|internal|intern|home|private|localdomain|localnet"
_PRIVATE_TOPS = frozenset(_TOPS.split("|"))
_HOST = re.compile(
    r"(?<![\w.-])(?P<host>[a-z0-9][\w-]{0,62}(?:\.[\w-]{1,63}){0,6}"
    rf"\.(?:{_TOPS}))(?![\w-]|\.\w)",
    re.IGNORECASE,
)
_NO_TOPS = frozenset(
    ["so", "service", "socket", "slice", "scope", "timer", "mount", "target", "device"]
)
_NO_MAIL = frozenset({"git", "noreply", "no-reply"})
_LOOK_BACK = 96

Name = Callable[[str, str], str]
"""Gives the placeholder for a kind and a value."""


def text(value: str, name: Name) -> str:
    """Return `value` with every address and number replaced by its name.

    Parameters
    ----------
    value
        Any text.
    name
        Called with the kind (``ip``, ``mac``, ``mail``, ``gpu``, ``uuid``, ``serial``,
        ``host``) and the value.
    """
    value = _CARD.sub(lambda m: name("gpu", m[0].lower()), value)
    value = _UUID.sub(lambda m: name("uuid", m[0].lower()), value)
    value = _MAC.sub(lambda m: _of_mac(m, name), value)
    value = _IP6.sub(lambda m: _of_ip6(m, name), value)
    value = _IP4.sub(lambda m: _of_ip4(m, name), value)
    value = _MAIL.sub(lambda m: _of_mail(m, name), value)
    value = _URL_HOST.sub(lambda m: _of_host(m, name), value)
    value = _HOST.sub(lambda m: name("host", m[0].lower()), value)
    return str(
        _SERIAL.sub(lambda m: _put(m, "serial", name("serial", m["serial"])), value)
    )


def serials(value: str) -> Iterator[str]:
    """Yield the serial numbers that a text calls so."""
    for match in _SERIAL.finditer(value):
        yield str(match["serial"])


def _put(match: re.Match[str], group: str, new: str) -> str:
    start, end = match.start(group) - match.start(), match.end(group) - match.start()
    return f"{match[0][:start]}{new}{match[0][end:]}"


def _of_ip4(match: re.Match[str], name: Name) -> str:
    ip, after = str(match["ip"]), str(match["after"] or "")
    if not is_address(ip, after, match.string, match.start()):
        return str(match[0])
    return f"{name('ip', ip)}{after}"


def is_address(ip: str, after: str, around: str, start: int) -> bool:
    """Say whether four numbers are somebody's address, and no version."""
    numbers = ip.split(".")
    if any(int(n) > 255 or (n[0] == "0" and n != "0") for n in numbers):
        return False
    first = int(numbers[0])
    if first in (0, 127) or first >= 224:
        # nobody's: this machine itself, masks, broadcasts
        return False
    if after:
        return True
    before = around[max(0, start - _LOOK_BACK) : start].rpartition("\n")[2]
    if before.endswith(("://", "@")):
        return True
    if _VERSION_BEFORE.search(before) or _COLUMN_BEFORE.search(before):
        return False
    # a network ends in 0, a host never does, and versions often do
    return numbers[3] != "0"


def _of_ip6(match: re.Match[str], name: Name) -> str:
    ip = str(match["ip"])
    tail = ""
    if ip.endswith(":") and not ip.endswith("::"):
        ip, tail = ip[:-1], ":"
    try:
        ipaddress.IPv6Address(ip)
    except ValueError:
        return str(match[0])
    return f"{name('ip', ip.lower())}{tail}"


def _of_mac(match: re.Match[str], name: Name) -> str:
    mac = match[0].lower().replace("-", ":")
    return match[0] if set(mac) <= {"0", ":"} else name("mac", mac)


def _of_mail(match: re.Match[str], name: Name) -> str:
    account = match["mail"].partition("@")[0].lower()
    if match["top"].lower() in _NO_TOPS or account in _NO_MAIL:
        return str(match[0])
    return name("mail", match["mail"].lower())


def _of_host(match: re.Match[str], name: Name) -> str:
    host = str(match["host"]).lower()
    top = host.rpartition(".")[2]
    if host in _LOCAL_HOSTS or ("." in host and top not in _PRIVATE_TOPS):
        # a public name says which index or mirror was asked
        return str(match[0])
    return _put(match, "host", name("host", host))
