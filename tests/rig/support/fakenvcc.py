# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Toolkit folders whose nvcc is a script: of some release, hanging, or nonsense."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def fake_nvcc(
    home: Path, release: str = "13.0", sms: Sequence[int] = (75, 80, 90)
) -> Path:
    """Make a toolkit whose nvcc only says which release it is and what it can do."""
    codes = " ".join(f"sm_{sm}" for sm in sms)
    return scripted_nvcc(
        home,
        f"""\
case "$*" in
*--version*) echo 'Cuda compilation tools, release {release}, V{release}.1' ;;
*--list-gpu-code*) printf '%s\\n' {codes} ;;
*) echo 'this nvcc compiles nothing' >&2; exit 1 ;;
esac""",
    )


def scripted_nvcc(home: Path, body: str) -> Path:
    """Make a toolkit whose nvcc runs a shell script."""
    (home / "bin").mkdir(parents=True)
    nvcc = home / "bin" / "nvcc"
    nvcc.write_text(f"#!/bin/sh\n{body}\n")
    nvcc.chmod(0o755)
    return home
