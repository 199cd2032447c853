# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Lets an editable environment find folders of the checkout beside its own finder's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tools.rig.base.state import write_text


def put_on_path(site: Path, project: str, folders: Sequence[Path]) -> None:
    """Name folders of the checkout in a ``.pth`` file, beside the target's finder.

    Without folders an earlier file is taken away.
    """
    file = site / f"rig-overlay-{project}.pth"
    if folders:
        write_text(file, "".join(f"{folder}\n" for folder in folders))
    else:
        file.unlink(missing_ok=True)
