# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Forms in which secrets stand in text that goes to strangers.

:mod:`tools.rig.base.redact` keeps logs readable for their owner. What leaves the
machine is searched more strictly: names and values on lines of their own, files of
passwords, and whatever looks random behind a word that promises a secret.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections import Counter
from collections.abc import Callable

import regex as re

from tools.rig.base.redact import MASK, is_secret_name

RANDOM_BITS = 3.0
"""Bits of information a letter from which on a text counts as random."""

_LOOK_BACK = 48

_LEAST = 12
"""Letters that a random text must have."""

_WORDS = (
    r"(?:api|access|secret|private|auth|bearer|account|signing|encryption|license)?"
    r"[ _-]?(?:tokens?|secrets?|passwords?|passwd|passphrase|passcode|pwd|key|"
    r"credentials?|cred|bearer|auth|authorization|signature|sig|cookie|session|login|"
    r"otp|pin)"
)
_BEHIND = re.compile(
    rf"(?<![A-Za-z])(?P<head>{_WORDS}(?![A-Za-z])[^\w\n/.>\[\]()]{{1,6}}(?:[A-Za-z]{{1,12}}"
    rf"[^\w\n/.>\[\]()]{{1,6}}){{0,3}}?)(?P<value>[\w+/=.~!$%^*@#?-]{{{_LEAST},512}})",
    re.IGNORECASE,
)
_PAIR = re.compile(
    r"(?P<head>\b(?:name|key|variable)[\"']?[ \t]{0,8}[:=][ \t]{0,8}[\"']?"
    r"(?P<name>[\w.-]{1,128})[\"']?[\s,]{0,64}[\"']?value[\"']?[ \t]{0,8}[:=][ \t]{0,8}"
    r"[\"']?)(?P<value>[^\s\"',}]+)",
    re.IGNORECASE,
)
_ELEMENT = re.compile(
    r"(?P<head><(?P<name>[\w.:-]{1,64})(?:[ \t][^<>\n]{0,256})?>)"
    r"(?P<value>[^<>\n]+)(?=</)"
)
_LINE = re.compile(
    r"(?P<head>^[ \t]*(?:(?:line[ ])?\d{1,12}:?[ \t]+)?(?:export[ \t]+|setenv[ \t]+|"
    r"set[ \t]+|-[ \t]+)?[\"']?(?P<name>[\w.-]{1,128})[\"']?"
    r"(?:[ \t]{0,64}[:=][ \t]{0,64}|[ \t]{1,64}))(?P<value>[^\s\"'{\[(<|>][^\n]*)",
    re.MULTILINE,
)
_IN_LINE = re.compile(
    r"(?P<head>(?<![\w.-])(?P<name>[\w.-]{0,64}(?:pass|secret|token)[\w.-]{0,64})[ \t]"
    r"{1,64}=[ \t]{1,64})(?P<value>[^\s\"'{\[(<|>][^\n]*)",
    re.IGNORECASE,
)
_NETRC = re.compile(
    r"(?P<head>\blogin\s{1,64}(?P<login>\S{1,256})\s{1,64}(?:account\s{1,64}\S{1,256}"
    r"\s{1,64})?password\s{1,64})(?P<value>\S+)"
)
_USER = re.compile(
    r"(?P<head>(?<!\S)(?:-u|--user|--proxy-user)(?:[ \t]+|=)?[\"']?"
    r"(?P<login>[\w.@+-]{1,128}):)(?P<value>[^\s\"']+)"
)
_PROGRAM = re.compile(
    r"(?P<head>\b(?:(?:mysql\w{0,16}|mariadb\w{0,16}|sshpass|7z|unzip|"
    r"(?:docker|podman|nerdctl|skopeo|helm)[ ](?:registry[ ])?login)\b[^\n|;]{0,256}?"
    r" -[pP]|redis-cli\b[^\n|;]{0,256}? -a|pass(?:word)?:(?!//))[ =]?)"
    r"(?P<value>[^\s\"']{4,})"
)
_PIPED = re.compile(
    r"(?P<head>\becho[ ](?:-n[ ])?[\"']?)(?P<value>[^\s\"'|]+)(?=[\"']?[ ]*\|[ ]*"
    r"(?:sudo[ ]|docker[ ]|podman[ ]|helm[ ]|passwd|chpasswd|gpg[ ]|openssl[ ]))"
)
_SAID = re.compile(
    r"(?P<head>\b(?:(?:password|passphrase|passcode)[ ]for[ ][^:\n]{1,64}:[ ]|"
    r"(?:pass(?:word|phrase|code)|token|secret|api[ _-]?key)[ ](?:is|was)[ :]{1,2}))"
    r"(?P<value>[\"']?(?=[^\s\"']{0,256}\d)[^\s\"']{5,256})",
    re.IGNORECASE,
)
_SPACED = re.compile(
    r"(?P<head>(?<![\w.-])(?P<name>[A-Z][A-Z0-9_]{2,64}|[A-Za-z]{1,32}[_-][\w-]{2,64})"
    r"[ \t]{1,8})(?P<value>(?=[\w+/=.~-]{0,256}\d)(?=[\w+/=.~-]{0,256}[A-Za-z])"
    r"[\w+/=.~-]{6,256})(?![\w:(\[])"
)
_TUPLE = re.compile(
    r"(?P<head>\([\"'](?P<name>[\w.-]{1,128})[\"'],[ ]{0,8}[\"'])(?P<value>[^\"'\n]+)"
)
_QUERY = re.compile(
    r"(?P<head>(?<![\w.-])(?P<name>[\w.-]{1,128})%3[Dd])(?P<value>[^\s&%\"']+)"
)
_BLOCK = re.compile(
    r"(?P<head>(?<![\w.-])(?P<name>[\w.-]{1,128})[\"']?[ \t]{0,8}[:=][ \t]{0,8}"
    r"(?P<sign>[|>][+-]?)?[ \t]{0,8}\n[ \t]{0,64})(?P<value>\S+)(?=[ \t]{0,8}$)",
    re.MULTILINE,
)
_BASIC = re.compile(
    r"(?P<head>\bbasic[ \t]+)(?P<value>[A-Za-z0-9+/_-]{6,}={0,2})", re.IGNORECASE
)
_URL = re.compile(
    r"(?P<head>\b[a-z][a-z0-9+.-]{0,20}://)(?P<user>[^\s/@:\"'<>]{0,256}):(?!\d{1,5}/)"
    r"(?P<value>[^\s@\"'<>]{1,512})@(?=[\w.\[-])",
    re.IGNORECASE,
)
# a key whose beginning was cut off: the lines of its body, and no others
_KEY_END = re.compile(
    r"(?P<head>)(?P<value>(?:^[ \t>|]{0,16}[A-Za-z0-9+/=]{24,128}[ \t\r]*\n){1,200}+"
    r"(?:^[ \t>|]{0,16}[A-Za-z0-9+/=]{1,128}[ \t\r]*\n)?)"
    r"(?=[ \t>|]{0,16}-----END [A-Z0-9 ]{0,32}PRIVATE KEY-----)",
    re.MULTILINE,
)
_CHINESE = re.compile(
    r"(?P<head>(?:密码|口令|密钥|令牌)[ \t]{0,8}(?:是|为)?[ \t]{0,8}[:：=][ \t]{0,8})"
    r"(?P<value>[^\s\"',，。;；]{4,256})"
)
_LOOSE = re.compile(
    r"(?<![\w./+=-])(?P<head>)(?P<value>[A-Za-z0-9]{20,128})(?![\w./+=-])"
)
_SHAPES = re.compile(
    r"(?P<head>(?<![A-Za-z0-9]))(?P<value>(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{16,}|"
    r"whsec_[A-Za-z0-9+/=]{16,}|gl(?:ptt|dt|rt|cbt|soat|ft|agent|imt|ffct)-[\w-]{16,}|"
    r"xapp-[\w-]{10,}|SG\.[\w-]{16,}\.[\w-]{16,}|GOCSPX-[\w-]{20,}|1//0[\w-]{24,}|"
    r"dckr_(?:pat|oat)_[\w-]{16,}|dop_v1_[a-f0-9]{32,}|r8_[A-Za-z0-9]{24,}|"
    r"nvapi-[\w-]{20,}|gsk_[A-Za-z0-9]{20,}|pplx-[A-Za-z0-9]{20,}|tgp_v1_[\w-]{20,}|"
    r"ATATT3[\w=-]{20,}|(?:ACCA|AROA|AIDA|ABIA)[A-Z0-9]{16}|AKID[A-Za-z0-9]{24,}|"
    r"AGE-SECRET-KEY-1[A-Z0-9]{20,}|api_org_[A-Za-z]{24,}|wandb_v1_\w{20,}|"
    r"https://hooks\.slack\.com/services/[\w/]{16,}|(?:bot)?\d{8,10}:AA[\w-]{30,}|"
    r"https://discord(?:app)?\.com/api/webhooks/[\w/-]{16,}|[\w.~-]{3}\dQ~[\w.~-]{30,}|"
    r"hvs\.[\w-]{20,}|eyJ[\w-]{8,4000}\.[\w-]{8,4000}(?:\.[\w-]{0,4000})?|"
    r"shpat_[a-f0-9]{24,}|figd_[\w-]{20,}|lin_api_\w{20,}|ya29\.[\w-]{16,})"
)
_HEX = re.compile(r"[0-9a-f]+|[0-9A-F]+")
_HASH_WORD = re.compile(r"hash|sha\d*|commit|digest|cache|md5|revision", re.IGNORECASE)


def text(value: str) -> str:
    """Return `value` with the secrets masked that stand in one of these forms."""
    for pattern, is_secret in _FORMS:
        value = pattern.sub(lambda m, tell=is_secret: _masked(m, tell), value)
    return value


def is_random(value: str) -> bool:
    """Say whether a text looks drawn by a machine and not written by somebody."""
    core = value.strip("=.-_")
    if len(core) < _LEAST or core.startswith(("/", "./", "~", "<")):
        return False
    kinds = (
        any(c.isdigit() for c in core),
        any(c.islower() for c in core),
        any(c.isupper() for c in core),
    )
    if sum(kinds) < 2:
        return False
    # words joined by signs are names: "max-model-len-8192", "libfoo.so.1"
    parts = re.split(r"[^A-Za-z0-9]+", core)
    if max(map(len, parts)) < 8 or all(p.isdigit() or p.isalpha() for p in parts):
        return not kinds[0] and len(parts) == 1 and _changes(core) > len(core) * 0.45
    return _bits(core) >= RANDOM_BITS


def _changes(value: str) -> int:
    """Return how often small and big letters take turns."""
    return sum(a.islower() != b.islower() for a, b in zip(value, value[1:]))


def _bits(value: str) -> float:
    total = len(value)
    counts = Counter(value).values()
    return -sum(n / total * math.log2(n / total) for n in counts)


def _masked(match: re.Match[str], is_secret: Callable[[re.Match[str]], bool]) -> str:
    # of several words the first may have been masked before
    first = match.re not in (_LINE, _IN_LINE) and match["value"].startswith(MASK)
    if first or match["value"].strip() == MASK or not is_secret(match):
        return str(match[0])
    tail = str(match[0])[len(match["head"]) + len(match["value"]) :]
    if match.re is _URL:
        return f"{match['head']}{MASK}@"
    return f"{match['head']}{MASK}{tail}"


def _always(match: re.Match[str]) -> bool:
    return True


def _named(match: re.Match[str]) -> bool:
    return is_secret_name(match["name"])


def _line(match: re.Match[str]) -> bool:
    """Tell ``password = correct horse`` from a command behind ``HF_TOKEN=x``."""
    head = str(match["head"])
    if head.endswith("=") and not match["name"].islower():
        return False
    if "=" not in head and ":" not in head and "setenv" not in head:
        return False
    return is_secret_name(match["name"])


def _block(match: re.Match[str]) -> bool:
    """Tell a value on the line below from the next variable."""
    return _named(match) and bool(match["sign"] or is_random(match["value"]))


def _behind(match: re.Match[str]) -> bool:
    value = match["value"]
    start = match.start("value")
    before = match.string[max(0, start - _LOOK_BACK) : start].rpartition("\n")[2]
    if _HASH_WORD.search(before) and _HEX.fullmatch(value):
        return False
    return is_random(value)


def _loose(match: re.Match[str]) -> bool:
    """Tell a token that stands for itself from a name in camel case."""
    value = str(match["value"])
    kinds = [(c.isdigit(), c.isupper()) for c in value]
    turns = sum(a != b for a, b in zip(kinds, kinds[1:]))
    return len(set(kinds)) == 3 and turns > 0.45 * len(value)


def _password(match: re.Match[str]) -> bool:
    # "docker run -u 1000:1000" names a group
    return not match["value"].isdigit() and not match["login"].isdigit()


def _encoded(match: re.Match[str]) -> bool:
    value = match["value"].rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return b":" in base64.b64decode(value + "=" * (-len(value) % 4))
    except (binascii.Error, ValueError):
        return False


_FORMS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], bool]], ...] = (
    (_KEY_END, _always),
    (_URL, _always),
    (_BLOCK, _block),
    (_LINE, _line),
    (_IN_LINE, _named),
    (_PAIR, _named),
    (_ELEMENT, _named),
    (_NETRC, _always),
    (_USER, _password),
    (_PROGRAM, _always),
    (_PIPED, _always),
    (_SAID, _always),
    (_SPACED, _named),
    (_TUPLE, _named),
    (_QUERY, _named),
    (_BASIC, _encoded),
    (_SHAPES, _always),
    (_BEHIND, _behind),
    (_CHINESE, _always),
    (_LOOSE, _loose),
)
