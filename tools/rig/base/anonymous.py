# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Makes text fit to be shown to strangers: no secrets, and nobody's name in it.

Secrets become ``***``. Names of users, hosts, homes and addresses become placeholders
such as ``<host-1>``, the same one for the same value everywhere, so that a report still
tells one machine from another. What was masked once is left alone the next time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import regex as re

from tools.rig.base import addresses, forms, redact
from tools.rig.base.literals import Literal, Literals
from tools.rig.base.redact import MASK

SECRET = "secret"

LEAST = 5
"""Letters that a secret must have to be looked for everywhere."""

_ANYWHERE = 8
"""Letters from which on a text is looked for inside words, too."""

_ROUNDS = 6
_PLACEHOLDER = re.compile(
    r"<(?:user|host|domain|home|id|ip|mac|mail|gpu|uuid|serial)-\d+>"
)
_PAINT = re.compile(
    r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b\n]{0,512}(?:\x07|\x1b\\))|\x00"
)
_WORD = re.compile(r"[A-Za-z]+")
_HOMES = re.compile(
    r"(?:/home/|/Users/|/export/home/|\\Users\\)(?P<user>[\w][\w.-]{0,63})"
)
_LABELLED = re.compile(
    r"[\"'](?P<kind>user|host|hostname|machine|boot)[\"']:[ \t]{0,8}[\"']"
    r"(?P<value>[\w][\w.@-]{0,253})[\"']"
)
_JOURNAL = re.compile(
    r"^[A-Z][a-z]{2} [ \d]\d [\d:]{8} (?P<host>(?!INFO|WARN|ERROR|DEBUG|CRIT)"
    r"[\w.-]{2,64}) (?:kernel|[\w./()@-]{1,64}\[\d+\]):",
    re.MULTILINE,
)
_COMMON_WORDS = """
about account admin all app apps apt archlinux bin box build
builder builds cache card centos ci cluster code common container cpu ctx cuda data
debian default dev developer device devices disk docker dummy ec2
empty engine env error example fail failed false fedora file files free git
github gpu gpus group head home host hosts id image info inference int
internal ip job jobs kernel lab lib linux list llm local localhost log
login mac machine mail main master memory mnt model models name net network new
node node0 node1 none null nvidia opt output own pass password path
pip port private process prod proxy public pytest python rank ray rhel rig root run
runner sample secret serial server service share shared slurm src sshd staging state
std storage store sudo svc sys system temp test tests the time tmp token
tools torch train training true ubuntu unknown usr user username users uuid uv v100
var vllm vm web work worker workspace you domain key changeme
"""
_FULL_NAME = re.compile(
    r"(?<![\w.-])(?P<host>[A-Za-z0-9][\w-]{0,62})\.(?P<domain>(?:[\w-]{1,63}\.){1,6}"
    r"[A-Za-z]{2,24})(?![\w.-])"
)
_TELLING = {
    "user": r"(?<=\b(?:[Uu]ser(?:name)?|USER|LOGNAME|login|owner)[=: \"']{{1,4}})"
    r"{name}(?![\w.-])|(?<=\((?:uid=)?|/home/|uid=\d{{1,10}}\(){name}(?=\)|/)"
    r"|(?<![\w.@-]){name}(?=@[\w<])",
    "host": r"(?<=\b(?:[Hh]ost(?:name)?|HOSTNAME)[=: \"']{{1,4}}|[\w>]@|^Linux )"
    r"{name}(?![\w-])",
}
"""What must stand around a name that is a common word."""

_FIELDS = {"user": "user", "host": "host", "machine": "id", "boot": "id"}
"""Fields of records that hold a name and nothing else."""

_PUBLIC = frozenset({"root", "localhost", "localhost.localdomain", "none", "unknown"})
COMMON = frozenset(_COMMON_WORDS.split())
"""Names that say nothing of anybody, and stand in every log."""


@dataclass(frozen=True)
class Known:
    """What is to be found in any text because somebody looked it up beforehand.

    ``secrets`` are values; ``domains`` what follows a host's own name; ``ids`` numbers
    of the machine.
    """

    secrets: frozenset[str] = frozenset()
    users: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    homes: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()


@dataclass
class Masker:
    """Masks texts, and remembers which name it gave to what."""

    known: Known = field(default_factory=Known)
    replaced: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._names: dict[tuple[str, str], str] = {}
        self._numbers: Counter[str] = Counter()
        self._kinds: dict[str, tuple[str, str]] = {}
        self._secrets: set[str] = set()
        self._literals: Literals | None = None
        self._common: list[tuple[re.Pattern[str], str, str]] = []
        for secret in sorted(self.known.secrets):
            self._secret(secret)
        for kind, values in (
            ("home", self.known.homes),
            ("user", self.known.users),
            ("host", self.known.hosts),
            ("domain", self.known.domains),
            ("id", self.known.ids),
        ):
            for value in values:
                self._identity(kind, value)

    @property
    def values(self) -> dict[str, int]:
        """How many different values of each kind got a placeholder."""
        return dict(sorted(Counter(kind for kind, _ in self._names).items()))

    def learn(self, text: str) -> None:
        """Take secrets and names from a text, so that they are masked in all others."""
        text = _PAINT.sub("", text)
        for secret in redact.values(text):
            if forms.is_random(secret):
                self._secret(secret)
        for match in _HOMES.finditer(text):
            self._identity("user", match["user"])
        # only who held a lock wrote such fields of somebody
        for match in _LABELLED.finditer(text) if '"boot":' in text else ():
            kind = {"user": "user", "machine": "id", "boot": "id"}
            self._identity(kind.get(match["kind"], "host"), match["value"])
        for match in _JOURNAL.finditer(text):
            self._identity("host", match["host"])
        for match in _FULL_NAME.finditer(text):
            # what follows the name of a known host is where it is at home
            if f"host {match['host'].lower()}" in self._kinds:
                self._identity("domain", match["domain"])
        for serial in addresses.serials(text):
            self._identity("serial", serial)

    def add_user(self, name: str) -> None:
        """Mask one more name of a user from now on."""
        self._identity("user", name)

    def text(self, value: str) -> str:
        """Return a text without secrets and names."""
        for _ in range(_ROUNDS):
            before = value
            value = self._once(before)
            if value == before:
                break
        return value

    def data(self, value: Any, name: str = "") -> Any:
        """Return plain data with every text in it masked, names of fields as well."""
        if isinstance(value, str):
            if value and redact.is_secret_name(name):
                self.replaced[SECRET] += value != MASK
                return MASK
            kind = _FIELDS.get(name)
            if kind and value.strip("0123456789.:") and value not in _PUBLIC:
                return value if value.startswith("<") else self._named(kind, value)
            return self.text(value)
        if isinstance(value, Mapping):
            if redact.is_secret_name(str(value.get("name", ""))):
                value = {k: MASK if k == "value" else v for k, v in value.items()}
            return {self.text(str(k)): self.data(v, str(k)) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            words = list(value)
            if words and all(isinstance(word, str) for word in words):
                words = redact.argv(words)
            return [self.data(word, name) for word in words]
        if value is None or isinstance(value, (bool, int, float)):
            return value
        return self.text(str(value))

    def leaks(self, text: str) -> bool:
        """Say whether a known secret or name stands in a text all the same."""
        return bool(self._search().places(text))

    def _once(self, value: str) -> str:
        value = _PAINT.sub("", value)
        value = self._known_places(value)
        for pattern, kind, plain in self._common:
            value = pattern.sub(lambda m, k=kind, p=plain: self._named(k, p), value)
        # whole lines first, before what stands in them is masked one by one
        value = self._counted(value, forms.text)
        value = self._counted(value, redact.text)
        return addresses.text(value, self._named)

    def _known_places(self, value: str) -> str:
        out, last = [], 0
        for place in self._search().places(value):
            found = value[place.start : place.end]
            if _PLACEHOLDER.search(found) or place.start < last:
                continue
            kind, plain = self._kinds[place.tag]
            end = place.end
            if kind == SECRET:
                self.replaced[SECRET] += 1
                new = MASK
            else:
                new = self._named(kind, plain)
            out += [value[last : place.start], new]
            last = end
        return "".join([*out, value[last:]])

    def _counted(self, value: str, mask: Callable[[str], str]) -> str:
        out = mask(value)
        self.replaced[SECRET] += max(0, out.count(MASK) - value.count(MASK))
        return out

    def _named(self, kind: str, value: str) -> str:
        self.replaced[kind] += 1
        return self._name(kind, value)

    def _name(self, kind: str, value: str) -> str:
        key = (kind, value)
        if key not in self._names:
            self._numbers[kind] += 1
            self._names[key] = f"<{kind}-{self._numbers[kind]}>"
        return self._names[key]

    def _search(self) -> Literals:
        if self._literals is None:
            self._literals = Literals(self._all())
        return self._literals

    def _all(self) -> Iterable[Literal]:
        for tag, (kind, value) in self._kinds.items():
            if kind == SECRET:
                yield Literal(
                    value, tag, len(value) < _ANYWHERE or value.isalpha(), True
                )
            elif kind in ("user", "host", "domain"):
                whole = len(value) < _ANYWHERE
                for form in {value, value.lower(), value.upper(), value.capitalize()}:
                    yield Literal(form, tag, whole)
            else:
                yield Literal(value, tag, kind != "id" and len(value) < _ANYWHERE)

    def _secret(self, value: str) -> None:
        lines = value.splitlines()
        for line in (value, *lines) if len(lines) > 1 else (value,):
            line = line.strip()
            plain = line.lower() in COMMON or (line.isdigit() and len(line) < _ANYWHERE)
            if len(line) >= LEAST and not plain and not line.startswith("-----"):
                self._add(SECRET, line)

    def _identity(self, kind: str, value: str) -> None:
        value = value.strip().rstrip("./") if kind != "home" else value.rstrip("/")
        if not value or value in _PUBLIC or _PLACEHOLDER.fullmatch(value):
            return
        if len(value) < 3 or value.lower() in COMMON:
            if kind in _TELLING:
                pattern = _TELLING[kind].format(name=re.escape(value))
                self._common.append((re.compile(pattern), kind, value))
            return
        if kind not in ("home", "id", "serial") and value.replace(".", "").isdigit():
            return
        self._add(kind, value.lower() if kind in ("host", "domain") else value)

    def _add(self, kind: str, value: str) -> None:
        tag = f"{kind} {value}"
        if tag not in self._kinds and (SECRET, value) not in self._kinds.values():
            self._kinds[tag] = (kind, value)
            self._literals = None
