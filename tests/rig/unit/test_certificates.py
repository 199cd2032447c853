# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""uv reads the system's certificates, unless the user has chosen."""

from __future__ import annotations

from pathlib import Path

from tools.rig.builds.certificates import system_store


def test_the_system_store_is_used(tmp_path: Path) -> None:
    """A site's own authority is known to the system, so uv is told to ask it."""
    store = tmp_path / "ca.crt"
    store.touch()
    wanted = {"UV_SYSTEM_CERTS": "true", "UV_NATIVE_TLS": "true"}
    assert system_store({}, (store,)) == wanted


def test_the_users_choice_stands(tmp_path: Path) -> None:
    """A certificate file that the user names is not overruled."""
    store = tmp_path / "ca.crt"
    store.touch()
    assert system_store({"SSL_CERT_FILE": "/x.crt"}, (store,)) == {}


def test_a_machine_without_a_store_keeps_uvs_own(tmp_path: Path) -> None:
    """Asking an empty store would make every download fail."""
    assert system_store({}, (tmp_path / "none.crt",)) == {}
