# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""``build-sm70`` where what is in force has lost its Python, as after an upgrade."""

from __future__ import annotations

import subprocess

import pytest

from tests.rig.support.workshop import Workshop, until

pytestmark = pytest.mark.real


def test_python_gone(shop: Workshop) -> None:
    """Whoever still runs from it keeps it; once nobody does, a build mends it."""
    before = shop.environment.resolve()
    python = before / "bin" / "python"
    code = "import rig_sample; print('up', flush=True); input()"
    argv = [str(shop.environment / "bin" / "python"), "-c", code]
    with shop.started(argv, stdin=subprocess.PIPE) as user:
        until(lambda: "up" in shop.said, lambda: shop.said)
        python.rename(python.with_name("gone"))
        got = shop.invoke("build-sm70")
        assert got.returncode == 4, got.stderr
        assert "is broken: it is left until a switch" in got.stderr
        assert shop.environment.resolve() == before and user.poll() is None
        user.communicate("\n", timeout=60)
        assert user.returncode == 0
    got = shop.invoke("build-sm70")
    assert got.returncode == 0, got.stderr
    assert shop.environment.resolve() != before and shop.imports() == "7.0"
