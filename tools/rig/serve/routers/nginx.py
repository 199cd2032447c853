# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""An nginx site for replicas of one model: streamed answers, and none computed twice.

nginx passes a POST on to the next server only while nothing of it has been sent, as
long as ``non_idempotent`` is not set (its manual, ``proxy_next_upstream``): a replica
that is down is passed over, and one that fails while it answers is not asked again
elsewhere. It cannot tell models apart by a JSON body; that is LiteLLM's work.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import regex as re

from tools.rig.base.errors import UsageError
from tools.rig.serve import ports
from tools.rig.serve.routers.backend import Backend
from tools.rig.serve.server import plain_name

READ_S = 3600
"""Seconds between two pieces of an answer; a long prompt comes before the first."""

BODY_MIB = 64
"""Size of a request at most: pictures come in it."""

_UNAUTHORIZED = (
    '{"error": {"message": "Unauthorized", "type": "invalid_request_error", '
    '"code": 401}}'
)
_KEY = re.compile(r"[A-Za-z0-9._~+/=-]+")


@dataclass(frozen=True)
class Site:
    """What a site shall be.

    Attributes
    ----------
    name
        Names its upstream.
    host, port
        Where it listens.
    anybody
        Clients of other machines are let in.
    key_map
        A file made by :func:`key_map`; None: no key is asked for.
    certificate, certificate_key
        Files for TLS; None: none.
    """

    name: str
    host: str = "127.0.0.1"
    port: int = 8080
    anybody: bool = False
    key_map: Path | None = None
    certificate: Path | None = None
    certificate_key: Path | None = None


def config(backends: Sequence[Backend], site: Site) -> str:
    """Return the site; it is included where nginx reads ``http``.

    Raises
    ------
    UsageError
        When the servers do not all serve one model, or one of TLS's files is missing.
    """
    served = sorted({one.served_name for one in backends})
    if len(served) > 1:
        raise UsageError(
            f"nginx cannot tell models apart: {', '.join(served)}",
            hint="invoke serve-router --kind litellm",
        )
    if (site.certificate is None) != (site.certificate_key is None):
        raise UsageError(
            "TLS wants a certificate and its key",
            hint="--certificate FILE --certificate-key FILE",
        )
    label = plain_name(site.name, "_")
    lines = [
        "# Written by serve-router; nginx reads it inside http { }.",
        *_upstream(backends, label),
        *(_keys(site.key_map, label) if site.key_map else []),
        "server {",
        *(f"    {line}".rstrip() for line in _server(site, label)),
        "}",
    ]
    return "".join(f"{line}\n" for line in lines)


def key_map(key: str) -> str:
    """Return the file by which nginx knows a key; its owner alone may read it.

    Raises
    ------
    UsageError
        When the key holds what no header of this kind can.
    """
    if not _KEY.fullmatch(key):
        raise UsageError(
            "the key holds letters that a header cannot carry",
            usual="Letters, digits and . _ ~ + / = - are possible.",
            hint="openssl rand -hex 32 > FILE",
        )
    # a plain text would be compared without regard to case
    exact = key.replace(".", r"\.").replace("+", r"\+")
    return f'"~^Bearer {exact}$" 1;\n'


def command(file: str) -> list[str]:
    """Return how a site comes into force on a usual installation."""
    return ["sudo", "install", "-m", "644", file, "/etc/nginx/conf.d/"]


def around(site: Path, folder: Path) -> str:
    """Return a whole configuration with nothing but a site, to have that checked.

    Parameters
    ----------
    folder
        Takes everything that nginx writes.
    """
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = [f"{kind}_temp_path {_quoted(folder / kind)};" for kind in kinds]
    lines = [
        f"pid {_quoted(folder / 'nginx.pid')};",
        f"error_log {_quoted(folder / 'error.log')};",
        "daemon off;",
        "events { worker_connections 256; }",
        "http {",
        "access_log off;",
        *temporary,
        f"include {_quoted(site)};",
        "}",
    ]
    return "".join(f"{line}\n" for line in lines)


def _upstream(backends: Sequence[Backend], label: str) -> list[str]:
    servers = [
        f"    server {one.address} max_fails=2 fail_timeout=10s;" for one in backends
    ]
    return [
        f"upstream rig_{label} {{",
        "    # all workers count together, and the least busy replica is next",
        f"    zone rig_{label} 64k;",
        "    least_conn;",
        *servers,
        "    keepalive 32;",
        "}",
        "",
    ]


def _keys(file: Path, label: str) -> list[str]:
    return [
        f"map $http_authorization $rig_{label}_known {{",
        "    default 0;",
        f"    include {_quoted(file)};",
        "}",
        "",
    ]


def _server(site: Site, label: str) -> list[str]:
    where = ports.joined(site.host, site.port)
    tls = site.certificate is not None
    lines = [f"listen {where}{' ssl' if tls else ''};", "server_name _;"]
    if site.certificate and site.certificate_key:
        lines += [
            f"ssl_certificate {_quoted(site.certificate)};",
            f"ssl_certificate_key {_quoted(site.certificate_key)};",
            "ssl_protocols TLSv1.2 TLSv1.3;",
            "ssl_session_tickets off;",
        ]
    if not site.anybody:
        lines += ["allow 127.0.0.1;", "allow ::1;", "deny all;"]
    lines += [
        f"client_max_body_size {BODY_MIB}m;",
        "client_body_buffer_size 1m;",
        "server_tokens off;",
        "",
        "proxy_http_version 1.1;",
        'proxy_set_header Connection "";',
        "proxy_set_header Host $host;",
        "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;",
        "proxy_set_header X-Forwarded-Proto $scheme;",
        "# each token goes on as it comes",
        "proxy_buffering off;",
        "proxy_cache off;",
        "gzip off;",
        "proxy_connect_timeout 5s;",
        f"proxy_read_timeout {READ_S}s;",
        f"proxy_send_timeout {READ_S}s;",
        f"send_timeout {READ_S}s;",
        "# a replica that is down is passed over; what began is never asked again",
        "proxy_next_upstream error timeout;",
        "",
        "location /v1/ {",
        *(f"    {line}" for line in _guard(site, label)),
        f"    proxy_pass http://rig_{label};",
        "}",
        "location = /health {",
        "    proxy_next_upstream error timeout http_502 http_503 http_504;",
        "    proxy_read_timeout 5s;",
        f"    proxy_pass http://rig_{label};",
        "}",
        "# metrics and the like are each replica's own",
        "location / {",
        "    return 404;",
        "}",
    ]
    return lines


def _guard(site: Site, label: str) -> list[str]:
    if site.key_map is None:
        return []
    return [
        "default_type application/json;",
        f"if ($rig_{label}_known = 0) {{",
        f"    return 401 '{_UNAUTHORIZED}';",
        "}",
    ]


def _quoted(path: Path) -> str:
    """Return a path as nginx reads it.

    Raises
    ------
    UsageError
        When nginx would read a variable or a pattern in it, and has no way round.
    """
    text = os.fspath(path)
    if any(char in text for char in "$*?[\n"):
        raise UsageError(
            f"nginx cannot name the file {text}",
            hint="--output FOLDER, one without $ * ? [ in its name",
        )
    text = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
