# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A machine with secrets in every place that a bundle reads, drawn anew each time."""

from __future__ import annotations

import base64
import gzip
import json
import secrets
import string
import tarfile
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

BASE62 = string.ascii_letters + string.digits
ODD = "+/=\"'\\&%" * 3


def draw(length: int = 24, letters: str = BASE62) -> str:
    """Return a random text with a digit, a small and a big letter in it."""
    rest = "".join(secrets.choice(letters) for _ in range(length - 3))
    return f"{rest[: length // 2]}7qK{rest[length // 2 :]}"


def key_block() -> tuple[str, str]:
    """Return a private key and one line of its body."""
    body = [base64.b64encode(secrets.token_bytes(48)).decode() for _ in range(6)]
    kind = "OPENSSH PRIVATE KEY"
    lines = [f"-----BEGIN {kind}-----", *body, f"-----END {kind}-----"]
    return "\n".join(lines), body[3]


# where it stands on a line, with {} for the secret, and how it is drawn
SHAPED: dict[str, tuple[str, str, str]] = {
    "github": ("cloning with {}", "ghp_", ""),
    "github fine": ("token {} was refused", "github_pat_", ""),
    "gitlab": ("remote: {}", "glpat-", ""),
    "gitlab deploy": ("x {} y", "gldt-", ""),
    "hugging face": ("login {}", "hf_", ""),
    "openai": ("got {}", "sk-proj-", ""),
    "anthropic": ("({})", "sk-ant-api03-", ""),
    "slack": ("posted with {}", "xoxb-", ""),
    "npm": ("//r/:_authToken={}", "npm_", ""),
    "pypi": ("upload as {}", "pypi-AgE", ""),
    "nvidia": ("[{}]", "nvapi-", ""),
    "stripe": ("pay {}", "sk_live_", ""),
    "docker": ("pull {}", "dckr_pat_", ""),
    "vault": ("unseal {}", "hvs.", ""),
    "groq": ("ask {}", "gsk_", ""),
    "google refresh": ("oauth {}", "1//0", ""),
}
NAMED: dict[str, str] = {
    "variable": "export OTHER_API_KEY={}",
    "option": "vllm serve m --api-key {} --port 8000",
    "option equal": "vllm serve m --hf-token={}",
    "header": "Authorization: Bearer {}",
    "header json": '{{"headers": {{"Authorization": "Bearer {}"}}}}',
    "own header": "X-Api-Key: {}",
    "cookie": "Set-Cookie: session={}; Path=/",
    "url": "GET https://bob:{}@mirror.example/simple",
    "url slash": "GET https://bob:{}/x@mirror.example/simple",
    "url token": "git+https://{}@git.example/x.git",
    "query": "GET https://h.example/x?access_token={}&b=1",
    "signature": "GET https://s3.example/x?X-Amz-Signature={}&b=1",
    "azure": "DefaultEndpointsProtocol=https;AccountKey={};EndpointSuffix=x",
    "aws": "aws_secret_access_key = {}",
    "json": '{{"client_secret": "{}", "b": 1}}',
    "python": "{{'password': '{}', 'b': 1}}",
    "yaml": "  password: {}",
    "toml": 'api_token = "{}"',
    "ini": "passwd={}",
    "phrase": "password = correct {} battery",
    "xml": "<password>{}</password>",
    "netrc": "machine h.example login bob password {}",
    "curl": "curl -u bob:{} https://h.example",
    "mysql": "mysql -h db -u bob -p{} x",
    "pair": '{{"name": "DB_PASSWORD", "value": "{}"}}',
    "prose": "the key is {} today",
    "painted": "\x1b[32mHF_TOKEN\x1b[0m=\x1b[1m{}\x1b[0m",
}
TWISTS = (
    "plain {plain} text",
    "in{plain}side",
    '{{"x": "{escaped}"}}',
    "nested {nested}",
    "query {quoted}",
    "Authorization: Basic {basic}",
    "hex {hexed}",
    "broken {first}\n    {second} here",
    "painted {first}\x1b[31m{second}",
)


@dataclass
class Planted:
    """A machine below `folder`, and what must not leave it."""

    folder: Path
    secrets: dict[str, str] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    given: dict[str, str] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        """The user's home."""
        return self.folder / "home" / self.user

    @property
    def root(self) -> Path:
        """The state root."""
        return self.folder / "state"

    def __post_init__(self) -> None:
        self.user = f"zelda{secrets.token_hex(2)}"
        self.host = f"castle{secrets.token_hex(2)}"
        self.domain = f"hyrule{secrets.token_hex(2)}.example"
        self.names = (self.user, self.host, self.domain, str(self.home))
        self._environment()
        self._files()
        self._logs()

    def new(self, where: str, value: str = "") -> str:
        """Draw the secret of a place."""
        self.secrets[where] = value or draw()
        return self.secrets[where]

    def _environment(self) -> None:
        self.home.mkdir(parents=True)
        self.env = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.home),
            "USER": self.user,
            "HOSTNAME": self.host,
            "HF_TOKEN": self.new("env HF_TOKEN"),
            "VLLM_API_KEY": self.new("env odd letters", draw(20, BASE62 + ODD)),
            "MY_PASSWORD": self.new("env password", draw(14, BASE62 + " /+$")),
            "HTTPS_PROXY": f"http://bob:{self.new('env proxy')}@proxy.example:3128",
            "UV_INDEX_URL": f"https://bob:{self.new('env index')}@i.example/simple",
            "VLLM_EXTRA": f"--api-key {self.new('env inside')}",
        }
        self.given = {
            "OPENAI_API_KEY": self.new("process environment"),
            "VLLM_PORT": "8000",
        }

    def _files(self) -> None:
        login = draw(10)
        of_git = self.new("git credentials")
        for name, text in {
            ".netrc": f"machine a login bob password {self.new('.netrc')}\n",
            ".git-credentials": f"https://bob:{of_git}@g.example\n",
            ".config/pip/pip.conf": "[global]\nindex-url = "
            f"https://bob:{self.new('pip.conf')}@p.example/simple\n",
            ".config/uv/uv.toml": f'[pip]\nextra-index-url = ["https://bob:'
            f'{self.new("uv.toml")}@u.example/simple"]\n',
            ".cache/huggingface/token": self.new("HF token file"),
            ".docker/config.json": json.dumps(
                {"auths": {"r": {"auth": self.new("docker", _basic(login))}}}
            ),
            ".aws/credentials": f"[d]\naws_secret_access_key={self.new('aws file')}\n",
            ".pypirc": f"[pypi]\npassword: {self.new('.pypirc')}\n",
        }.items():
            file = self.home / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    def _logs(self) -> None:
        known = dict(self.secrets)
        lines = [
            f"built by {self.user}@{self.host}.{self.domain} in {self.home}/src",
            "CUDA 12.4.131.0, driver 580.95.05, listening on 127.0.0.1:8000",
        ]
        for where, (line, prefix, _) in SHAPED.items():
            lines.append(line.format(self.new(where, prefix + draw(36))))
        for where, line in NAMED.items():
            lines.append(line.format(self.new(where)))
        block, body = key_block()
        lines += [block, json.dumps({"k": block}), self.new("key", body)[:0]]
        jwt = ".".join(["eyJ" + draw(20), "eyJ" + draw(40), draw(30)])
        lines.append(f"jwt {self.new('jwt', jwt)}")
        lines.append(f"X-Ms-Id {self.new('uuid', str(uuid.uuid4()))}")
        # what was said once with a name stands elsewhere without one
        lines.append(f"again {self.secrets['variable']} again")
        everywhere = [*lines, *(t for v in known.values() for t in twisted(v))]
        text = "".join(f"{line}\n" for line in everywhere)
        logs, records = self.root / "logs", self.root / "records"
        servers = self.root / "servers"
        for folder in (logs, records, servers):
            folder.mkdir(parents=True)
        middle = "INFO harmless line\n" * 40_000
        (logs / "20260102-030405-abcd.log").write_text(f"{text}{middle}{text}")
        name = f"server-{self.env['HF_TOKEN']}-{self.host}.log"
        (servers / name).write_text(text)
        (logs / f"{self.secrets['.netrc']}.txt").write_text(text)
        token = self.env["HF_TOKEN"]
        record = {
            "id": "20260102-030405-abcd",
            "command": f"HF_TOKEN={token} build {self.secrets['aws file']}",
            "holder": {"user": self.user, "host": self.host, "boot": str(uuid.uuid4())},
            "started": "2026-01-02T03:04:05Z",
            "result": "failed",
            "exit_code": 1,
            "error": f"cannot fetch https://bob:{self.secrets['pip.conf']}@p.example",
            "log": str(logs / "20260102-030405-abcd.log"),
            "argv": ["serve", "--api-key", self.new("record argv"), "m"],
            "env": {"SOME_TOKEN": self.new("record env")},
            "steps": [{"title": f"wheel {token}", "seconds": 1}],
        }
        (records / "20260102-030405-abcd.json").write_text(json.dumps(record))


def twisted(value: str) -> list[str]:
    """Return lines in which a secret stands in every way that logs write one."""
    escaped = json.dumps(value)[1:-1].replace("/", "\\/")
    half = len(value) // 2
    forms = {
        "plain": value,
        "escaped": escaped,
        "nested": json.dumps(json.dumps({"a": value})),
        "quoted": quote(value, safe=""),
        "basic": _basic(value),
        "hexed": value.encode().hex(),
        "first": value[:half],
        "second": value[half:],
    }
    # a short one that is broken over two lines is nobody's any more
    long = [t for t in TWISTS if "\n" not in t or len(value) >= 16]
    return [line.format(**forms) for line in long]


def remains(value: str) -> list[str]:
    """Return what to look for: the secret as it is, and as others may decode it."""
    found = [
        value,
        quote(value, safe=""),
        json.dumps(value)[1:-1],
        json.dumps(json.dumps(value))[3:-3],
        value.encode().hex(),
        base64.b64encode(value.encode()).decode().rstrip("="),
        _basic(value).rstrip("="),
    ]
    return list(dict.fromkeys(found))


def everything(archive: Path) -> str:
    """Return all that an archive holds: contents, names and fields of the headers."""
    raw = gzip.decompress(archive.read_bytes())
    out = [raw.decode("utf-8", "replace"), archive.read_bytes()[:64].decode("latin-1")]
    with tarfile.open(archive) as tar:
        for member in tar:
            out += [member.name, member.uname, member.gname, str(member.pax_headers)]
    # a secret that is broken over lines is put together again
    whole = "\n".join(out)
    return f"{whole}\n{''.join(line.strip() for line in whole.splitlines())}"


def _basic(password: str) -> str:
    return base64.b64encode(f"bob:{password}".encode()).decode()
