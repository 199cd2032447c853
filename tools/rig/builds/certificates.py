# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Lets uv trust what the rest of the machine trusts.

uv brings its own list of certificate authorities. Behind a proxy that opens TLS, or
with a mirror of one's own, only the system's list knows the right one; pip and git
read that.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

STORES = (
    Path("/etc/ssl/certs/ca-certificates.crt"),
    Path("/etc/pki/tls/certs/ca-bundle.crt"),
)
"""Where Debian's and Red Hat's families keep the system's list."""

_CHOICES = ("UV_SYSTEM_CERTS", "UV_NATIVE_TLS", "SSL_CERT_FILE", "SSL_CERT_DIR")


def system_store(
    env: Mapping[str, str], stores: tuple[Path, ...] = STORES
) -> dict[str, str]:
    """Return what to add so that uv reads the system's certificates.

    Nothing is added where the user has chosen, or where the system has no list.
    ``UV_NATIVE_TLS`` is the name that uv before 0.11 knows.
    """
    if any(env.get(name) for name in _CHOICES):
        return {}
    if not any(store.is_file() for store in stores):
        return {}
    return {"UV_SYSTEM_CERTS": "true", "UV_NATIVE_TLS": "true"}
