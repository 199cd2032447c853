# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Takes secrets out of whatever is written: records, logs, command lines, messages.

A value is a secret when its name says so (``HF_TOKEN``, ``--api-key``), when its shape
is that of a known token, or when it is the password of a URL. What is replaced becomes
``***``, so that a reader sees that something was there. Names that only sound alike
stay readable, since a log full of masks helps nobody: ``--tokenizer``, ``token_ids``,
``max_num_batched_tokens``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

import regex as re

MASK = "***"

_SECRET_WORDS = frozenset(
    [
        "secret",
        "secrets",
        "password",
        "passwd",
        "passphrase",
        "passcode",
        "apikey",
        "accesskey",
        "secretkey",
        "privatekey",
        "authtoken",
        "accesstoken",
        "apitoken",
        "hftoken",
        "credential",
        "credentials",
        "authorization",
        "cookie",
        "sshpass",
    ]
)
_SHORT_ENDS = frozenset({"auth", "pass", "pw", "tok"})
_SECRET_ENDS = ("password", "passwd", "apikey")
# before "key": a key that opens something, and not a key to sort or cache by
_KEY_KINDS = frozenset(
    [
        "api",
        "access",
        "private",
        "secret",
        "account",
        "storage",
        "encryption",
        "signing",
        "deploy",
        "auth",
        "master",
    ]
)
# before "token": a piece of text, and not a pass
_TEXT_WORDS = """
    eos bos pad unk sep cls mask per next last first start stop end special prompt
    image video audio text input output added new each draft generated sampled
    expected unexpected invalid
"""
_TEXT_TOKENS = frozenset(_TEXT_WORDS.split())
# at the end: the place or the size of a secret, and not the secret
_HARMLESS_ENDS = frozenset(
    [
        "path",
        "file",
        "dir",
        "folder",
        "count",
        "counts",
        "size",
        "length",
        "limit",
        "type",
        "types",
        "ids",
        "index",
    ]
)
# unambiguous beginnings are options too: --api-k; those of harmless ones are longer
_SHORTENED = r"--ap(?:i(?:[-_](?:k(?:ey?)?)?)?)?|--hf[-_]t(?:o(?:k(?:en?)?)?)?"
_BEGINNING = re.compile(_SHORTENED)
_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z0-9]+(?![a-z])")
_STEM = r"tok|secret|pass|pwd|_pw|key|credential|cookie|auth"
# lengths are bounded here and below, so that no line takes more than linear time
_NAME = (
    rf"(?<![\w.-])(?<!::)(?:-{{0,2}}[\w.-]{{0,64}}(?:{_STEM})[\w.-]{{0,64}}|"
    rf"(?:{_SHORTENED})(?![\w.-]))"
)
_SEP = (
    r"\\*[\"']?[ \t]*(?:=>|:=|=(?!=))[ \t]*|\\*[\"']:[ \t]*|:[ \t]+|"
    r"[\"'][ \t]*,[ \t]*(?=[\"'])|[ \t]+"
)
_VALUE = (
    r"\*\*\*|"
    r"\"(?:[^\"\\\n]|\\.)*+\"|\$?'(?:[^'\\\n]|\\.)*+'|\\+[\"'][^\"'\\\n]*+\\+[\"']|"
    r"\[[^\]\n]*+\]|\([\"'][^)\n]*+\)|[\"']?[^\s\"'&]+(?:[\"'](?=\w)[^\s\"'&]+)*"
)
_ASSIGNED = re.compile(rf"(?P<name>{_NAME})(?P<sep>{_SEP})", re.IGNORECASE)
_ASSIGNED_VALUE = re.compile(_VALUE)
_HEADER = re.compile(
    r"(?P<head>(?:authorization[\"']?[ \t]*[:=][ \t]*[\"']?(?:\w+[ \t]+)?|"
    r"cookie[\"']?:[ \t]*[\"']?))(?P<value>[^\"'\n]+)",
    re.IGNORECASE,
)
_BEARER = re.compile(
    r"(?P<head>\bbearer[ \t]+)(?=\S*[\d._~+/=-])(?P<value>[\w.~+/=-]{8,})",
    re.IGNORECASE,
)
_URL = re.compile(
    r"(?P<head>\b[a-z][a-z0-9+.-]{0,20}://)(?P<user>[^\s/@:\"']*)(?P<rest>:[^\s/\"']*)?@",
    re.IGNORECASE,
)
_SIGNED = re.compile(
    r"(?P<head>[?&](?:sig|signature|x-amz-[a-z-]+|x-goog-[a-z-]+|awsaccesskeyid)=)"
    r"(?P<value>[^\s&\"']+)",
    re.IGNORECASE,
)
_SHAPES = re.compile(
    r"(?P<head>\b)(?P<value>hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|"
    r"sk-(?=[\w-]{0,200}\d)[\w-]{20,}|(?:AKIA|ASIA)[0-9A-Z]{16}|LTAI[0-9A-Za-z]{12,}|"
    r"AIza[\w-]{35}|ya29\.[\w-]{20,}|xox[abeprs]-[A-Za-z0-9-]{10,}|"
    r"glpat-[\w-]{16,}|npm_[A-Za-z0-9]{36}|pypi-AgE[\w-]{16,}|"
    r"eyJ[\w-]{8,4000}\.eyJ[\w-]{8,4000}\.[\w-]*)"
)
_KEY_BLOCK = re.compile(
    r"(?P<head>-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----)(?P<value>.*?)"
    r"(?P<tail>-----END [A-Z0-9 ]+-----|\Z)",
    re.DOTALL,
)
_JOINED_END = re.compile(r"[A-Z]{2}(?:PASS|KEY)$")
# most lines of a log hold nothing of this kind, and are told apart in one go
_ANY = re.compile(
    rf"{_STEM}|--ap|--hf[-_]t|bearer|://|[?&]sig|hf_|gh[pousr]_|github_pat_|sk-|AKIA|"
    r"ASIA|LTAI|AIza|ya29\.|xox|glpat-|npm_|pypi-|eyJ",
    re.IGNORECASE,
)
_USER_OPTIONS = frozenset({"-u", "--user", "--proxy-user"})


def is_secret_name(name: str) -> bool:
    """Say whether a variable or option of this name holds a secret."""
    if _BEGINNING.fullmatch(name):
        return True
    words = [w.lower() for w in _WORD.findall(name)]
    if not words or words[-1] in _HARMLESS_ENDS:
        return False
    if not _SECRET_WORDS.isdisjoint(words) or words[-1].endswith(_SECRET_ENDS):
        return True
    pairs = list(zip(["", *words], words))
    if any(after == "key" and before in _KEY_KINDS for before, after in pairs):
        return True
    before, last = pairs[-1]
    if last == "token":
        return before not in _TEXT_TOKENS and "per" not in words
    # PWD and OLDPWD are folders; a first pass is a stage of work
    if last == "pwd" and before != "":
        return True
    # capitals: a variable, and not the first pass of something
    return name.isupper() and (last in _SHORT_ENDS or bool(_JOINED_END.search(name)))


def text(value: str) -> str:
    """Return `value` with every secret in it masked."""
    return _text(value, set())


def values(value: str) -> set[str]:
    """Return the secrets that :func:`text` masks in `value`."""
    found: set[str] = set()
    _text(value, found)
    return {secret for secret in found if secret != MASK}


def argv(args: Iterable[str]) -> list[str]:
    """Return a command line with secrets masked, also those in words of their own."""
    out: list[str] = []
    hide = 0.0
    user = False
    for arg in args:
        if arg.startswith("-") or not hide:
            name, colon, password = arg.partition(":")
            told = user and colon and not (name + password).isdigit()
            out.append(f"{name}:{MASK}" if told else _word(arg))
            hide = 0.0
        else:
            out.append(MASK)
            hide -= 1
        user = arg in _USER_OPTIONS
        if arg.startswith("-") and "=" not in arg and is_secret_name(arg):
            # a server takes several keys behind one option
            several = "key" in arg.lower() or arg.startswith("--ap")
            hide = float("inf") if several else 1
    return out


def env(values: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return environment values with secrets masked by name and by shape."""
    return {
        k: (v if v is None else MASK if is_secret_name(k) else text(v))
        for k, v in values.items()
    }


def _word(arg: str) -> str:
    """Mask one argument; in ``NAME=value`` the value goes up to the end of the word."""
    name, sep, value = arg.partition("=")
    if value and is_secret_name(name) and not re.search(r"[\s/:?&]", name):
        return f"{name}{sep}{MASK}"
    return text(arg)


def _text(value: str, found: set[str]) -> str:
    if not _ANY.search(value):
        return value
    value = str(_KEY_BLOCK.sub(partial(_mask_block, found), value))
    # nothing below reaches over the end of a line, and most lines hold nothing
    return "\n".join(
        _line(line, found) if _ANY.search(line) else line for line in value.split("\n")
    )


def _line(value: str, found: set[str]) -> str:
    value = str(_URL.sub(partial(_mask_url, found), value))
    value = str(_SIGNED.sub(partial(_mask_value, found), value))
    value = str(_HEADER.sub(partial(_mask_value, found), value))
    value = str(_BEARER.sub(partial(_mask_value, found), value))
    value = _mask_assigned(value, found)
    return str(_SHAPES.sub(partial(_mask_value, found), value))


def _mask_block(found: set[str], match: re.Match[str]) -> str:
    found.update(match["value"].split())
    return f"{match['head']}{MASK}{match['tail']}"


def _mask_value(found: set[str], match: re.Match[str]) -> str:
    found.add(str(match["value"]))
    return f"{match['head']}{MASK}"


def _mask_assigned(text: str, found: set[str]) -> str:
    out: list[str] = []
    at = 0
    # a value is looked at only behind a secret's name: it may be the rest of the line
    while match := _ASSIGNED.search(text, at):
        name, sep = str(match["name"]), str(match["sep"])
        out.append(text[at : match.end()])
        at = match.end()
        # "/etc/passwd: is no folder" names a file
        of_path = match.start() > 0 and text[match.start() - 1] == "/"
        # the whole value of a header is masked already
        of_header = name.lower().endswith(("authorization", "cookie"))
        if ("=" not in sep and (of_path or of_header)) or not is_secret_name(name):
            continue
        value = _ASSIGNED_VALUE.match(text, at)
        if value and _is_assignment(name, sep, value[0]):
            first, last = value[0][0], value[0][-1]
            quote = first if first in "\"'" and last == first else ""
            found.add(value[0].strip("\"'[]()\\"))
            out.append(f"{quote}{MASK}{quote}")
            at = value.end()
    return "".join([*out, text[at:]])


def _is_assignment(name: str, sep: str, value: str) -> bool:
    """Tell ``--api-key X`` and ``token=X`` from prose and from program text."""
    if sep.isspace() or "," in sep:
        return name.startswith("-") and not value.startswith("-")
    if sep.lstrip().startswith(":") and name.lower() in ("credentials", "secrets"):
        # "cannot determine user credentials: no such process"
        return any(c.isdigit() for c in value)
    if name.lower() != "token" or sep == "=":
        return True
    # "unexpected token: foo", "auto token = next();"
    return len(value) >= 8 and any(c.isdigit() for c in value) and "(" not in value


def _mask_url(found: set[str], match: re.Match[str]) -> str:
    head, user, rest = str(match["head"]), str(match["user"]), match["rest"]
    # "ssh://git@host" names an account; a lone name before a web host is a token
    if rest is None and (
        not user or not head.lower().endswith(("http://", "https://"))
    ):
        return str(match[0])
    found.add(user if rest is None else str(rest)[1:])
    return f"{head}{MASK}@"
